"""Negatives, ranks and best items at the size of MovieLens 1M, one thread."""

import random

import numpy as np
import scipy.sparse

from fastfedrec import Interactions, Key
from fastfedrec.ranking import held_out_ranks, recommend_factors, sample_unseen

N_USERS, N_ITEMS, N_INTERACTIONS = 6_040, 3_706, 1_000_000


def long_tailed_interactions():
    """Items by a power law, users by a log-normal law, duplicates merged."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 1, N_USERS)
    users = rng.choice(N_USERS, N_INTERACTIONS, p=weights / weights.sum())
    items = (N_ITEMS * rng.random(N_INTERACTIONS) ** 2).astype(np.int64)
    matrix = scipy.sparse.coo_array((np.ones(N_INTERACTIONS, np.float32), (users, items)), shape=(N_USERS, N_ITEMS))
    return Interactions.from_scipy(matrix).binarize()


class SampleUnseen:
    """99 unseen items for each user."""

    param_names = ("impl",)
    params = (("fastfedrec", "python"),)

    def setup(self, impl):
        self.data = long_tailed_interactions()
        self.rows = np.arange(N_USERS)
        for row, drawn in zip(self.rows[:50], self._run(impl, self.rows[:50]), strict=True):
            seen = self.data.indices[self.data.indptr[row] : self.data.indptr[row + 1]]
            if len(set(drawn)) != 99 or set(drawn) & set(seen.tolist()):
                raise AssertionError(f"{impl} drew a seen item or one item twice for user {row}")

    def time_sample(self, impl):
        self._run(impl, self.rows)

    def _run(self, impl, rows):
        if impl == "fastfedrec":
            return sample_unseen(self.data, rows, 99, key=Key.from_seed(0), purpose="bench", n_threads=1)[0]
        drawn = []
        for row in rows:
            seen = set(self.data.indices[self.data.indptr[row] : self.data.indptr[row + 1]].tolist())
            chosen = set()
            while len(chosen) < 99:
                item = random.randrange(N_ITEMS)
                if item not in seen:
                    chosen.add(item)
            drawn.append(chosen)
        return drawn


class HeldOutRanks:
    """The rank of one score among 99, for each user."""

    param_names = ("impl",)
    params = (("fastfedrec", "numpy", "numpy_loop"),)

    def setup(self, impl):
        rng = np.random.default_rng(0)
        self.held_out = rng.standard_normal(N_USERS, dtype=np.float32).round(1)
        self.others = rng.standard_normal((N_USERS, 99), dtype=np.float32).round(1)
        self.counts = np.full(N_USERS, 99)
        np.testing.assert_array_equal(self._run(impl), self._run("numpy"))

    def time_rank(self, impl):
        self._run(impl)

    def _run(self, impl):
        if impl == "fastfedrec":
            return held_out_ranks(self.held_out, self.others, self.counts, n_threads=1)
        if impl == "numpy":
            score = self.held_out[:, None]
            return 1 + (self.others > score).sum(axis=1) + (self.others == score).sum(axis=1) / 2
        return [
            1 + (others > score).sum() + (others == score).sum() / 2
            for score, others in zip(self.held_out, self.others, strict=True)
        ]


class RecommendTop10:
    """The ten best unseen items of every user, from float32 factors."""

    param_names = ("impl", "n_factors")
    params = (("fastfedrec", "argpartition", "implicit"), (16, 64, 128))

    def setup(self, impl, n_factors):
        if impl == "implicit":
            try:
                import implicit.cpu.topk  # noqa: F401
            except ImportError as error:
                raise NotImplementedError("implicit is not installed") from error
        rng = np.random.default_rng(0)
        self.data = long_tailed_interactions()
        self.users = rng.standard_normal((N_USERS, n_factors), dtype=np.float32)
        self.items = rng.standard_normal((N_ITEMS, n_factors), dtype=np.float32)
        self.seen = self.data.to_scipy()
        scores = self.users[:200].astype(np.float64) @ self.items.T.astype(np.float64)
        scores[self.seen[:200].toarray() > 0] = -np.inf
        expected = -np.sort(-scores, axis=1)[:, :10]
        got = np.take_along_axis(scores, np.asarray(self._run(impl)[:200], dtype=np.int64), axis=1)
        np.testing.assert_allclose(got, expected, rtol=1e-4)

    def time_recommend(self, impl, n_factors):
        self._run(impl)

    def peakmem_recommend(self, impl, n_factors):
        self._run(impl)

    def _run(self, impl):
        if impl == "fastfedrec":
            return recommend_factors(self.users, self.items, 10, seen=self.data, n_threads=1)[0]
        if impl == "implicit":
            from implicit.cpu.topk import topk

            return topk(self.items, self.users, 10, filter_query_items=self.seen, num_threads=1)[0]
        best = []
        for start in range(0, N_USERS, 500):
            scores = self.users[start : start + 500] @ self.items.T
            block = self.seen[start : start + 500]
            scores[np.repeat(np.arange(len(scores)), np.diff(block.indptr)), block.indices] = -np.inf
            top = np.argpartition(scores, -10, axis=1)[:, -10:]
            order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1)
            best.append(np.take_along_axis(top, order, axis=1))
        return np.concatenate(best)
