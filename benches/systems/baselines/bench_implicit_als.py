"""An epoch of ImplicitALS, both half steps, at the size of MovieLens 1M, against implicit and irspack.

Factors after the epoch are compared before the measurement.
"""

import numpy as np
import scipy.sparse
import threadpoolctl

from benches.floors import few, in_turns
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, nan_without_peers, peer
from fastfedrec import ImplicitALS, Interactions, Key
from fastfedrec.datasets import generate_implicit

N_USERS, N_ITEMS, REGULARIZATION, WEIGHT, CG_STEPS = 6_040, 3_706, 10.0, 2.0, 3
N_FACTORS = [16, 64, 128]
N_ALLOCATIONS = 3  # of implicit's factors, at different addresses: see compute.bench_als


def _fastfedrec(data, start, solver, n_threads):
    users, items = (side.copy() for side in start)
    by_item = Interactions.from_scipy(data.to_scipy().T.tocsr())
    model = ImplicitALS(
        start[1].shape[1], 1, REGULARIZATION, confidence_weight=WEIGHT, solver=solver, cg_steps=CG_STEPS
    )

    def epoch():
        users[:], items[:] = start
        model._take_epoch(data, by_item, users, items, n_threads)
        return items

    return epoch


def _matrix(data, value):
    """Return the peers' input: a matrix with 32-bit indices and the same value everywhere."""
    values = np.full(data.n_interactions, value, dtype=np.float32)
    return scipy.sparse.csr_matrix((values, data.indices.astype(np.int32), data.indptr.astype(np.int32)), data.shape)


def _implicit(data, start, solver, n_threads):
    with peer("implicit"):
        from implicit.cpu import _als
    users, items = (side.copy() for side in start)
    confidence = _matrix(data, 1 + WEIGHT)  # implicit takes the whole confidence
    by_item = confidence.T.tocsr()

    def epoch():
        users[:], items[:] = start
        for matrix, out, factors in ((confidence, users, items), (by_item, items, users)):
            if solver == "exact":
                _als.least_squares(matrix, out, factors, REGULARIZATION, num_threads=n_threads)
            else:
                _als.least_squares_cg(matrix, out, factors, REGULARIZATION, num_threads=n_threads, cg_steps=CG_STEPS)
        return items

    return epoch


def _irspack(data, start, solver, n_threads):
    with peer("irspack"):
        from irspack.recommenders import _ials_core as core
    model = core.IALSModelConfigBuilder().set_K(start[1].shape[1]).set_alpha0(1.0).set_reg(REGULARIZATION).set_nu(0.0)
    trainer = core.IALSTrainer(model.set_loss_type(core.ORIGINAL).build(), _matrix(data, WEIGHT))
    config = core.IALSSolverConfigBuilder().set_n_threads(n_threads).set_max_cg_steps(CG_STEPS)
    config = config.set_solver_type(core.CHOLESKY if solver == "exact" else core.CG).build()

    def epoch():
        trainer.user, trainer.item = start
        trainer.step(config)
        return trainer.item

    return epoch


def setup_cache():
    """Return the data, which asv passes to every benchmark of this file."""
    return generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(1))


@nan_without_peers
class Epoch(OnInstructionSet):
    param_names = ("n_factors", "solver", "n_threads", "instruction_set")
    params = (N_FACTORS, ["exact", "cg"], [1, 2], INSTRUCTION_SETS)
    unit = "times faster"

    def setup(self, data, n_factors, solver, n_threads, instruction_set):
        super().setup(instruction_set)
        threadpoolctl.threadpool_limits(1, user_api="blas")  # OpenBLAS threads inside OpenMP contend, also in implicit
        rng = np.random.default_rng(0)
        self.start = tuple(rng.standard_normal((n, n_factors), dtype=np.float32) / 10 for n in data.shape)

    def time_epoch(self, data, n_factors, solver, n_threads, instruction_set):
        _fastfedrec(data, self.start, solver, n_threads)()

    def track_times_implicit(self, data, n_factors, solver, n_threads, instruction_set):
        return self.times(data, solver, n_threads, _implicit, n_allocations=N_ALLOCATIONS)

    def track_times_irspack(self, data, n_factors, solver, n_threads, instruction_set):
        return self.times(data, solver, n_threads, _irspack)

    def times(self, data, solver, n_threads, other, n_allocations=1):
        """Return the peer's time over ours, with alternating calls: the median over allocations."""
        rng, ratios, held = np.random.default_rng(0), [], []
        for allocation in range(few(n_allocations)):
            start = tuple(side.copy() for side in self.start)
            held += [start, bytearray(rng.integers(64, 120_000))]  # moves the next arrays to other addresses
            ours, theirs = (make(data, start, solver, n_threads) for make in (_fastfedrec, other))
            if allocation == 0:
                got, expected = ours().copy(), theirs()
                # Three steps of conjugate gradients have three digits in float32, in both implementations.
                tolerance = (1e-3 if solver == "exact" else 1e-2) * np.abs(expected).max()
                np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
            our_seconds, their_seconds = in_turns(ours, theirs, repetitions=2)
            ratios.append(their_seconds / our_seconds)
        return float(np.median(ratios))
