"""Metrics over all unseen items of all users at the size of MovieLens 1M, against implicit, and intervals."""

import numpy as np
import threadpoolctl

from benches.compute.bench_ranking import N_ITEMS, N_USERS, long_tailed_interactions
from benches.core_suite import core
from benches.ratios import nan_without_peers, peer, times_faster
from fastfedrec import Key
from fastfedrec.evaluation import evaluate

METRICS = ("recall@10", "precision@10", "hit@10", "ndcg@10", "map@10", "mrr@10", "auc")


class Factors:
    """A model with public factors."""

    def __init__(self, data, n_factors):
        rng = np.random.default_rng(0)
        self.data = data
        self.users = rng.standard_normal((N_USERS, n_factors), dtype=np.float32)
        self.items = rng.standard_normal((N_ITEMS, n_factors), dtype=np.float32)

    def factors(self, user_ids, item_ids):
        return self.users[self.data.user_index(user_ids)], self.items[self.data.item_index(item_ids)]


@core("time_evaluate", n_factors=[16], n_threads=[1])
@nan_without_peers
class EvaluateAll:
    """Seven metrics of a held-out fifth of each user's interactions among all unseen items."""

    param_names = ("n_factors", "n_threads")
    params = ([16, 64], [1, 2])

    def setup(self, n_factors, n_threads):
        data = long_tailed_interactions()
        held_out = np.random.default_rng(0).random(data.n_interactions) < 0.2
        self.train, self.test = data.keep_interactions(~held_out), data.keep_interactions(held_out)
        self.model, self.n_threads = Factors(data, n_factors), n_threads
        result = self._fastfedrec()
        if result.n_interactions != self.test.n_interactions or abs(result["auc"] - 0.5) > 0.01:
            raise AssertionError(f"random factors have {result!r}")

    def time_evaluate(self, *_):
        self._fastfedrec()

    peakmem_evaluate = time_evaluate

    def track_times_implicit(self, n_factors, n_threads):
        """Compare with implicit's function for four metrics of the first ten items, on the same factors."""
        theirs = self._implicit()
        ours, peer_metrics = self._fastfedrec(), theirs()
        for name in ("map", "ndcg"):  # these have equal definitions; rounding changes few ranks
            if abs(peer_metrics[name] - ours[f"{name}@10"]) > 1e-3 * ours[f"{name}@10"]:
                raise AssertionError(f"implicit has {name} {peer_metrics[name]}, and we {ours[f'{name}@10']}")
        return times_faster(theirs, self._fastfedrec, repetitions=3)

    track_times_implicit.unit = "times faster"

    def _fastfedrec(self):
        return evaluate(self.model, self.train, self.test, metrics=METRICS, n_threads=self.n_threads)

    def _implicit(self):
        with peer("implicit"):
            from implicit.cpu.als import AlternatingLeastSquares
            from implicit.evaluation import ranking_metrics_at_k
        with threadpoolctl.threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(factors=self.model.users.shape[1], num_threads=self.n_threads)
        model.user_factors, model.item_factors = self.model.users, self.model.items
        train, test = self.train.to_scipy(), self.test.to_scipy()

        def run():
            with threadpoolctl.threadpool_limits(1, "blas"):  # implicit recommends it, since it has its own threads
                return ranking_metrics_at_k(model, train, test, K=10, show_progress=False, num_threads=self.n_threads)

        return run


class Intervals:
    """Intervals of seven metrics from a thousand resamples of 6,040 users."""

    def setup(self):
        case = EvaluateAll()
        case.setup(16, 1)
        self.result = case._fastfedrec()
        low, high = self.result.intervals(key=Key.from_seed(0))["ndcg@10"]
        if not low < self.result["ndcg@10"] < high:
            raise AssertionError("the interval does not contain the mean")

    def time_intervals(self):
        self.result.intervals(key=Key.from_seed(0))
