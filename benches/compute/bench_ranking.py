"""Negatives, ranks and best items at the size of MovieLens 1M, one thread, on each instruction set.

`time_` figures are ours.  `track_` figures are ratios to a peer, with alternating calls in one process, or to the
machine's peak rate.
"""

import random

import numpy as np
import scipy.sparse

from benches.core_suite import BEST, core
from benches.floors import SIZES, fastest, floor_seconds
from benches.ratios import INSTRUCTION_SETS, OnInstructionSet, microseconds, nan_without_peers, one_user, times_faster
from fastfedrec import Interactions, Key, ranking

N_USERS, N_ITEMS, N_INTERACTIONS = 6_040, 3_706, 1_000_000


def long_tailed_interactions():
    """Return interactions with power-law items, log-normal users, and merged duplicates."""
    rng = np.random.default_rng(0)
    weights = rng.lognormal(0, 1, N_USERS)
    users = rng.choice(N_USERS, N_INTERACTIONS, p=weights / weights.sum())
    items = (N_ITEMS * rng.random(N_INTERACTIONS) ** 2).astype(np.int64)
    matrix = scipy.sparse.coo_array((np.ones(N_INTERACTIONS, np.float32), (users, items)), shape=(N_USERS, N_ITEMS))
    return Interactions.from_scipy(matrix).binarize()


class OnEveryInstructionSet(OnInstructionSet):
    """Base of benchmarks with `instruction_set` as their first parameter."""

    unit = "times faster"

    def setup(self, *parameters):
        super().setup(*parameters)
        self.prepare(*parameters[1:])


@core("time_sample", instruction_set=BEST)
class SampleUnseen(OnEveryInstructionSet):
    """Draw 99 unseen items for each user."""

    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def prepare(self):
        self.data = long_tailed_interactions()
        self.rows = np.arange(N_USERS)
        for draw in (self._fastfedrec, self._python):
            for row, drawn in enumerate(draw()):
                seen = self.data.indices[self.data.indptr[row] : self.data.indptr[row + 1]]
                if len(set(drawn)) != 99 or not set(drawn).isdisjoint(seen.tolist()):
                    raise AssertionError(f"{draw.__name__} drew a seen item or one item twice for user {row}")

    def time_sample(self, _):
        self._fastfedrec()

    def track_times_python(self, _):
        return times_faster(self._python, self._fastfedrec)

    def _fastfedrec(self):
        return ranking.sample_unseen(self.data, self.rows, 99, key=Key.from_seed(0), purpose="bench", n_threads=1)[0]

    def _python(self):
        drawn = []
        for row in self.rows:
            seen = set(self.data.indices[self.data.indptr[row] : self.data.indptr[row + 1]].tolist())
            chosen = set()
            while len(chosen) < 99:
                item = random.randrange(N_ITEMS)
                if item not in seen:
                    chosen.add(item)
            drawn.append(chosen)
        return drawn


@nan_without_peers
class HeldOutRanks(OnEveryInstructionSet):
    """Rank of one score among 99, for each user."""

    param_names = ("instruction_set",)
    params = (INSTRUCTION_SETS,)

    def prepare(self):
        rng = np.random.default_rng(0)
        self.held_out = rng.standard_normal(N_USERS, dtype=np.float32).round(1)
        self.others = rng.standard_normal((N_USERS, 99), dtype=np.float32).round(1)
        self.counts = np.full(N_USERS, 99)
        np.testing.assert_array_equal(self._fastfedrec(), self._numpy())

    def time_rank(self, _):
        self._fastfedrec()

    def track_times_numpy(self, _):
        return times_faster(self._numpy, self._fastfedrec)

    def track_times_scikit_learn(self, _):
        """Compare the mean reciprocal rank, which is scikit-learn's average precision of one label without ties."""
        try:
            from sklearn.metrics import label_ranking_average_precision_score
        except ImportError:
            return np.nan  # n/a: scikit-learn is not installed
        scores = np.random.default_rng(1).standard_normal((N_USERS, 100))
        # Column 0 is the held-out item of each user.
        labels = np.zeros((N_USERS, 100), dtype=np.int64)
        labels[:, 0] = 1

        def ours():
            return (1 / ranking.held_out_ranks(scores[:, 0], scores[:, 1:], self.counts, n_threads=1)).mean()

        def theirs():
            return label_ranking_average_precision_score(labels, scores)

        np.testing.assert_allclose(ours(), theirs())
        return times_faster(theirs, ours)

    def _fastfedrec(self):
        return ranking.held_out_ranks(self.held_out, self.others, self.counts, n_threads=1)

    def _numpy(self):
        score = self.held_out[:, None]
        return 1 + (self.others > score).sum(axis=1) + (self.others == score).sum(axis=1) / 2


