"""Rounds of FMF with a trusted server: noisy sums of gradients of norm 1, for `dp_fmf.DPFMF`.

One user's contribution, in whole numbers, has norm at most `UNIT`: see docs/explanation/systems/fmf/dp-fmf-privacy.md.
"""

from dataclasses import replace

import numpy as np

from fastfedrec._kernels.systems.fmf import fmf_ldp as _kernel
from fastfedrec.accounting import RoundTraffic
from fastfedrec.compute import als
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._noisy_sum import Noise, NoisySum, StatedCost, squared_costs, total_multiplier
from fastfedrec.systems.factor_rounds import SCALE, UNIT, FactorState
from fastfedrec.systems.fmf._normal_gradients import NormalGradient

__all__ = ["GradientRound"]

_FIRST_STEP_NOISE = 0.06  # standard deviation by which the first round's noise moves an item factor, as in FMF-LDP
_STEP_DECAY = 10  # rounds after which the step is half as long


class GradientRound(NoisySum):
    """A round in which users solve for their factors and sum gradients of norm 1, and the server takes a step.

    `mu` is the cost of one release in Gaussian differential privacy; a party with `key` can remove the noise.
    """

    _unit, _field, _purpose = UNIT, "gradients", "dp_fmf.gradients"

    def __init__(self, mu: float, n_items: int, n_factors: int, key: Key, regularization: float):
        noise = Noise.of(UNIT, 1, mu, "n_rounds")
        super().__init__({self._field: noise}, key, noise.gaussian.total_variation_of(n_items * n_factors))
        self.n_items, self.n_factors, self.regularization = n_items, n_factors, regularization

    @property
    def round_cost(self) -> StatedCost:
        """Cost of this round."""
        return StatedCost(total_multiplier(squared_costs(self.noises)), self.replace_sensitivity)

    def traffic(self, state: FactorState, n_clients: int) -> RoundTraffic:
        """Return the traffic: factors down, and one int64 for each sum up."""
        return RoundTraffic(state.n_bytes, 8 * self.n_sums(state), n_clients)

    def _shapes(self, state: FactorState) -> dict[str, tuple[int, ...]]:
        return {self._field: (self.n_items, self.n_factors)}

    def _sums(self, state: FactorState, shard: Interactions, key: Key, n_threads: int) -> dict[str, np.ndarray]:
        factors = als.check_item_factors(state.item_factors, shard.n_items)
        triangle = als.regularized_gram(factors, self.regularization, 0.0)  # raises; it depends on no user's data
        with one_blas_thread():
            inverse = np.linalg.inv(np.triu(triangle))
        # With confidence weight 0 all users share one system, so its inverse is computed once.
        columns, _, _ = NormalGradient(self.n_items, self.n_factors, None, 0).for_kernel(factors)
        sums = np.zeros((n_threads, *columns.shape), dtype=np.int64)
        failed = np.zeros(n_threads, dtype=np.int64)
        _kernel.gradient_sums(
            shard.indptr, shard.indices, factors, inverse, columns, sums, failed, float(SCALE), n_threads
        )
        if failed.any():
            raise MemoryError("no memory for a thread's scratch space; use fewer threads or factors")
        return {self._field: np.ascontiguousarray(sums.sum(axis=0)[:, : self.n_items].T)}

    def _learn(self, state: FactorState, sums: dict[str, np.ndarray], round_number: int) -> FactorState:
        """Take a step with a length that the noise's standard deviation determines."""
        # The noise, not the gradient, limits the step: it moves a factor by a known amount.
        rate = _FIRST_STEP_NOISE / (1 + round_number / _STEP_DECAY) / float(self.noise.stddev)
        return replace(state, item_factors=state.item_factors - rate * sums[self._field])
