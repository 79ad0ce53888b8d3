"""Tests of results: intervals by their definition, tables, JSON and values per user."""

import dataclasses
import json

import numpy as np
import pytest
from support.significance import ALPHA

from fastfedrec import Interactions, Key
from fastfedrec.evaluation import Sampled, compare, evaluate
from fastfedrec.evaluation.metrics.names import Metric
from fastfedrec.evaluation.metrics.resampling import bootstrap_sums
from fastfedrec.evaluation.metrics.results import Evaluation
from fastfedrec.evaluation.metrics.user_values import UserValues

KEY = Key.from_seed(3)


class LowItemsFirst:
    def score(self, user_ids, item_ids):
        return -np.asarray(item_ids, dtype=float)

    def predict(self, user_ids, item_ids):
        return np.full(len(user_ids), 3.0)


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    drawn = rng.random((80, 30))
    rows, columns = np.nonzero(drawn < 0.5)
    train = Interactions.from_arrays(*np.nonzero(drawn >= 0.7), item_ids=range(30), user_ids=range(80))
    test = Interactions.from_arrays(rows, columns, rng.integers(1, 6, len(rows)), item_ids=range(30))
    metrics = ["ndcg@10", "auc", "rmse", "mpr", "coverage@5"]
    return evaluate(LowItemsFirst(), train, test, metrics=metrics, per_user=True, split="halves | drawn")


# ---- oracle ------------------------------------------------------------------------------------------------------


def test_intervals_are_percentiles_of_resampled_users(result):
    actual = result.intervals(level=0.9, n_resamples=400, key=KEY)
    values = result.per_user["ndcg@10"]
    n = len(values)
    # The same draws, from the columns of all metrics together: means of values are quotients of sums.
    counts = bootstrap_sums(np.eye(n), 400, KEY)
    means = counts @ values / n
    assert actual["ndcg@10"] == pytest.approx(np.quantile(means, [0.05, 0.95]).tolist(), rel=1e-12)
    squares, lengths = result.user_values["rmse"].values, result.user_values["rmse"].weights
    roots = np.sqrt(counts @ (squares * lengths) / (counts @ lengths))
    assert actual["rmse"] == pytest.approx(np.quantile(roots, [0.05, 0.95]).tolist(), rel=1e-12)
    assert np.isnan(actual["coverage@5"]).all()


def test_means_are_those_of_the_values_of_users(result):
    per_user = result.per_user
    assert list(per_user) == ["user", "ndcg@10", "auc", "rmse", "mpr"]
    assert result["ndcg@10"] == per_user["ndcg@10"].mean()
    assert result["auc"] == pytest.approx(np.nanmean(per_user["auc"]), rel=1e-12)
    lengths = result.user_values["rmse"].weights
    assert result["rmse"] == pytest.approx(np.sqrt((per_user["rmse"] ** 2 @ lengths) / lengths.sum()), rel=1e-6)


# ---- invariants --------------------------------------------------------------------------------------------------


def test_a_result_is_a_mapping(result):
    assert dict(result) == {name: result[name] for name in result}
    assert len(result) == 5
    assert result == dict(result)
    with pytest.raises(KeyError):
        result["recall@10"]
    assert repr(result).startswith("<Evaluation of LowItemsFirst: ndcg@10 0.")
    assert "all unseen items; predicted ratings, halves | drawn, 80 users" in repr(result)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(result, library):
    frame = result.to_frame(library=library, key=KEY)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == ["metric", "value", "low", "high"]
    assert list(frame["metric"]) == list(result)
    assert list(frame["value"]) == list(result.values())
    intervals = result.intervals(key=KEY)
    assert list(frame["low"])[:4] == [intervals[name][0] for name in list(result)[:4]]


def test_json_holds_everything(result):
    document = json.loads(result.to_json(key=KEY))
    assert document["protocol"] == "all unseen items; predicted ratings"
    assert document["split"] == "halves | drawn"
    assert document["dropped"] == result.dropped
    assert document["metrics"]["ndcg@10"]["value"] == result["ndcg@10"]
    assert document["metrics"]["ndcg@10"]["cutoff"] == 10
    assert document["metrics"]["coverage@5"]["low"] is None
    assert document["per_user"]["user"] == result.per_user["user"].tolist()
    train = Interactions.from_arrays([1, 2], [3, 4])
    plain = evaluate(LowItemsFirst(), train, Interactions.from_arrays([1, 2], [4, 3]))
    assert "per_user" not in json.loads(plain.to_json())  # data of persons are there on request alone


