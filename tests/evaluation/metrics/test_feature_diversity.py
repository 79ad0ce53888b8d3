"""Tests of diversity by features against the naive twin, and of refused features."""

import numpy as np
import pytest
import scipy.sparse
from naive.evaluation.metrics import beyond_accuracy as naive
from support.evaluation_case import KEY, dense_data, random_table

from fastfedrec.evaluation import FeatureDiversity, RandomHoldout, evaluate

# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csc_array, lambda features: features.tolist()])
def test_diversity_by_features_equals_naive(make):
    data = dense_data()
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    features = np.random.default_rng(1).integers(0, 3, (data.n_items, 4)) - 1.0
    features[:9] = 0.0  # items without features
    captured = {}

    def top(rankings):
        captured["lists"] = rankings.top(6)
        return 0.0

    metric = FeatureDiversity(6, make(features))
    result = evaluate(random_table(data), train, test, metrics=[metric, top], per_user=True)
    expected = [naive.feature_diversity(row, features) for row in captured["lists"].tolist()]
    np.testing.assert_allclose(result.per_user["diversity@6 by features"], expected, rtol=1e-12, atol=1e-12)
    assert result["diversity@6 by features"] == pytest.approx(np.mean(expected))


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0, 2.0], r"features must be numbers with a row for each item, got float64 of shape \(2,\)"),
        ([["a"], ["b"]], "features must be numbers with a row for each item"),
        ([[np.nan], [1.0]], "features must be finite, got NaN or infinity; fill missing features"),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FeatureDiversity(5, features)


def test_features_of_other_items_are_refused():
    data = dense_data()
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    with pytest.raises(ValueError, match="features must have a row for each item of train, 60, got 3"):
        evaluate(random_table(data), train, test, metrics=[FeatureDiversity(5, np.eye(3))])
    with pytest.raises(ValueError, match="k must be at least 2, got 1"):
        FeatureDiversity(1, np.eye(3))
