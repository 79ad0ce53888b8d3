"""Ranks of held-out items among all unseen ones, at the size of MovieLens 1M, one thread, on each instruction set."""

import numpy as np

from benches.compute.bench_ranking import N_ITEMS, N_USERS, OnEveryInstructionSet, long_tailed_interactions
from benches.floors import fastest, floor_seconds
from benches.ratios import INSTRUCTION_SETS, times_faster
from fastfedrec.compute.ranks import rank_counts_factors


class RankCountsFactors(OnEveryInstructionSet):
    """Ranks of a held-out fifth of each user's interactions among all unseen items, from float32 factors."""

    param_names = ("instruction_set", "n_factors")
    params = (INSTRUCTION_SETS, [16, 64])

    def prepare(self, n_factors):
        data, rng = long_tailed_interactions(), np.random.default_rng(0)
        held_out = rng.random(data.n_interactions) < 0.2
        self.train, self.test = data.keep_interactions(~held_out), data.keep_interactions(held_out)
        self.users = rng.standard_normal((N_USERS, n_factors), dtype=np.float32)
        self.items = rng.standard_normal((N_ITEMS, n_factors), dtype=np.float32)
        difference = np.abs(self._numpy() - self._fastfedrec())  # rounding changes few ranks, by one
        if difference.max() > 1 or (difference > 0).mean() > 0.05:
            raise AssertionError(f"{(difference > 0).sum()} ranks differ from NumPy's")

    def time_rank_counts(self, *_):
        self._fastfedrec()

    def track_times_numpy(self, *_):
        return times_faster(self._numpy, self._fastfedrec, repetitions=2)

    def track_floor_share(self, instruction_set, n_factors):
        """Count the inner products of all users and items, without the comparisons."""
        return floor_seconds(instruction_set, flops=2 * N_USERS * N_ITEMS * n_factors) / fastest(self._fastfedrec)

    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return rank_counts_factors(self.users, self.items, self.test, seen=self.train, n_threads=1)[0]

    def _numpy(self):
        """Rank by a sort of each user's unseen scores."""
        above = []
        for u in range(N_USERS):
            scores = self.items @ self.users[u]
            test_scores = scores[self.test.indices[self.test.indptr[u] : self.test.indptr[u + 1]]]
            scores[self.train.indices[self.train.indptr[u] : self.train.indptr[u + 1]]] = -np.inf
            above.append(N_ITEMS - np.searchsorted(np.sort(scores), test_scores, side="right"))
        return np.concatenate(above)