@core("time_rank", n_factors=[64], instruction_set=BEST)
class HeldOutRanksFactors(OnEveryInstructionSet):
    """Rank of one item among 99 by inner products, for each user, from float32 factors."""

    param_names = ("instruction_set", "n_factors")
    params = (INSTRUCTION_SETS, [5, 64])

    def prepare(self, n_factors):
        rng = np.random.default_rng(0)
        self.users = rng.standard_normal((N_USERS, n_factors), dtype=np.float32)
        self.items = rng.standard_normal((N_ITEMS, n_factors), dtype=np.float32)
        self.others, self.counts = ranking.sample_unseen(
            long_tailed_interactions(), np.arange(N_USERS), 99, key=Key.from_seed(0), purpose="bench", n_threads=1
        )
        self.held_out = rng.integers(0, N_ITEMS, N_USERS)
        ranks = self._fastfedrec()
        for peer in (self._numpy_loop, self._numpy_einsum):
            difference = np.abs(peer() - ranks)  # rounding changes few ranks, by one
            if difference.max() > 1 or (difference > 0).mean() > 0.05 or ranks.std() < 20:
                raise AssertionError(f"{peer.__name__} disagrees for {(difference > 0).sum()} users")

    def time_rank(self, *_):
        self._fastfedrec()

    def track_times_numpy_loop(self, *_):
        return times_faster(self._numpy_loop, self._fastfedrec)

    def track_times_numpy_einsum(self, *_):
        return times_faster(self._numpy_einsum, self._fastfedrec)

    def track_floor_share(self, instruction_set, n_factors):
        """Count the inner products of 100 items for each user, and the reads of their float32 factors from cache."""
        # We read 16-bit copies from the second-level cache, half of these bytes, so this is a floor for the peers.
        flops, read = 2 * 100 * N_USERS * n_factors, 4 * 100 * N_USERS * n_factors
        floor = floor_seconds(instruction_set, flops=flops, bytes_read=read, working_set=SIZES["second-level cache"])
        return floor / fastest(self._fastfedrec)

    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return ranking.held_out_ranks_factors(
            self.users, self.items, self.held_out, self.others, self.counts, n_threads=1
        )

    def _numpy_loop(self):
        ranks = np.empty(N_USERS)
        for u in range(N_USERS):
            score, negatives = self.items[self.held_out[u]] @ self.users[u], self.items[self.others[u]] @ self.users[u]
            ranks[u] = 1 + (negatives > score).sum() + (negatives == score).sum() / 2
        return ranks

    def _numpy_einsum(self):
        score = np.einsum("uf,uf->u", self.users, self.items[self.held_out])[:, None]
        negatives = np.einsum("uf,unf->un", self.users, self.items[self.others])
        return 1 + (negatives > score).sum(axis=1) + (negatives == score).sum(axis=1) / 2


