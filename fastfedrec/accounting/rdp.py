"""Renyi accounting: divergences of order alpha add up; the Gaussian also under sampling."""

import math
from functools import lru_cache

import numpy as np
import scipy

from fastfedrec.accounting.composition import Accountant, check_sampling, pure_cost, renyi_delta, renyi_epsilon
from fastfedrec.accounting.events import ZCDP, Gaussian, Laplace

#: Orders alpha.  Bounds under sampling are for whole orders; below 2 they take that of order 2, which is not below.
ORDERS = np.concatenate(
    [1 + np.arange(1, 20) / 20, np.arange(2, 257), [288, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096]]
)


class RDPAccountant(Accountant):
    """Renyi differential privacy of orders up to 4,096.

    Takes `Gaussian` without sampling, with Poisson sampling under "add_remove" and "zero_out", and with sampling of
    fixed size without replacement under "replace"; `Laplace` without sampling; `ZCDP`; and everything with a pure
    epsilon.

    References
    ----------
    .. [1] Mironov, "Renyi differential privacy", CSF 2017, Propositions 5 to 7.
    .. [2] Mironov, Talwar, Zhang, "Renyi differential privacy of the sampled Gaussian mechanism", 2019, equation 3
       (Poisson).
    .. [3] Wang, Balle, Kasiviswanathan, "Subsampled Renyi differential privacy and analytical moments accountant",
       AISTATS 2019, Theorem 9 (without replacement).
    .. [4] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian, RDPAccountant
    >>> step = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=4800, cohort_size=20)
    >>> round(RDPAccountant().compose(step, 1000).get_epsilon(1e-6), 3)
    1.709
    """

    def _cost(self, event):
        if isinstance(event, ZCDP):
            return event.count * event.rho * ORDERS
        if isinstance(event, Laplace) and event.sampling == "none":
            return event.count * _laplace(event.noise_multiplier)
        if isinstance(event, Gaussian):
            check_sampling(event)
            return event.count * _gaussian(event.sampling, event.sampling_rate, event.noise_multiplier)
        epsilon, uses = pure_cost(event)
        return uses * _randomized_response(epsilon)

    def _epsilon(self, delta):
        return renyi_epsilon(ORDERS, self._sum(), delta)

    def _delta(self, epsilon):
        return renyi_delta(ORDERS, self._sum(), epsilon)


def poisson_divergence(order: int, sampling_probability: float, noise_multiplier: float) -> float:
    """Renyi divergence of one Poisson-sampled Gaussian release, under "add_remove".

    Parameters
    ----------
    order : int
        At least 2.
    sampling_probability : float
        In (0, 1].
    noise_multiplier : float
        Standard deviation over sensitivity.

    Returns
    -------
    float
        Exact, up to rounding.
    """
    k = np.arange(order + 1)
    # Plain Gaussian terms of probability 0 (at a sampling probability of 1) drop out of the sum.
    with np.errstate(divide="ignore"):
        logs = (
            _log_binomial(order, k)
            + scipy.special.xlog1py(order - k, -sampling_probability)
            + k * math.log(sampling_probability)
        )
    return float(scipy.special.logsumexp(logs + k * (k - 1) / (2 * noise_multiplier**2))) / (order - 1)


def without_replacement_divergence(order: int, sampling_rate: float, noise_multiplier: float) -> float:
    """Upper bound on the Renyi divergence of one Gaussian release of a sample of fixed size, under "replace".

    Parameters
    ----------
    order : int
        At least 2.
    sampling_rate : float
        Cohort size over number of users.
    noise_multiplier : float
        Standard deviation over the sensitivity under "replace".

    Returns
    -------
    float
        The bound of Wang, Balle and Kasiviswanathan (2019), Theorem 9.
    """
    k = np.arange(3, order + 1)
    second = 1 / noise_multiplier**2  # the divergence of order 2
    # log of min(4 (e^second - 1), 2 e^second); the divergence of infinite order is infinite
    least = min(
        math.log(4) + second + math.log(-math.expm1(-second)),
        math.log(2) + second,
    )
    logs = np.empty(order)
    logs[0] = 0.0
    logs[1] = 2 * math.log(sampling_rate) + _log_binomial(order, 2) + least
    logs[2:] = k * math.log(sampling_rate) + _log_binomial(order, k) + math.log(2)
    logs[2:] += (k - 1) * k / (2 * noise_multiplier**2)
    return float(scipy.special.logsumexp(logs)) / (order - 1)


@lru_cache(maxsize=64)
def _gaussian(sampling, rate, noise_multiplier):
    """Divergences of all orders; sampling never adds to them."""
    plain = ORDERS / (2 * noise_multiplier**2)
    if sampling == "none":
        return plain
    bound = poisson_divergence if sampling == "poisson" else without_replacement_divergence
    whole = {order: bound(int(order), rate, noise_multiplier) for order in ORDERS[ORDERS >= 2]}
    return np.minimum([whole[max(order, 2.0)] for order in ORDERS], plain)


def _randomized_response(epsilon):
    """Divergences of binary randomized response, the worst of all epsilon-private mechanisms."""
    keep, flip = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    terms = [ORDERS * keep + (1 - ORDERS) * flip, ORDERS * flip + (1 - ORDERS) * keep]
    return np.minimum(scipy.special.logsumexp(terms, axis=0) / (ORDERS - 1), epsilon)


def _laplace(scale):
    terms = [
        np.log(ORDERS / (2 * ORDERS - 1)) + (ORDERS - 1) / scale,
        np.log((ORDERS - 1) / (2 * ORDERS - 1)) - ORDERS / scale,
    ]
    return scipy.special.logsumexp(terms, axis=0) / (ORDERS - 1)


def _log_binomial(n, k):
    return scipy.special.gammaln(n + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(n - k + 1)
