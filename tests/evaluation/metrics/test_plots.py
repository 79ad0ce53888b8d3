"""Plots of metrics: their points and intervals are those of the results."""

import sys

import numpy as np
import pytest

from fastfedrec import Interactions, Key, Popularity
from fastfedrec.evaluation import compare, evaluate
from fastfedrec.systems.baselines.popularity import Random

KEY = Key.from_seed(1)
METRICS = ["ndcg@5", "recall@3", "gini@5"]


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    parts = [
        Interactions.from_arrays(rng.integers(0, 40, 300), rng.integers(0, 20, 300), item_ids=range(20))
        for _ in range(2)
    ]
    return [evaluate(model.fit(parts[0], key=KEY), *parts, metrics=METRICS) for model in (Popularity(), Random())]


def drawn(ax):
    """Return the values and the ends of the error bars of a plot, by the label of the row."""
    [container] = ax.containers
    points, _, (bars,) = container.lines
    ends = [sorted(x for x, _ in segment) for segment in bars.get_segments()]
    labels = [text.get_text() for text in ax.get_yticklabels()]
    return dict(zip(labels, zip(points.get_xdata().tolist(), ends, strict=True), strict=True))


def test_a_comparison_has_a_row_for_each_model(results):
    pytest.importorskip("matplotlib")
    comparison = compare(results, key=KEY)
    for metric in (None, "recall@3"):
        ax = comparison.plot(metric)
        name = metric or "ndcg@5"
        assert name in ax.get_xlabel()
        for model, (value, ends) in drawn(ax).items():
            assert value == comparison.results[model][name]
            assert ends == pytest.approx(comparison.intervals[model][name])
    assert list(drawn(ax)) == ["Popularity", "Random"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first model is at the top


def test_a_result_has_a_row_for_each_metric_and_one_without_an_interval_has_no_line(results):
    pytest.importorskip("matplotlib")
    rows = drawn(results[0].plot(key=KEY))
    intervals = results[0].intervals(key=KEY)
    assert list(rows) == METRICS
    assert rows["ndcg@5"][1] == pytest.approx(intervals["ndcg@5"])
    assert rows["gini@5"] == (results[0]["gini@5"], [results[0]["gini@5"]] * 2)
    assert list(drawn(results[0].plot("recall@3", key=KEY))) == ["recall@3"]


def test_a_plot_is_drawn_on_given_axes(results, tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    left, right = figure.subplots(1, 2)
    assert compare(results, key=KEY).plot(ax=left) is left
    assert results[0].plot(ax=right) is right
    figure.savefig(tmp_path / "plot.png")


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", [lambda results: compare(results, key=KEY), lambda results: results[0]])
def test_an_unknown_metric_and_a_missing_package_are_named(results, choose, monkeypatch):
    with pytest.raises(ValueError, match=r"metric must be one of 'ndcg@5', .* got 'ndcg@50' \(did you mean 'ndcg@5'"):
        choose(results).plot("ndcg@50")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"needs matplotlib; pip install 'fastfedrec\[plot\]'"):
        choose(results).plot()