@core("time_recommend", n_factors=[64], instruction_set=BEST)
@nan_without_peers
class RecommendTop10(OnEveryInstructionSet):
    """Ten best unseen items of every user, from float32 factors."""

    param_names = ("instruction_set", "n_factors")
    params = (INSTRUCTION_SETS, [16, 64, 128])

    def prepare(self, n_factors):
        rng = np.random.default_rng(0)
        self.data = long_tailed_interactions()
        self.users = rng.standard_normal((N_USERS, n_factors), dtype=np.float32)
        self.items = rng.standard_normal((N_ITEMS, n_factors), dtype=np.float32)
        self.seen = self.data.to_scipy()
        self._check(self._fastfedrec())

    def time_recommend(self, *_):
        self._fastfedrec()

    peakmem_recommend = time_recommend

    def track_times_implicit(self, *_):
        try:
            from implicit.cpu.topk import topk
        except ImportError:
            return np.nan  # n/a: implicit is not installed

        def implicit():
            return topk(self.items, self.users, 10, filter_query_items=self.seen, num_threads=1)[0]

        self._check(implicit())
        return times_faster(implicit, self._fastfedrec)

    def track_times_numpy(self, *_):
        self._check(self._numpy())
        return times_faster(self._numpy, self._fastfedrec)

    def track_floor_share(self, instruction_set, n_factors):
        """Count all inner products in single precision."""
        # Our kernel uses 8-bit copies where it can, so that this is a floor for the peers alone.
        floor = floor_seconds(instruction_set, flops=2 * N_USERS * N_ITEMS * n_factors)
        return floor / fastest(self._fastfedrec)

    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return ranking.recommend_factors(self.users, self.items, 10, seen=self.data, n_threads=1)[0]

    def _numpy(self):
        best = []
        # Blocks of 500 users bound the memory of the scores.
        for start in range(0, N_USERS, 500):
            scores = self.users[start : start + 500] @ self.items.T
            block = self.seen[start : start + 500]
            scores[np.repeat(np.arange(len(scores)), np.diff(block.indptr)), block.indices] = -np.inf
            top = np.argpartition(scores, -10, axis=1)[:, -10:]
            order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1)
            best.append(np.take_along_axis(top, order, axis=1))
        return np.concatenate(best)

    def _check(self, items):
        # The scores of recommended items must equal the best scores, since items with equal scores may be exchanged.
        scores = self.users[:200].astype(np.float64) @ self.items.T.astype(np.float64)
        scores[self.seen[:200].toarray() > 0] = -np.inf
        got = np.take_along_axis(scores, np.asarray(items[:200], dtype=np.int64), axis=1)
        np.testing.assert_allclose(got, -np.sort(-scores, axis=1)[:, :10], rtol=1e-4)


@core("time_top_k", n=[10], n_items=[N_ITEMS], instruction_set=BEST)
class TopK(OnEveryInstructionSet):
    """Best of given float32 scores: ten, held in registers, or more, from a list of candidates."""

    param_names = ("instruction_set", "n", "n_items")
    params = (INSTRUCTION_SETS, [10, 100, 1_000], [N_ITEMS, 26_744])

    def prepare(self, n, n_items):
        self.n = n
        self.scores = np.random.default_rng(0).standard_normal((7_000_000 // n_items, n_items), dtype=np.float32)
        np.testing.assert_array_equal(self._fastfedrec(), self._numpy())

    def time_top_k(self, *_):
        self._fastfedrec()

    def track_times_numpy(self, *_):
        return times_faster(self._numpy, self._fastfedrec)

    def _fastfedrec(self):
        return ranking.top_k(self.scores, self.n, n_threads=1)[1]

    def _numpy(self):
        best = np.argpartition(self.scores, -self.n, axis=1)[:, -self.n :]
        return -np.sort(-np.take_along_axis(self.scores, best, axis=1), axis=1)


class OneUser:
    """The best 10 of 1,000 items for one user with 16 factors in a call, without and with 30 seen items."""

    param_names = ("seen",)
    params = (("none", "matrix"),)

    def setup(self, seen):
        rng = np.random.default_rng(0)
        self.user, self.items = (rng.standard_normal((n, 16), dtype=np.float32) for n in (1, 1_000))
        self.seen = one_user() if seen == "matrix" else None
        np.testing.assert_array_equal(np.sort(self._fastfedrec()[0][0]), np.sort(self._numpy()))

    def time_recommend(self, seen):
        self._fastfedrec()

    def track_microseconds(self, seen):
        return microseconds(self._fastfedrec)[0]

    def track_times_numpy(self, seen):
        ours, theirs = microseconds(self._fastfedrec, self._numpy)
        return theirs / ours

    def track_floor_share(self, seen):
        """Count the kernel alone, of the same user without seen items."""
        starts, rows, failed = np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
        best = np.empty((1, 10), dtype=np.int32), np.empty((1, 10), dtype=np.float32)
        given = self.user, self.items, starts, np.empty(0, dtype=np.int32), rows
        ours, kernels = microseconds(
            self._fastfedrec, lambda: ranking._kernel.recommend_factors(*given, *best, failed, 1)
        )
        return kernels / ours

    track_microseconds.unit = "us"
    track_times_numpy.unit = "times faster"
    track_floor_share.unit = "share of floor"

    def _fastfedrec(self):
        return ranking.recommend_factors(self.user, self.items, 10, seen=self.seen, n_threads=1)

    def _numpy(self):
        scores = self.items @ self.user[0]
        if self.seen is not None:
            scores[self.seen.indices] = -np.inf
        best = np.argpartition(-scores, 10)[:10]
        return best[np.argsort(-scores[best])]
