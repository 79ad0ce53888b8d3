"""Ratings of any scale: without an epsilon, which needs a grid, only the two ends of the scale matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec import BiasedMF, FedRec, Interactions, Key, LaplaceRRSVD
from fastfedrec.evaluation import RandomHoldout
from fastfedrec.systems.fedgnn.model import FedGNN
from fastfedrec.systems.rating_svd.baselines import GlobalMean, ItemMean, RatingItemKNN, UserMean

KEY = Key.from_seed(1)
MF = {"n_factors": 2, "n_epochs": 3}
MODELS = {
    "global mean": GlobalMean,
    "user mean": UserMean,
    "item mean": ItemMean,
    "item knn": lambda grid: RatingItemKNN(grid=grid),
    "biased mf": lambda grid: BiasedMF(grid, **MF),
    "no variant": lambda grid: LaplaceRRSVD(None, grid=grid, **MF),
}


def make(name, grid):
    return MODELS[name](grid=grid) if isinstance(MODELS[name], type) else MODELS[name](grid)


def jester(n_users=120, n_items=20, dtype=np.float64):
    """Return distinct ratings from -10 to 10."""
    rng = np.random.default_rng(7)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.6)
    values = rng.normal(0, 3, n_items)[items] + rng.normal(0, 2, n_users)[users] + rng.normal(0, 1, len(users))
    return Interactions.from_arrays(users, items, np.clip(values, -10, 10).astype(dtype))


@pytest.mark.parametrize("name", MODELS)
def test_ends_alone_count(name):
    data = jester()
    ids = np.repeat(data.user_ids, data.interactions_per_user()), data.item_ids[data.indices]
    predictions = make(name, [-10, 10]).fit(data, key=KEY).predict(*ids)  # no warning is raised
    for grid in (np.linspace(-10, 10, 32), np.linspace(-10, 10, 101), (-10, 0.123, 10)):
        np.testing.assert_array_equal(make(name, grid).fit(data, key=KEY).predict(*ids), predictions)
    assert len(np.unique(data.values)) > 1000
    # The ratings are the same on a scale of 0 to 100.
    shifted = data._replace(values=data.values + 50)
    other = make(name, range(101)).fit(shifted, key=KEY).predict(*ids)
    np.testing.assert_allclose(np.clip(other - 50, -10, 10), predictions, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_ratings_outside_the_ends_count_as_the_nearest_end(name):
    data = jester()
    clipped = data._replace(values=np.clip(data.values, -4, 4))
    with pytest.warns(
        UserWarning, match=r"ratings are not from -4 to 4, the ends of the grid, and count as the nearest"
    ):
        model = make(name, [-4, 4]).fit(data, key=KEY)
    expected = make(name, [-4, 4]).fit(clipped, key=KEY)
    users = data.user_ids[:20]
    np.testing.assert_array_equal(model.predict(users, data.item_ids), expected.predict(users, data.item_ids))


@pytest.mark.parametrize("name", ["biased mf", "no variant"])
def test_new_users_are_served_by_their_unchanged_ratings(name):
    data = jester()
    model = make(name, [-10, 10]).fit(data, key=KEY)
    here = data.select_users(np.arange(5))
    rounded = here._replace(values=np.round(here.values / 5) * 5)
    served, other = (model.with_users(of).user_biases_ for of in (here, rounded))
    assert not np.allclose(served, other)


@given(st.lists(st.floats(1, 5), min_size=2, max_size=9))
@settings(deadline=None)
def test_the_mean_is_that_of_the_ratings(values):
    data = Interactions.from_arrays(np.zeros(len(values), int), range(len(values)), [*values[:-1], 1.5])
    np.testing.assert_allclose(GlobalMean().fit(data).mean_, data.values_or_ones().mean(), rtol=1e-12)


# ---- the programs of the report --------------------------------------------------------------------------------------


def test_a_mean_of_two_and_one_of_three():
    data = Interactions.from_arrays([1, 2], [7, 8], [2.534, 4.752])
    assert GlobalMean().fit(data).predict([1], [8]).round(3) == 3.643
    data = Interactions.from_arrays([1, 2, 3], [7, 8, 9], [1.0, 2.0, 3.0])
    assert GlobalMean(grid=[-10, 10]).fit(data).predict([1], [8]) == 2.0


def test_item_means_of_jester_are_plain_means():
    train, test = next(RandomHoldout(share=0.2).split(jester(400), key=KEY))
    rmse = ItemMean(grid=[-10, 10]).fit(train).evaluate(test)["rmse"]
    sums = np.bincount(train.indices, train.values, minlength=train.n_items)
    plain = sums / train.interactions_per_item()
    assert abs(rmse - np.sqrt(np.mean((plain[test.indices] - test.values) ** 2))) < 0.02


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [*MODELS, "published", "fedrec", "fedgnn"])
def test_ratings_of_either_type_are_on_their_grid(name, dtype):
    # In float32, .7 is smaller and .1 larger than in float64.
    grid = [0.1, 0.2, 0.4, 0.6, 0.7]
    values = np.random.default_rng(1).choice(grid, 300).astype(dtype)
    data = Interactions.from_arrays(np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30), values)
    assert data.values.dtype == dtype
    special_models = {
        "published": LaplaceRRSVD("published", grid=grid, **MF),
        "fedrec": FedRec(n_factors=2, n_rounds=1, grid=grid),
        "fedgnn": FedGNN("published", n_factors=2, n_rounds=1, grid=grid),
    }
    # A warning would be an error here.
    (special_models.get(name) or make(name, grid)).fit(data, key=KEY)


def test_reports_need_a_short_grid_still():
    with pytest.raises(ValueError, match="grid must be 2 to 32 increasing numbers, got 101"):
        GlobalMean(epsilon=1.0, grid=range(101)).fit(jester())
    with pytest.raises(ValueError, match="grid must be 2 to 65536 increasing numbers, got 1"):
        GlobalMean(grid=[3]).fit(jester())
