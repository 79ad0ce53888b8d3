"""Renyi accounting: divergences of order alpha add up, also for the Gaussian under sampling."""

import math
from typing import Any

import numpy as np

from fastfedrec.accounting import _renyi
from fastfedrec.accounting._conversion import renyi_delta, renyi_epsilon
from fastfedrec.accounting.composition import Accountant
from fastfedrec.accounting.events import Event
from fastfedrec.core.check import check_real

__all__ = ["ORDERS", "RDPAccountant", "poisson_divergence", "without_replacement_divergence"]

#: Orders alpha: the orders of the public accountants, and more.
ORDERS = np.unique(
    np.concatenate(
        [
            [1.001, 1.002, 1.005, 1.01, 1.02],
            1 + np.arange(1, 20) / 20,
            1 + np.arange(1, 100) / 10,
            np.arange(2, 257),
            [288, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096],
        ]
    )
)
# Orders for divergences so small that the bound still falls at the last of `ORDERS`.  The bound is at most 1.5% above
# the bound of all orders.
_LARGE_ORDERS = ORDERS[-1] * 2.0 ** (np.arange(1, 57) / 2)
# Maximum order, because a divergence of a whole order is a sum of this number of terms.
_LARGEST_ORDER = 2.0**20


class RDPAccountant(Accountant):
    """Renyi differential privacy of orders up to 4,096, and of larger orders for the smallest divergences.

    Takes `Gaussian` without sampling, with Poisson sampling, and with sampling of fixed size without replacement under
    "replace"; `Laplace` without sampling; `ZCDP`; and all events with a pure epsilon.

    References
    ----------
    .. [1] Mironov, "Renyi differential privacy", CSF 2017, Propositions 5 to 7.
    .. [2] Mironov, Talwar, Zhang, "Renyi differential privacy of the sampled Gaussian mechanism", 2019 (Poisson).
    .. [3] Zhu, Dong, Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022
       (the pair that dominates sampling without replacement).
    .. [4] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.

    Examples
    --------
    >>> from fastfedrec.accounting import Gaussian, RDPAccountant
    >>> step = Gaussian(1.0, neighboring="replace", sampling="without_replacement", n_users=4800, cohort_size=20)
    >>> round(RDPAccountant().compose(step, 1000).get_epsilon(1e-6), 3)
    1.425
    """

    def _cost(self, event: Event) -> Any:
        return _event_divergences(event, ORDERS)

    def _epsilon(self, delta: float) -> float:
        divergences = self._sum()
        epsilon = renyi_epsilon(ORDERS, divergences, delta)
        # The bound still falls at the last order, so larger orders can be better.
        if divergences[-1] < -math.log(delta) / (ORDERS[-1] - 1):
            epsilon = min(epsilon, renyi_epsilon(_LARGE_ORDERS, self._large_sum(), delta))
        return epsilon

    def _delta(self, epsilon: float) -> float:
        divergences = self._sum()
        delta = renyi_delta(ORDERS, divergences, epsilon)
        if divergences[-1] < epsilon / 2:
            delta = min(delta, renyi_delta(_LARGE_ORDERS, self._large_sum(), epsilon))
        return delta

    def _large_sum(self):
        """Return the divergences of all events at the orders of `_LARGE_ORDERS`."""
        return self._weighted_sum({event: _event_divergences(event, _LARGE_ORDERS) for event in self._events})


# A divergence that overflows is infinite, which is a valid bound.
@np.errstate(over="ignore")
def _event_divergences(event, orders):
    return event._divergences(orders)


def poisson_divergence(order: float, sampling_probability: float, noise_multiplier: float) -> float:
    """Compute the Renyi divergence of one Poisson-sampled Gaussian release, under "add_remove".

    Parameters
    ----------
    order : float
        Order alpha, above 1 and at most 2^20.
    sampling_probability : float
        Probability that a unit is in the sample, in [0, 1].
    noise_multiplier : float
        Standard deviation over sensitivity.

    Returns
    -------
    float
        Divergence in nats, rounded up.
    """
    order = _check_order(order)
    sampling_probability = check_real("sampling_probability", sampling_probability, low=0.0, high=1.0)
    noise_multiplier = check_real("noise_multiplier", noise_multiplier, low=0.0, exclusive=True)
    if not sampling_probability:
        return 0.0  # every sample is empty
    return _renyi.divergence(_renyi.sampled_gaussian(order, sampling_probability, noise_multiplier), order)


def without_replacement_divergence(order: float, sampling_rate: float, noise_multiplier: float) -> float:
    """Bound the Renyi divergence of one Gaussian release of a sample of fixed size from above, under "replace".

    Parameters
    ----------
    order : float
        Order alpha, above 1 and at most 2^20.
    sampling_rate : float
        Cohort size over number of users.
    noise_multiplier : float
        Standard deviation over the sensitivity under "replace".

    Returns
    -------
    float
        Divergence of the pair that dominates the release, in nats, rounded up.
    """
    orders = np.array([_check_order(order)])
    sampling_rate = check_real("sampling_rate", sampling_rate, low=0.0, high=1.0)
    noise_multiplier = check_real("noise_multiplier", noise_multiplier, low=0.0, exclusive=True)
    if not sampling_rate:
        return 0.0
    return float(_renyi.divergences(orders, _renyi.fixed_size_gaussian(orders, sampling_rate, noise_multiplier))[0])


def _check_order(order):
    """Return a checked order of a divergence."""
    return check_real("order", check_real("order", order, low=1.0, exclusive=True), high=_LARGEST_ORDER)