@pytest.mark.parametrize(
    ("users", "written"),
    [
        (np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), ["2020-01-01", "2020-01-02"]),
        (np.array([1, 2], dtype="M8[ns]"), ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000002"]),
        ([("a", 1), ("b", 2)], [["a", 1], ["b", 2]]),
        ([True, False], [True, False]),
    ],
)
def test_json_holds_users_of_any_type(users, written):
    train, test = Interactions.from_arrays(users, [3, 4]), Interactions.from_arrays(users, [4, 3])
    actual = evaluate(LowItemsFirst(), train, test, metrics=["mrr"], per_user=True)
    assert sorted(json.loads(actual.to_json())["per_user"]["user"], key=str) == sorted(written, key=str)


def test_markdown_and_latex(result):
    lines = result.to_markdown(key=KEY).splitlines()
    assert lines[:2] == ["| metric | value | low | high |", "| --- | ---: | ---: | ---: |"]
    assert lines[2].startswith(f"| ndcg@10 | {result['ndcg@10']:.4f} | 0.")
    assert lines[-1].endswith("| - | - |")  # no interval
    lines = result.to_latex(key=KEY).splitlines()
    assert lines[0] == r"\begin{tabular}{lrrr}"
    assert lines[2] == r"metric & value & low & high \\"
    assert lines[4].startswith(f"ndcg@10 & {result['ndcg@10']:.4f} & ")
    assert lines[-1] == r"\end{tabular}"


def test_a_notebook_shows_a_table(result):
    page = result._repr_html_()
    assert page.startswith("<div><strong>Evaluation of ")
    assert f"<tr><td>ndcg@10</td><td>{result['ndcg@10']:.4f}</td></tr>" in page
    assert f"<tr><td>users</td><td>{result.n_users}</td></tr>" in page
    evil = dataclasses.replace(result, model="<script>", split="<b>")
    assert "<script>" not in evil._repr_html_()
    assert "<b>" not in evil._repr_html_()
    compared = compare({"<i>": result, "b": result}, key=KEY)._repr_html_()
    assert "<i>" not in compared
    assert compared.count("<table>") == 2


@pytest.mark.filterwarnings("ignore:.* tested interactions, so the metrics:UserWarning")
def test_one_user_has_an_interval_of_one_point():
    train = Interactions.from_arrays([1, 1], [3, 4])
    actual = evaluate(LowItemsFirst(), train, Interactions.from_arrays([1], [3], item_ids=[3]), metrics=["rmse"])
    assert actual.intervals(key=KEY)["rmse"] == (actual["rmse"], actual["rmse"])


def test_users_without_a_value_are_in_no_mean():
    values = UserValues(np.array([0.5, np.nan, 1.0]), np.array([1.0, 0.0, 1.0]))
    assert values.mean == 0.75
    made = Evaluation("m", "p", None, (Metric("auc", "auc"),), 3, 3, {}, {"auc": 0.75}, {"auc": values}, np.arange(3))
    low, high = made.intervals(n_resamples=200, key=KEY)["auc"]
    assert 0.5 <= low < high <= 1.0


# ---- bad inputs --------------------------------------------------------------------------------------------------


def test_bad_arguments(result, monkeypatch):
    with pytest.raises(ValueError, match="level must be"):
        result.intervals(level=1.0)
    with pytest.raises(ValueError, match="n_resamples must be at least 1"):
        result.intervals(n_resamples=0)
    with pytest.raises(ValueError, match="library must be"):
        result.to_frame(library="excel")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="library='polars' needs polars; install it"):
        result.to_frame(library="polars")
    with pytest.raises(ValueError, match="n must be at least 1"):
        Sampled(0)
    with pytest.raises(ValueError, match="per must be"):
        Sampled(9, per="list")


# ---- statistics --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_intervals_cover_the_truth_at_the_stated_rate():
    """Means of 200 exponential values: 90% intervals hold it for some .885 of samples; .81 or .96 would be off."""
    rng = np.random.default_rng(2)
    held = []
    for _ in range(2000):
        values = UserValues(rng.exponential(size=200))
        made = Evaluation("m", "p", None, (Metric("x", "x"),), 200, 200, {}, {"x": 1.0}, {"x": values}, np.arange(200))
        low, high = made.intervals(level=0.9, n_resamples=200, key=Key.from_seed(len(held)))["x"]
        held.append(low <= 1.0 <= high)
    slack = np.sqrt(-np.log(ALPHA / 2) / (2 * 2000))  # Hoeffding
    assert slack < 0.07
    assert abs(np.mean(held) - 0.885) < slack
