"""Ratings and fits by SGD over blocks, for tests of its steps and of whole fits."""

import numpy as np

from fastfedrec import Key, sgd

ARRAYS = ("user_biases", "item_biases", "user_factors", "item_factors")


def rating_list(n_users, n_items, n_ratings, seed=0, high=5):
    """Return skewed ratings with duplicates, in which some users and items have none."""
    rng = np.random.default_rng(seed)
    users = (n_users * rng.random(n_ratings) ** 2).astype(np.int64)
    items = (n_items * rng.random(n_ratings) ** 2).astype(np.int64)
    return users, items, rng.integers(0, high + 1, n_ratings) / (high if high == 1 else 1)


def fit(data, n_users=30, n_items=20, **arguments):
    arguments = {"key": Key.from_seed(1), "n_threads": 1, "dtype": np.float64} | arguments
    return sgd.fit_factors(*data, n_users=n_users, n_items=n_items, **arguments)


def assert_same_bits(a, b):
    for name in (*ARRAYS, "train_losses"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
    assert (a.epoch, a.stopped) == (b.epoch, b.stopped)


def biased_square(prediction, rating):
    error = prediction - rating + 1
    return error * error / 2, error


def refuses_fives(prediction, rating):
    if rating == 5 and prediction > 1:  # accepts the start, so that epochs are refused
        raise ArithmeticError("five")
    return (prediction - rating) ** 2 / 2, prediction - rating
