"""The protocol in which systems for honest epsilons are compared: MovieLens 1M's 1,000 most rated items."""

import numpy as np
from conftest import find_data

from fastfedrec import Key
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate


def leave_one_out_users():
    """Train and test rows of the users with at least 20 of the items."""
    data = load_movielens(find_data("ml-1m.zip")).binarize().top_items(1000)
    data = data.select_users(np.flatnonzero(data.interactions_per_user() >= 20))
    return next(LeaveOneOut().split(data, key=Key.from_seed(1)))


def resampled(train, test, n_users, seed=5):
    """Users drawn with replacement, each with 70% of its row."""
    rng = np.random.default_rng(seed)
    who, numbers = rng.integers(0, train.n_users, n_users), np.arange(n_users)

    def rename(data):
        return data._replace(user_ids=numbers, global_user_ids=numbers.astype(np.uint64))

    rows = train._take_users(who)
    return rename(rows.keep_interactions(rng.random(rows.n_interactions) < 0.7)), rename(test._take_users(who))


def hit_ratio(model, train, test):
    return evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(1))["hr@10"]
