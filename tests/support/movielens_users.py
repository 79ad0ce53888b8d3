"""The protocol in which systems for honest epsilons are compared: MovieLens 1M's 1,000 most rated items."""

import numpy as np
from conftest import find_data

from fastfedrec import Key
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate


def users_of_the_thousand():
    """Rows of the users with at least 20 of the items."""
    data = load_movielens(find_data("ml-1m.zip")).binarize().top_items(1000)
    return data.select_users(np.flatnonzero(data.interactions_per_user() >= 20))


def leave_one_out_users():
    """Their train and test rows."""
    return next(LeaveOneOut().split(users_of_the_thousand(), key=Key.from_seed(1)))


def split_after_resampling(n_users, seed=5):
    """Users drawn with replacement, each with 70% of its row, of which one item is held out: others drawn of the same
    person may have it."""
    data, rng = users_of_the_thousand(), np.random.default_rng(seed)
    rows = data._take_users(rng.integers(0, data.n_users, n_users))
    rows = rows.keep_interactions(rng.random(rows.n_interactions) < 0.7)
    numbers = np.arange(n_users)
    rows = rows._replace(user_ids=numbers, global_user_ids=numbers.astype(np.uint64))
    rows = rows.select_users(np.flatnonzero(rows.interactions_per_user() > 1))
    return next(LeaveOneOut().split(rows, key=Key.from_seed(seed)))


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
