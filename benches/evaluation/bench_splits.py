"""Splits, and the evaluation of a factor model including its scores."""

import numpy as np
import scipy.sparse

from benches.core_suite import core
from benches.floors import floor_seconds
from benches.ratios import keystream_seconds, with_ratios
from fastfedrec import Interactions, Key, hardware
from fastfedrec.evaluation import KFold, LeaveOneOut, RandomHoldout, Sampled, TemporalSplit, UserHoldout, evaluate

N_ITEMS, N_FACTORS = 1_000, 5


def random_interactions(n_users):
    """Return interactions with about 90 items for each user."""
    rng = np.random.default_rng(0)
    pairs = np.repeat(np.arange(n_users), 90), (N_ITEMS * rng.random(90 * n_users) ** 2).astype(np.int64)
    return Interactions.from_scipy(
        scipy.sparse.coo_array((np.ones(90 * n_users, np.float32), pairs), shape=(n_users, N_ITEMS))
    ).binarize()


class FactorModel:
    """A model with inner products as scores, and the look-up of ids of every model."""

    def __init__(self, data):
        rng = np.random.default_rng(0)
        self.data = data
        self.users = rng.standard_normal((data.n_users, N_FACTORS), dtype=np.float32)
        self.items = rng.standard_normal((data.n_items, N_FACTORS), dtype=np.float32)

    def score(self, user_ids, item_ids):
        return np.einsum(
            "ij,ij->i", self.users[self.data.user_index(user_ids)], self.items[self.data.item_index(item_ids)]
        )


class FactorModelThatShowsThem(FactorModel):
    def factors(self, user_ids, item_ids):
        return self.users[self.data.user_index(user_ids)], self.items[self.data.item_index(item_ids)]


def _floor(case):
    # Each user takes a word for each of 99 drawn items, or 100 inner products; the larger time counts.
    n = case.data.n_users
    return max(keystream_seconds(99 * n), floor_seconds(hardware.instruction_set(), flops=2 * 100 * n * N_FACTORS))


@core("time_evaluate", impl=["fastfedrec_factors"], n_users=[6_000])
@with_ratios("time_evaluate", floor=_floor)
class Evaluate:
    """Ranks among 99 negatives by scores or by factors; "numpy_loop" draws and scores one user at a time."""

    param_names = ("impl", "n_users")
    params = (("fastfedrec", "fastfedrec_factors", "numpy_loop"), (6_000, 50_000))

    def setup(self, impl, n_users):
        self.data = random_interactions(n_users)
        self.train, self.test = next(LeaveOneOut().split(self.data, key=Key.from_seed(0)))
        self.model = (FactorModelThatShowsThem if impl == "fastfedrec_factors" else FactorModel)(self.data)
        hit_rate = self._run(impl)
        if abs(hit_rate - 0.1) > 6 * np.sqrt(0.09 / n_users):  # a random model has each rank of 100 equally often
            raise AssertionError(f"{impl} found a hit rate of {hit_rate} for a random model")

    def time_evaluate(self, impl, n_users):
        self._run(impl)

    peakmem_evaluate = time_evaluate

    def _run(self, impl):
        if impl != "numpy_loop":
            return evaluate(
                self.model, self.train, self.test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(0),
                n_threads=1,
            )["hr@10"]  # fmt: skip
        rng = np.random.default_rng(0)
        hits = 0
        for user in range(self.data.n_users):
            seen = self.data.indices[self.data.indptr[user] : self.data.indptr[user + 1]]
            unseen = np.setdiff1d(np.arange(N_ITEMS), seen, assume_unique=True)
            items = np.append(rng.choice(unseen, 99, replace=False), self.test.indices[user])
            scores = self.model.items[items] @ self.model.users[user]
            # Ties count half, as in `held_out_ranks`.
            hits += 1 + (scores[:-1] > scores[-1]).sum() + (scores[:-1] == scores[-1]).sum() / 2 <= 10
        return hits / self.data.n_users


class Split:
    """Splits by one or a fifth of each user's interactions, by time, by a fifth of the users, and in five folds."""

    def setup(self):
        self.data = random_interactions(50_000)
        times = np.random.default_rng(1).integers(0, 10**9, self.data.n_interactions)
        self.timed = self.data._replace(timestamps=times)
        lengths = self.data.interactions_per_user()
        if (next(LeaveOneOut().split(self.data, key=Key.from_seed(0))).test.interactions_per_user() != 1).any():
            raise AssertionError("LeaveOneOut did not hold out one interaction of each user")
        held_out = next(RandomHoldout(share=0.2).split(self.data, key=Key.from_seed(0))).test.interactions_per_user()
        if (abs(held_out - 0.2 * lengths) >= 1).any():
            raise AssertionError("RandomHoldout did not hold out a fifth of each user's interactions")
        train, test = next(TemporalSplit(share=0.2).split(self.timed))
        if train.timestamps.max() >= test.timestamps.min():
            raise AssertionError("TemporalSplit did not divide by time")
        if next(UserHoldout(0.2).split(self.data, key=Key.from_seed(0))).test.n_users != 10_000:
            raise AssertionError("UserHoldout did not hold out a fifth of the users")

    def time_leave_one_out(self):
        next(LeaveOneOut().split(self.data, key=Key.from_seed(0)))

    def time_random_split(self):
        next(RandomHoldout(share=0.2).split(self.data, key=Key.from_seed(0)))

    def time_temporal_split(self):
        next(TemporalSplit(share=0.2).split(self.timed))

    def time_user_holdout(self):
        next(UserHoldout(0.2).split(self.data, key=Key.from_seed(0)))

    def time_k_fold(self):
        for _ in KFold(5).split(self.data, key=Key.from_seed(0)):
            pass
