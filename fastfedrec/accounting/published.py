"""Figures that papers print, for comparison; this package does not claim them."""

import math
from collections.abc import Callable

import numpy as np
import scipy

from fastfedrec.accounting import _binomial, _loss
from fastfedrec.accounting.shuffle import clone_loss
from fastfedrec.core.check import check_choice, check_integer, check_real

__all__ = ["published_privrec_epsilon", "published_shuffle_epsilon"]

_PRIVREC_ORDERS = np.arange(2, 257)
# With more users the tables of the other users' counts take gigabytes.
_MAX_USERS = 10**11
# Smallest epsilon of a report; its square is still above 0 in floating point.
_MIN_EPSILON = 1e-100
# Above this epsilon of a report no crowd hides it.
_UNHIDDEN = 500.0


def published_privrec_epsilon(
    n_users: int,
    cohort_size: int,
    *,
    rounds: int,
    noise_multiplier: float,
    delta: float,
) -> float:
    """Compute epsilon as in Tables 4 and 5 of the DP-PrivRec paper.

    Parameters
    ----------
    n_users : int
        Number of users (N).
    cohort_size : int
        Number of users of one round (M).
    rounds : int
        Number of rounds as the paper names them; 1000 in its tables.
    noise_multiplier : float
        Standard deviation of the noise over its sensitivity; 1 in the tables.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Epsilon in nats.  It agrees with all 36 finite cells of the two tables, which are cut after four decimals.

    Notes
    -----
    It is the Renyi bound for sampling without replacement, converted by epsilon = D + log(1 / delta) / (alpha - 1) with
    whole alpha.  The number of compositions is ``rounds * cohort_size``, and not the `rounds` that the text names.  Use
    `Gaussian` and `PLDAccountant` for the cost of the same run.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", VLDB Journal
       2021, Tables 4 and 5.
    .. [2] Wang, Balle, Kasiviswanathan, "Subsampled Renyi differential privacy and analytical moments accountant",
       AISTATS 2019, Theorem 9.

    Examples
    --------
    >>> from fastfedrec.accounting import published_privrec_epsilon
    >>> round(published_privrec_epsilon(4800, 20, rounds=1000, noise_multiplier=1.0, delta=1e-6), 3)
    8.322
    """
    n_users = check_integer("n_users", n_users, low=1)
    cohort_size = check_integer("cohort_size", cohort_size, low=1, high=n_users)
    rounds = check_integer("rounds", rounds, low=1)
    z = check_real("noise_multiplier", noise_multiplier, low=0.0, exclusive=True)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    # A divergence that overflows is infinite, which is a valid figure.
    with np.errstate(over="ignore"):
        one = np.array([_wang_divergence(int(a), cohort_size / n_users, z) for a in _PRIVREC_ORDERS])
        return float((float(rounds * cohort_size) * one - math.log(delta) / (_PRIVREC_ORDERS - 1)).min())


def _wang_divergence(order, rate, z):
    """Return the divergence by Theorem 9 of Wang, Balle and Kasiviswanathan (2019), Gaussian noise, whole orders."""
    k = np.arange(3, order + 1)
    # The divergence of order 2.  A product overflows to infinity, whereas a power would raise.
    second = 1 / z * (1 / z)
    if math.isinf(second):
        return math.inf
    # log of min(4 (e^second - 1), 2 e^second), since the divergence of infinite order is infinite.
    log_minimum = (
        min(math.log(4) + second + math.log(-math.expm1(-second)), math.log(2) + second) if second else -math.inf
    )
    logs = np.zeros(order)
    logs[1] = 2 * math.log(rate) + _log_binomial(order, 2) + log_minimum
    logs[2:] = k * math.log(rate) + _log_binomial(order, k) + math.log(2) + (k - 1) * k / 2 * second
    return float(scipy.special.logsumexp(logs)) / (order - 1)


def _log_binomial(n, k):
    """Return the logarithm of the binomial coefficient."""
    return scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)


def published_shuffle_epsilon(theorem: str, epsilon_per_report: float, n_users: int, delta: float) -> float:
    """Compute the epsilon of one shuffled binary response by an earlier theorem.

    Parameters
    ----------
    theorem : {"balle2019", "feldman2021", "feldman2021_closed_form"}
        Privacy blanket with Hoeffding's bound; hiding among the clones, computed exactly; and in closed form, as in
        the authors' code.
    epsilon_per_report : float
        Epsilon of one report on the user's own device, in nats; at least 1e-100.
    n_users : int
        Number of users with one report each; at most 10^11.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Epsilon in nats, at most `epsilon_per_report`.

    References
    ----------
    .. [1] Balle, Bell, Gascon, Nissim, "The privacy blanket of the shuffle model", CRYPTO 2019.
    .. [2] Feldman, McMillan, Talwar, "Hiding among the clones", FOCS 2021, Theorem 3.1.

    Examples
    --------
    >>> from fastfedrec.accounting import published_shuffle_epsilon
    >>> round(published_shuffle_epsilon("balle2019", 2.5, n_users=50_000, delta=1e-6), 4)
    0.0804
    """
    bounds: dict[str, Callable[[float, int, float], float]] = {
        "balle2019": _balle,
        "feldman2021": _feldman,
        "feldman2021_closed_form": _feldman_closed_form,
    }
    bound = bounds[check_choice("theorem", theorem, tuple(bounds))]
    epsilon = check_real("epsilon_per_report", epsilon_per_report, low=_MIN_EPSILON)
    n_users = check_integer("n_users", n_users, low=1, high=_MAX_USERS)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    return epsilon if epsilon > _UNHIDDEN else min(epsilon, bound(epsilon, n_users, delta))


def _balle(epsilon, n_users, delta):
    """Return the epsilon by the privacy blanket with Hoeffding's bound."""
    blanket = 2 / (math.exp(epsilon) + 1)
    half = 10 * math.sqrt(n_users * blanket) + 10
    low, high = max(1, math.floor(n_users * blanket - half)), min(n_users, math.ceil(n_users * blanket + half))
    members = np.arange(low, high + 1)
    # The size of the blanket is binomial, and ten standard deviations hold nearly all of its mass.
    weights = _binomial.pmf(members, n_users, blanket)

    def failure(candidate):
        # Each member contributes between low and high, with mean 1 - e^candidate.
        drift, width = math.expm1(candidate), 2 * math.tanh(epsilon / 2) * (1 + math.exp(candidate))
        excess = width**2 / (4 * drift) * np.exp(-2 * members * drift**2 / width**2)
        return float((weights * excess).sum()) / (blanket * n_users)

    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if failure(middle) > delta else (low, middle)
    return high


def _feldman(epsilon, n_users, delta):
    """Return the epsilon by hiding among the clones, as a privacy loss distribution."""
    (total,) = _loss.compose([(clone_loss(epsilon, n_users, math.exp(-epsilon)), 1)])
    return total.epsilon(delta)


def _feldman_closed_form(epsilon, n_users, delta):
    """Return the epsilon by the closed form of Feldman, McMillan and Talwar."""
    log_inverse = math.log(4) - math.log(delta)
    if epsilon > math.log(n_users / (16 * log_inverse)):
        return epsilon  # outside the range of the theorem
    grown = math.exp(epsilon)
    excess = 8 * math.sqrt(grown * log_inverse / n_users) + 8 * grown / n_users
    both_flip = (1 - 1 / grown) / (1 + 1 / (grown * (1 + excess)))
    return math.log1p(both_flip * excess)
