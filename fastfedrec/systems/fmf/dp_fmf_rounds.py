"""Rounds of FMF with a trusted server: noisy sums of gradients of norm 1, for `dp_fmf.DPFMF`.

One user's contribution, in whole numbers, has norm at most `UNIT`: see docs/explanation/systems/fmf/dp-fmf-privacy.md.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fastfedrec._kernels.systems.fmf import fmf_ldp as _kernel
from fastfedrec.compute import als
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import Update
from fastfedrec.systems.dp_als.rounds import SCALE, ALSState, NoisyRound
from fastfedrec.systems.fmf._normal_gradients import NormalGradient

__all__ = ["GradientRound"]

_FIRST_STEP_NOISE = 0.06  # standard deviation by which the first round's noise moves an item factor, as in FMF-LDP
_STEP_DECAY = 10  # rounds after which the step is half as long


class GradientRound(NoisyRound):
    """A round in which users solve for their factors and sum gradients of norm 1, and the server takes a step.

    `mu` is the cost of one release in Gaussian differential privacy; a party with `key` can remove the noise.
    """

    _purpose = "dp_fmf"

    def __init__(self, mu: float, n_items: int, n_factors: int, key: Key, regularization: float):
        super().__init__((mu,), 1, n_items, n_factors, key)
        self.regularization = regularization

    def _kinds(self) -> dict[str, tuple[tuple[int, ...], int]]:
        return {"gradients": ((self.n_items, self.n_factors), 1)}

    def _sums(self, state: ALSState, shard: Interactions, key: Key, n_threads: int) -> dict[str, np.ndarray]:
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
        return {"gradients": np.ascontiguousarray(sums.sum(axis=0)[:, : self.n_items].T)}

    def apply(self, state: ALSState, update: Update) -> ALSState:
        """Add the noise, and take a step with a length that its standard deviation determines."""
        noise = self.noises["gradients"].gaussian
        noisy = noise.add_noise(
            update.arrays["gradients"], key=self.key, purpose=f"{self._purpose}.gradients", round=update.round
        )
        # The noise, not the gradient, limits the step: it moves a factor by a known amount.
        rate = _FIRST_STEP_NOISE / (1 + update.round / _STEP_DECAY) / float(noise.stddev)
        return replace(state, item_factors=state.item_factors - rate * noisy)

    def _learn(self, state: ALSState, sums: Mapping[str, np.ndarray]) -> ALSState:
        raise NotImplementedError("a step depends on the round, so `apply` takes it")
