"""Private prototypes on real data: the figures of their specification."""

import numpy as np
import pytest
from support.prototypes_case import KEY

from fastfedrec import Key, PrivatePrototypes
from fastfedrec.datasets import load_eicu, load_movielens, zip_regions
from fastfedrec.evaluation import RandomHoldout, evaluate_ratings, mean_percentile_rank


@pytest.fixture(scope="module")
def movielens():
    from conftest import find_data

    data = load_movielens(find_data("ml-1m.zip"))
    return data, zip_regions(data)


def figures(model, movielens, n_seeds=3, **options):
    data, regions = movielens
    results = []
    for seed in range(n_seeds):
        train, test = next(RandomHoldout(n=5, user_share=0.2).split(data, key=Key.from_seed(seed)))
        model.fit(train, entities=regions, key=Key.from_seed(100 + seed), **options)
        error = evaluate_ratings(model, test, metrics=["rmse"])["rmse"]
        results.append((error, mean_percentile_rank(model, test, seen=train)))
    return np.mean(results, axis=0)


# One mean needs one factor: with ten equal ones, the regularization of users removes more.
ONE_MEAN = {"n_prototypes": 1, "n_factors": 1, "regularization": 1.0, "delta": 1e-5}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("parameters", "rmse", "rank"),
    [
        ({"n_prototypes": 50, "n_factors": 20, "epsilon": None, "grouping": "kmeans"}, 0.907, 0.214),
        ({"n_prototypes": 50, "n_factors": 20, "epsilon": None}, 0.922, 0.219),
        (ONE_MEAN | {"epsilon": 1.0}, 1.018, 0.341),
        (ONE_MEAN | {"epsilon": 5.0}, 0.978, 0.243),
        (ONE_MEAN | {"epsilon": 10.0}, 0.963, 0.225),
    ],
    ids=str,
)
def test_movielens_figures_of_the_specification(movielens, parameters, rmse, rank):
    """Check that errors are within .01 of the design's prototype, as splits differ, and ranking is no worse."""
    error, ranking = figures(PrivatePrototypes(**parameters), movielens)
    assert error == pytest.approx(rmse, abs=0.01)
    assert ranking < rank + 0.01


@pytest.mark.nightly
def test_zero_filled_prototypes_rank_well_and_predict_badly(movielens):
    error, rank = figures(
        PrivatePrototypes(1, 10, 10.0, 1e-5, prototypes="zero_filled", value_range=(0.0, 5.0)), movielens, 1
    )
    assert error > 1.5
    assert rank < 0.16


@pytest.mark.nightly
def test_the_eicu_demo_end_to_end(data_path):
    """Check ten patients a hospital: exact means rank well, guaranteed ones badly, and a warning states it."""
    data = load_eicu(data_path("eicu-demo"), rows="stays")
    train, test = next(RandomHoldout(n=5, user_share=0.2).split(data, key=KEY))
    hospitals, patients = data.user_features["hospital"], data.user_features["patient"]
    options = {"entities": hospitals, "users": patients, "key": KEY}
    choices = {"value_range": (0.0, 20.0), "prototypes": "zero_filled", "max_rows_per_user": 2}
    exact = PrivatePrototypes(1, 5, None, **choices).fit(train, **options)
    assert mean_percentile_rank(exact, test, seen=train) < 0.06
    sizes = dict(zip(*(part.tolist() for part in np.unique(hospitals, return_counts=True)), strict=True))
    private = PrivatePrototypes(1, 1, 10.0, 1e-5, max_entries=60, **choices)
    with pytest.warns(UserWarning, match="186 of 186 entities send noise"):
        private.fit(train, public_sizes=sizes, **options)
    assert len(private.entity_ids_) == 186
    assert 10 < private.ledger_.epsilon("server", 1e-5) < 30
    assert mean_percentile_rank(private, test, seen=train) > 0.1
