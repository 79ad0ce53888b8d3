"""Averages of several fits on one test, against a naive mean."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from support.significance import ALPHA

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import compare, evaluate
from fastfedrec.evaluation.metrics.averages import average_fits
from fastfedrec.evaluation.metrics.user_values import UserValues

METRICS = ["ndcg@5", "recall@3", "coverage@5"]


class Scores:
    def __init__(self, table):
        self.table = table

    def score(self, user_ids, item_ids):
        return self.table[np.asarray(user_ids), np.asarray(item_ids)]

    def predict(self, user_ids, item_ids):
        return self.score(user_ids, item_ids)


def fits(metrics, n=3, n_users=30, n_items=12):
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((n_users, n_items))
    ids = {"item_ids": range(n_items), "user_ids": range(n_users)}
    test = Interactions.from_arrays(*np.nonzero(taste > 1), values=taste[taste > 1], **ids)
    train = Interactions.from_arrays(*np.nonzero(taste < -1), **ids)
    return [
        evaluate(Scores(taste + rng.standard_normal(taste.shape)), train, test, metrics=metrics, per_user=True)
        for _ in range(n)
    ]


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_values_are_means_over_fits_for_each_user_and_in_all():
    results = fits(METRICS)
    average = average_fits(results)
    for name in METRICS:
        assert average[name] == pytest.approx(sum(result[name] for result in results) / 3, abs=1e-12)
    by_user = [result.per_user["ndcg@5"] for result in results]
    assert average.per_user["ndcg@5"] == pytest.approx(sum(by_user) / 3, abs=1e-12)
    assert average.n_users == results[0].n_users


def test_the_rmse_is_the_root_of_the_mean_squared_error_of_all_fits():
    results = fits(["rmse"])
    expected = np.sqrt(np.mean([result["rmse"] ** 2 for result in results]))
    assert average_fits(results)["rmse"] == pytest.approx(expected, rel=1e-12)
    # Negative control: the mean of the roots is another figure.
    assert np.mean([result["rmse"] for result in results]) != pytest.approx(expected, rel=1e-4)


def test_a_fit_without_a_value_for_a_user_does_not_count_for_this_user():
    first, second = fits(["ndcg@5"], n=2)
    undefined = second.user_values["ndcg@5"].values.copy()
    undefined[3] = np.nan
    second = replace(second, user_values={"ndcg@5": UserValues.of_defined(undefined)})
    average = average_fits([first, second]).user_values["ndcg@5"]
    assert average.values[3] == pytest.approx(first.per_user["ndcg@5"][3])
    assert average.values[4] == pytest.approx((first.per_user["ndcg@5"][4] + undefined[4]) / 2)
    assert average.weights.tolist()[2:5] == [1.0, 0.5, 1.0]


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_one_fit_is_its_own_average_and_equal_fits_change_no_value():
    [result] = fits(METRICS, n=1)
    assert average_fits([result]) is result
    assert dict(average_fits([result, result])) == pytest.approx(dict(result), abs=1e-12)


def test_an_average_is_compared_like_a_result():
    results = fits(METRICS)
    comparison = compare({"average": average_fits(results), "first": results[0]}, key=Key.from_seed(1))
    assert comparison.results["average"]["ndcg@5"] == average_fits(results)["ndcg@5"]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_results_of_other_tests_are_refused():
    with pytest.raises(ValueError, match="at least one result, got none"):
        average_fits([])
    with pytest.raises(ValueError, match=r"results\[1\] differs from results\[0\]; evaluate all fits with the same"):
        average_fits([*fits(METRICS, n=1), *fits(METRICS, n=1, n_users=31)])
    with pytest.raises(ValueError, match=r"results\[1\] differs"):
        average_fits([*fits(METRICS, n=1), *fits(METRICS[:2], n=1)])
    with pytest.raises(TypeError, match=r"results\[0\]"):
        average_fits([{"ndcg@5": 1.0}])


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_fit():
    [result] = fits(["ndcg@5"], n=1)
    return result


def noisy_average(result, rng, n_fits, n_users=40):
    """Return the average of fits with an expected metric of 0: users and fits deviate by .1, a fit's user by .2."""
    users = rng.normal(0, 0.1, n_users)

    def fit():
        values = UserValues(users + rng.normal(0, 0.1) + rng.normal(0, 0.2, n_users))
        return replace(result, n_users=n_users, means={"ndcg@5": values.mean}, user_values={"ndcg@5": values})

    return average_fits([fit() for _ in range(n_fits)])


@pytest.mark.slow
def test_intervals_of_averages_cover_users_and_fits(one_fit):
    rng, n = np.random.default_rng(4), 1500
    averages = [noisy_average(one_fit, rng, 3) for _ in range(n)]

    def n_covered(results):
        intervals = [r.intervals(n_resamples=400, key=Key.from_seed(i))["ndcg@5"] for i, r in enumerate(results)]
        return sum(low <= 0 <= high for low, high in intervals)

    assert binomtest(n_covered(averages), n, 0.95, alternative="less").pvalue > ALPHA
    # Negative control: the bootstrap over users alone misses the truth far more often.
    assert binomtest(n_covered([replace(a, fits=()) for a in averages]), n, 0.95, alternative="less").pvalue < ALPHA


@pytest.mark.slow
def test_paired_tests_of_averages_cover_users_and_fits(one_fit):
    rng, n = np.random.default_rng(5), 400
    pairs = [(noisy_average(one_fit, rng, 3), noisy_average(one_fit, rng, 3)) for _ in range(n)]

    def n_rejected(pairs):
        comparisons = [
            compare({"a": a, "b": b}, n_permutations=200, n_resamples=1, key=Key.from_seed(i))
            for i, (a, b) in enumerate(pairs)
        ]
        return sum(c.tests[0].p_value < 0.05 for c in comparisons)

    assert binomtest(n_rejected(pairs), n, 0.05, alternative="greater").pvalue > ALPHA
    # Negative control: without the noise of fits, equal models differ significantly far too often.
    single = [(replace(a, fits=()), replace(b, fits=())) for a, b in pairs]
    assert binomtest(n_rejected(single), n, 0.05, alternative="greater").pvalue < ALPHA
