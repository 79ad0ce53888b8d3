"""What papers printed, for comparison: these are their figures, not our claims."""

import math
from collections.abc import Callable

import numpy as np
import scipy

from fastfedrec.accounting import _binomial, _loss
from fastfedrec.accounting.shuffle import clone_loss
from fastfedrec.core.check import check_choice, check_integer, check_real

__all__ = ["published_privrec_epsilon", "published_shuffle_epsilon"]

_PRIVREC_ORDERS = np.arange(2, 257)
_MOST_USERS = 10**11  # beyond, tables of the counts of others take gigabytes
_LEAST_EPSILON = 1e-100  # whose square is a number
_UNHIDDEN = 500.0  # epsilon of a report from which on no crowd hides it


def published_privrec_epsilon(
    n_users: int,
    cohort_size: int,
    *,
    rounds: int,
    noise_multiplier: float,
    delta: float,
) -> float:
    """Epsilon as in Tables 4 and 5 of the DP-PrivRec paper.

    Parameters
    ----------
    n_users : int
        Users (N).
    cohort_size : int
        Users of one round (M).
    rounds : int
        Rounds as the paper names them; 1000 in its tables.
    noise_multiplier : float
        1 in its tables.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        All 36 finite cells of the two tables come out, which print four decimals and cut the rest.

    Notes
    -----
    It is the Renyi bound for sampling without replacement, converted by epsilon = D + log(1 / delta) / (alpha - 1) with
    whole alpha, for ``rounds * cohort_size`` compositions and not the `rounds` that the text names.  What the same
    run costs is found with `Gaussian` and `PLDAccountant`.

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
    with np.errstate(over="ignore"):  # an infinite divergence is one
        one = np.array([_wang_divergence(int(a), cohort_size / n_users, z) for a in _PRIVREC_ORDERS])
        return float((float(rounds * cohort_size) * one - math.log(delta) / (_PRIVREC_ORDERS - 1)).min())


def _wang_divergence(order, rate, z):
    """Theorem 9 of Wang, Balle and Kasiviswanathan (2019) for Gaussian noise and whole orders."""
    k = np.arange(3, order + 1)
    second = 1 / z * (1 / z)  # the divergence of order 2; a power would raise where it is no float
    if math.isinf(second):
        return math.inf
    # log of min(4 (e^second - 1), 2 e^second); the divergence of infinite order is infinite
    least = min(math.log(4) + second + math.log(-math.expm1(-second)), math.log(2) + second) if second else -math.inf
    logs = np.zeros(order)
    logs[1] = 2 * math.log(rate) + _log_binomial(order, 2) + least
    logs[2:] = k * math.log(rate) + _log_binomial(order, k) + math.log(2) + (k - 1) * k / 2 * second
    return float(scipy.special.logsumexp(logs)) / (order - 1)


def _log_binomial(n, k):
    return scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)


def published_shuffle_epsilon(theorem: str, epsilon_per_report: float, n_users: int, delta: float) -> float:
    """What earlier theorems give for one shuffled binary response.

    Parameters
    ----------
    theorem : {"balle2019", "feldman2021", "feldman2021_closed_form"}
        Privacy blanket with Hoeffding's bound; hiding among the clones, computed exactly; and in closed form, as in
        the authors' code.
    epsilon_per_report : float
        Of one report on the user's own device; at least 1e-100.
    n_users : int
        Users with one report each; at most 10^11.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        In nats, at most `epsilon_per_report`.

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
    epsilon = check_real("epsilon_per_report", epsilon_per_report, low=_LEAST_EPSILON)
    n_users = check_integer("n_users", n_users, low=1, high=_MOST_USERS)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    return epsilon if epsilon > _UNHIDDEN else min(epsilon, bound(epsilon, n_users, delta))


def _balle(epsilon, n_users, delta):
    blanket = 2 / (math.exp(epsilon) + 1)
    half = 10 * math.sqrt(n_users * blanket) + 10
    low, high = max(1, math.floor(n_users * blanket - half)), min(n_users, math.ceil(n_users * blanket + half))
    members = np.arange(low, high + 1)
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
    (total,) = _loss.compose([(clone_loss(epsilon, n_users, math.exp(-epsilon)), 1)])
    return total.epsilon(delta)


def _feldman_closed_form(epsilon, n_users, delta):
    log_inverse = math.log(4) - math.log(delta)
    if epsilon > math.log(n_users / (16 * log_inverse)):
        return epsilon  # beyond the theorem's range
    grown = math.exp(epsilon)
    excess = 8 * math.sqrt(grown * log_inverse / n_users) + 8 * grown / n_users
    both_flip = (1 - 1 / grown) / (1 + 1 / (grown * (1 + excess)))
    return math.log1p(both_flip * excess)
