"""The meaning of an epsilon and a delta for an adversary that guesses."""

import math

from fastfedrec.core.check import check_real
from fastfedrec.core.old_names import refuse_old_names

__all__ = ["largest_guess_share"]


def largest_guess_share(epsilon: float, delta: float = 0.0) -> float:
    """Return the largest probability of a right guess between two given histories of a user, equally likely before.

    Parameters
    ----------
    epsilon : float
        Epsilon of a guarantee for replacing all data of the user, in nats.
    delta : float
        Delta of the same guarantee.

    Returns
    -------
    float
        (e^epsilon + delta) / (1 + e^epsilon), from 1/2 to 1.

    Raises
    ------
    ValueError
        The epsilon is infinite or negative, or the delta is outside of [0, 1].

    References
    ----------
    .. [1] Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", ICML 2015, Theorem 2.1.

    Examples
    --------
    >>> from fastfedrec.accounting import largest_guess_share
    >>> [round(largest_guess_share(epsilon), 3) for epsilon in (0.5, 1.0, 4.0)]
    [0.622, 0.731, 0.982]
    """
    # Both terms are divided by e^epsilon, so that a large epsilon does not overflow.
    odds = math.exp(-check_real("epsilon", epsilon, low=0.0))
    delta = check_real("delta", delta, low=0.0, high=1.0)
    return min(1.0, (1.0 + delta * odds) / (1.0 + odds))


refuse_old_names(__name__, most_right_guesses="largest_guess_share")
