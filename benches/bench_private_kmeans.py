"""Losses of all swaps, and one private draw among them, beside NumPy, on one thread."""

import numpy as np

from fastfedrec import hardware
from fastfedrec.private_kmeans import draw_loss, swap_losses

from .floors import in_turns

N_USERS, N_CLUSTERS, N_CANDIDATES = 6_040, 50, 400
INSTRUCTION_SETS = ["x86-64-v4", "x86-64-v3", "plain"]


class Swaps:
    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def setup(self, instruction_set):
        if instruction_set not in hardware.instruction_sets():
            raise NotImplementedError(f"no {instruction_set} here")
        rng = np.random.default_rng(0)
        self.distances = rng.integers(0, 65536, (N_USERS, N_CANDIDATES)).astype(np.uint16)
        self.chosen = rng.permutation(N_CANDIDATES)[:N_CLUSTERS]
        self.forced = hardware.use_instruction_set(instruction_set)
        self.forced.__enter__()
        np.testing.assert_array_equal(self._ours(), self._numpy())

    def teardown(self, *_):
        if hasattr(self, "forced"):
            self.forced.__exit__(None, None, None)

    def time_swaps(self, _):
        self._ours()

    def time_draw(self, _):
        draw_loss(self._ours().reshape(-1), 0.1, np.array([1, 2], dtype=np.uint64))

    def track_times_numpy(self, _):
        """NumPy with one pass over users and candidates for each centre that leaves."""
        theirs, ours = in_turns(self._numpy, self._ours)
        return theirs / ours

    track_times_numpy.unit = "times faster"

    def _ours(self):
        return swap_losses(self.distances, self.chosen, 1)

    def _numpy(self):
        wide = self.distances.astype(np.int64)
        own = wide[:, self.chosen]
        rest = (np.delete(own, c, axis=1).min(axis=1) for c in range(N_CLUSTERS))
        return np.stack([np.minimum(wide, nearest[:, None]).sum(axis=0) for nearest in rest])
