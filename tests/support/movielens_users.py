"""The protocol for comparing systems at honest epsilons: MovieLens 1M's 1,000 most rated items."""

from conftest import find_data

from fastfedrec import Key
from fastfedrec.datasets import load_movielens
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.studies.reproduce import movielens_users


def users_of_the_thousand():
    """Return rows of the users with at least 20 of the items."""
    return movielens_users.users_of_the_thousand(load_movielens(find_data("ml-1m.zip")))


def leave_one_out_users():
    """Return their train and test rows."""
    return next(LeaveOneOut().split(users_of_the_thousand(), key=Key.from_seed(1)))


def split_after_resampling(n_users, seed=5):
    """Return users drawn with replacement, with one held-out item each, which a duplicate of the user may have."""
    draw = movielens_users.PROTOCOLS[movielens_users.RESAMPLED_FIRST]
    train, _, test = draw(users_of_the_thousand(), n_users, Key.from_seed(seed))
    return train, test


def resampled(train, test, n_users, seed=5):
    """Return users drawn with replacement, each with 70% of its row."""
    return movielens_users.resampled(train, test, n_users=n_users, key=Key.from_seed(seed))


def hit_ratio(model, train, test):
    return evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99), key=Key.from_seed(1))["hr@10"]
