"""Tests of relevance: values of 0 or below are never relevant, and a threshold must be exceeded."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evaluation_case import KEY

from fastfedrec import Interactions, Popularity
from fastfedrec.cli.main import main
from fastfedrec.evaluation import Sampled, compare, evaluate, mean_percentile_rank
from fastfedrec.evaluation.metrics.user_values import UserValues
from fastfedrec.systems.rating_svd.baselines import GlobalMean

METRICS = ["recall@2", "ndcg", "mpr", "auc"]
TRAIN = pd.DataFrame({"user": [1, 2, 3], "item": [11, 10, 12]})
TEST = TRAIN.assign(item=[10, 12, 11])


class LowIdsFirst:
    """Scores that do not depend on the user."""

    def score(self, user_ids, item_ids):
        return -item_ids


def held_out(values):
    """Four users with three test items each, over eight items."""
    items = np.array([[1, 3, 4], [0, 2, 5], [2, 3, 7], [1, 6, 7]])
    test = Interactions.from_arrays(np.repeat(range(4), 3), items.ravel(), values, user_ids=range(4), item_ids=range(8))
    train = Interactions.from_arrays(range(4), [0, 1, 5, 2], user_ids=range(4), item_ids=range(8))
    return train, test


@given(
    st.lists(st.sampled_from([0.0, 0.2, 1.0, 2.5, 4.0]), min_size=12, max_size=12), st.sampled_from([None, 0, 0.2, 1])
)
@settings(deadline=None)
def test_items_that_are_not_relevant_might_as_well_not_be_in_the_test(values, threshold):
    train, test = held_out(values)
    is_relevant = np.array(values) > (threshold or 0)
    if not is_relevant.any():
        with pytest.raises(ValueError, match=r"test must have an interaction to rank, .*'not_relevant': 12"):
            evaluate(LowIdsFirst(), train, test, metrics=METRICS, threshold=threshold)
        return
    for candidates in (None, Sampled(3)):
        key = None if candidates is None else KEY
        options = {"metrics": METRICS, "candidates": candidates, "per_user": True, "key": key}
        actual = evaluate(LowIdsFirst(), train, test, **options, threshold=threshold)
        expected = evaluate(LowIdsFirst(), train, test.keep_interactions(is_relevant), **options)
        assert dict(actual) == dict(expected)
        assert actual.n_interactions == expected.n_interactions == is_relevant.sum()
        assert actual.dropped.get("not_relevant", 0) == 12 - is_relevant.sum()
        assert actual.dropped["users"] == 4 - actual.n_users
        assert 0 <= actual["mpr"] <= 1


@given(st.lists(st.sampled_from([0.0, 1e-300, 0.5, 2.0, 7.0]), min_size=12, max_size=12).filter(any))
@settings(deadline=None)
def test_both_percentile_ranks_leave_zeros_out(values):
    train, test = held_out(values)
    rank = mean_percentile_rank(LowIdsFirst(), test, seen=train)
    assert 0 <= rank <= 1
    assert rank == mean_percentile_rank(LowIdsFirst(), test.positive(), seen=train)
    np.testing.assert_allclose(evaluate(LowIdsFirst(), train, test, metrics=["mpr"])["mpr"], rank, rtol=1e-12)


# ---- the programs of the report --------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[-1, -1, -1], [2, -1, -1], [1, 1, -1], [3, -1, -1]])
def test_values_below_0_are_refused_with_a_way_on(values):
    test, model = TEST.assign(value=np.array(values, dtype=float)), Popularity().fit(TRAIN)
    for metrics in (["mpr"], ["hr@10", "ndcg@10"]):
        with pytest.raises(ValueError, match=r"of at least 0 where items are ranked, got -1; pass threshold=0 so"):
            evaluate(model, TRAIN, test, metrics=metrics)
    with pytest.raises(ValueError, match=r"values of at least 0, which weigh the ranks, got -1; call test\.positive"):
        mean_percentile_rank(model, test)
    if max(values) > 0:
        liked = evaluate(model, TRAIN, test, metrics=["mpr", "recall@1"], threshold=0)
        assert dict(liked) == dict(evaluate(model, TRAIN, test[test.value > 0], metrics=["mpr", "recall@1"]))
        assert liked.dropped["not_relevant"] == np.count_nonzero(np.array(values) < 0)


def test_zeros_alone_leave_no_item_to_rank():
    test, model = TEST.assign(value=0.0), Popularity().fit(TRAIN)
    with pytest.raises(ValueError, match="test must have an interaction to rank"):
        evaluate(model, TRAIN, test, metrics=["mpr"])
    with pytest.raises(ValueError, match="test must hold interactions with values above 0"):
        mean_percentile_rank(model, test)


def test_weights_that_overflow_are_refused():
    train, test = held_out(np.tile([1e308, 1.0, 1e308], 4))
    for call in (mean_percentile_rank, lambda *of: evaluate(of[0], train, of[1], metrics=["mpr"])):
        with pytest.raises(ValueError, match=r"must add up to a finite number, got up to 1e\+308; rescale them"):
            call(LowIdsFirst(), test)
    assert evaluate(LowIdsFirst(), train, test, metrics=["auc"])["auc"] >= 0


@pytest.mark.parametrize("weight", [5e-324, 1e-310])
def test_weights_that_underflow_are_refused(weight):
    train, test = held_out(np.tile([weight, weight, weight], 4))
    for call in (mean_percentile_rank, lambda *of: evaluate(of[0], train, of[1], metrics=["mpr"])):
        with pytest.raises(ValueError, match=r"must add up to at least 2\.2e-308, got .*; rescale them"):
            call(LowIdsFirst(), test)


def test_small_weights_weigh_as_large_ones():
    (train, test), (_, small) = (held_out(np.tile([value, value, 3 * value], 4)) for value in (1.0, 2.0**-960))
    for call in (mean_percentile_rank, lambda *of: evaluate(of[0], train, of[1], metrics=["mpr"])["mpr"]):
        assert call(LowIdsFirst(), test) == call(LowIdsFirst(), small)


def test_a_user_without_weight_does_not_change_the_mean():
    columns = UserValues(np.array([0.5, 0.25]), np.array([1.0, -1.0])).columns
    assert columns.tolist() == [[0.5, 1.0], [0.0, 0.0]]


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_a_threshold_is_for_rankings_and_at_least_0():
    train, test = held_out(np.tile([1.0, 3.0, 5.0], 4))
    with pytest.raises(ValueError, match="threshold must be at least 0"):
        evaluate(LowIdsFirst(), train, test, threshold=-1)
    rated = GlobalMean().fit(test)
    with pytest.raises(ValueError, match=r"threshold applies to rankings, but metrics \['rmse'\] are of ratings"):
        evaluate(rated, test, test, metrics=["rmse"], threshold=3)
    with pytest.raises(ValueError, match=r"must be evaluated separately if .*, got 4 irrelevant of 12"):
        evaluate(rated, train, test, metrics=["rmse", "auc"], threshold=1)
    both = evaluate(rated, train, test, metrics=["rmse", "auc"])
    assert set(both) == {"rmse", "auc"}
    below = Interactions.from_arrays([1, 2], [7, 8], [-3.0, 4.0])  # of ratings alone every value counts
    assert evaluate(GlobalMean(grid=[-5, 5]).fit(below), below, below, metrics=["rmse"]).n_interactions == 2


def test_results_of_two_thresholds_are_not_compared():
    train, test = held_out(np.tile([1.0, 3.0, 5.0], 4))
    results = {str(t): evaluate(LowIdsFirst(), train, test, threshold=t) for t in (0, 2)}
    with pytest.raises(ValueError, match="same users and test interactions"):
        compare(results)


@pytest.mark.parametrize(
    "command", [["evaluate", "popularity", "--seeds", "1"], ["compare", "--system", "popularity", "--system", "random"]]
)
def test_the_command_line_refuses_and_drops_too(command, tmp_path, capsys):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    TRAIN.to_csv(train, index=False)
    parts = ["--train", str(train), "--test", str(test)]
    for values, code in (([1, 1, -1], 2), ([0, 1, 2], 0)):
        TEST.assign(value=values).to_csv(test, index=False)
        assert main([*command, *parts, "--metrics", "mpr", "--details"]) == code
        said = capsys.readouterr()
        if code:
            assert "got -1; add --binarize 0 so that values" in said.err
        else:
            assert "1 with a value that does not count as relevant; 1 users have no other interaction, and" in said.out
    TEST.assign(value=[1, 1, -1]).to_csv(test, index=False)
    assert main([*command, *parts, "--metrics", "mpr", "--binarize", "0"]) == 0
    capsys.readouterr()
