"""Comparisons of models: paired tests by hand, Holm's correction over all of them, tables."""

import io
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from fastfedrec import DPGram, DPPopularity, Interactions, Key, Popularity
from fastfedrec.accounting import Ledger
from fastfedrec.core.text import format_epsilon
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, compare, evaluate
from fastfedrec.evaluation.metrics.averages import average_fits

KEY = Key.from_seed(3)


class Scores:
    """Looked up in a table."""

    def __init__(self, table):
        self.table = table

    def score(self, user_ids, item_ids):
        return self.table[np.asarray(user_ids), np.asarray(item_ids)]

    def predict(self, user_ids, item_ids):
        return self.score(user_ids, item_ids)


class Better(Scores):
    pass


def make_parts(n_users=60, n_items=20):
    rng = np.random.default_rng(0)
    taste = rng.standard_normal((n_users, n_items))
    test = Interactions.from_arrays(*np.nonzero(taste > 1), item_ids=range(n_items), user_ids=range(n_users))
    train = Interactions.from_arrays(*np.nonzero(taste < -1), item_ids=range(n_items), user_ids=range(n_users))
    noise = [rng.standard_normal(taste.shape) for _ in range(3)]
    return train, test, [taste + noise[0], taste + 3 * noise[1], 3 * noise[2]]


def results(metrics=("ndcg@5", "recall@5"), **options):
    train, test, tables = make_parts(**options)
    return {name: evaluate(Scores(t), train, test, metrics=metrics) for name, t in zip("abc", tables, strict=True)}


# ---- oracle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["ndcg@5", "rmse"])
def test_tests_of_few_users_by_all_exchanges(metric):
    train, test, tables = make_parts(n_users=9)
    named = {
        n: evaluate(Scores(t), train, test, metrics=[metric], per_user=True)
        for n, t in zip("ab", tables[:2], strict=True)
    }
    [comparison] = compare(named, key=KEY).tests
    first, second = (result.user_values[metric].columns[:, 0] for result in named.values())
    signs = np.array(list(itertools.product([1, -1], repeat=len(first))))
    expected = (np.abs(signs @ (first - second)) >= abs((first - second).sum()) - 1e-9).mean()
    assert comparison.p_value == comparison.p_holm == expected
    assert comparison.difference == named["a"][metric] - named["b"][metric]


def test_holm_covers_all_tests():
    named = results()
    comparison = compare(named, n_permutations=2000, key=KEY)
    assert [(t.metric, t.first, t.second) for t in comparison.tests] == [
        (metric, a, b) for metric in ("ndcg@5", "recall@5") for a, b in ("ab", "ac", "bc")
    ]
    by_p = sorted(comparison.tests, key=lambda t: t.p_value)
    assert by_p[0].p_holm == min(1.0, 6 * by_p[0].p_value)
    assert all(a.p_holm <= b.p_holm for a, b in itertools.pairwise(by_p))
    apart = {(t.first, t.second): t.p_holm for t in comparison.tests if t.metric == "ndcg@5"}
    assert apart["a", "c"] < 0.01


# ---- invariants --------------------------------------------------------------------------------------------------


def test_the_same_model_twice_has_no_difference():
    result = results()["a"]
    comparison = compare({"a": result, "b": result}, key=KEY)
    assert [(t.difference, t.p_value) for t in comparison.tests] == [(0.0, 1.0)] * 2
    assert all(line.endswith(": all models score equally.") for line in comparison.verdicts())
    assert len(comparison.verdicts()) == 2


def test_names_and_tables():
    train, test, tables = make_parts()
    pair = [
        evaluate(kind(t), train, test, metrics=["ndcg@5", "gini@5"])
        for kind, t in ((Better, tables[0]), (Scores, tables[2]))
    ]
    comparison = compare(pair, key=KEY)
    assert list(comparison.results) == ["Better", "Scores"]
    assert repr(comparison) == "<Comparison of Better, Scores: 1 paired tests>"
    for library in ("pandas", "polars"):
        frame = comparison.to_frame(library=library)
        assert list(frame["model"]) == ["Better", "Better", "Scores", "Scores"]
        assert list(frame["value"]) == [value for result in pair for value in result.values()]
        assert list(comparison.tests_to_frame(library=library)["p_holm"]) == [comparison.tests[0].p_holm]
    markdown = comparison.to_markdown().splitlines()
    assert markdown[0] == "| model | ndcg@5 | gini@5 | true epsilon |"
    low, high = comparison.intervals["Better"]["ndcg@5"]
    assert markdown[2].startswith(f"| Better | {pair[0]['ndcg@5']:.4f} ({low:.4f} to {high:.4f}) | ")
    assert markdown[5].startswith("| metric | first | second | difference | p_value | p_holm |")
    assert r"\begin{tabular}{llll}" in comparison.to_latex()
    document = json.loads(comparison.to_json())
    assert document["tests"][0]["p_value"] == comparison.tests[0].p_value
    assert document["results"]["Scores"]["protocol"] == "all unseen items"
    assert document["results"]["Scores"]["metrics"]["gini@5"]["low"] is None


def test_every_table_has_the_true_cost_of_the_ledger():
    data = generate_implicit(300, 40, key=KEY)
    train, test = next(LeaveOneOut().split(data, key=KEY))
    models = {
        "DPGram(epsilon=2)": DPGram(2.0),
        "local": DPPopularity(2.0, trust="local"),
        "popularity": Popularity(),
    }
    results = {name: evaluate(model.fit(train, key=KEY), train, test) for name, model in models.items()}
    comparison = compare(results | {"own model": evaluate(Scores(np.zeros(train.shape)), train, test)}, key=KEY)
    private, local = models["DPGram(epsilon=2)"].ledger_.epsilon("public"), models["local"].ledger_
    assert private > 2.5  # negative control: the cost is not the parameter
    shuffled = format_epsilon(local.epsilon("shuffled_server"))
    costs = [f"{format_epsilon(private)} (central)", f"2.000 (local), {shuffled} (shuffle)", "none", "none"]
    lines = comparison.summary().splitlines()[2:6]
    assert [line.rpartition("  ")[2] for line in lines] == costs
    for text in (comparison.to_markdown(), comparison.to_latex(), comparison._repr_html_()):
        assert "true epsilon" in text
        assert costs[0] in text
    frame = comparison.to_frame()
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(comparison.to_csv())), frame)
    assert set(frame["n_users"]) == {test.n_users}
    assert frame["epsilon_central"].iloc[0] == private
    assert frame["epsilon_local"].tolist()[:4] == [np.inf, np.inf, 2.0, 2.0]


def test_the_cost_is_that_at_the_evaluation_and_an_average_has_the_largest():
    data = generate_implicit(300, 40, key=KEY)
    train, test = next(LeaveOneOut().split(data, key=KEY))
    ledger = Ledger()
    first = evaluate(DPGram(1.0).fit(train, key=KEY, ledger=ledger), train, test)
    cost = ledger.epsilon("public")
    second = evaluate(DPGram(1.0).fit(train, key=KEY, ledger=ledger), train, test)
    assert first.epsilon["public"] == cost < second.epsilon["public"] == ledger.epsilon("public")
    assert average_fits([first, second]).epsilon == second.epsilon


# ---- bad inputs --------------------------------------------------------------------------------------------------


def test_a_summary_names_the_best_model_and_its_rivals():
    train, test, [good, *_] = make_parts()
    shaken = good + np.random.default_rng(4).normal(0, 1e-3, good.shape)
    named = {
        name: evaluate(Scores(scores), train, test, metrics=["ndcg@5", "mpr", "coverage@5"])
        for name, scores in (("worse", -good), ("good", good), ("nearly", shaken))
    }
    comparison = compare(named, key=KEY)
    lines = comparison.summary().splitlines()
    assert lines[0].split() == ["model", "ndcg@5", "mpr", "coverage@5", "true", "epsilon"]
    assert lines[-1].startswith(
        "95% intervals and paired tests cover the choice of users, not the noise of a fit; pass"
    )
    low, high = comparison.intervals["good"]["ndcg@5"]
    assert f"{named['good']['ndcg@5']:.4f} ({low:.4f} to {high:.4f})" in lines[3]
    for metric, pick in (("ndcg@5", max), ("mpr", min)):  # a lower mpr is better
        best = pick(named, key=lambda name: named[name][metric])
        [line] = [line for line in comparison.verdicts() if line.startswith(metric)]
        other = {"good": "nearly", "nearly": "good"}[best]
        extreme, more = ("lowest", "lower") if pick is min else ("highest", "higher")
        assert line.startswith(f"{metric}: {best} scores {extreme}, but not significantly {more} than {other} (p = ")
        assert line.endswith(").")
        assert "worse" not in line
    assert len(comparison.verdicts()) == 2  # coverage has no test
    assert compare({k: named[k] for k in ("worse", "good")}, key=KEY).verdicts()[0] == (
        "ndcg@5: good scores highest, significantly higher than all others."
    )
    with pytest.raises(ValueError, match="level must be"):
        comparison.verdicts(1.0)


def test_results_that_cannot_be_compared():
    named = results()
    train, test, tables = make_parts()
    with pytest.raises(TypeError, match="got one; pass"):
        compare(named["a"])
    with pytest.raises(ValueError, match="at least two results, got 1"):
        compare([named["a"]])
    with pytest.raises(ValueError, match="distinct names"):
        compare([named["a"], named["b"]])
    with pytest.raises(TypeError, match=r"results\[1\] must be"):
        compare([named["a"], 0.5])
    others = {
        "metrics": evaluate(Scores(tables[0]), train, test, metrics=["ndcg@5"]),
        "split": evaluate(Scores(tables[0]), train, test, metrics=list(named["a"]), split="other"),
        "users": evaluate(Scores(tables[0]), train, test.select_users(range(30)), metrics=list(named["a"])),
    }
    for what, other in others.items():
        with pytest.raises(ValueError, match=f"same {what}"):
            compare({"a": named["a"], "other": other})
    with pytest.raises(ValueError, match="distinct names"):
        compare({1: named["a"], "1": named["b"], "c": named["c"]})


def test_results_of_other_tests_of_the_same_size_cannot_be_compared():
    train, test, (table, *_) = make_parts()
    # The other test set has items that are in neither part, with equal numbers per user.
    neither = (train.to_scipy() + test.to_scipy()).toarray() == 0
    counts = test.interactions_per_user()
    items = [np.flatnonzero(of_user)[:n] for of_user, n in zip(neither, counts, strict=True)]
    other_test = Interactions.from_arrays(
        np.repeat(test.user_ids, counts), np.concatenate(items), item_ids=test.item_ids, user_ids=test.user_ids
    )  # the same number of items per user, all of them different
    fewer = train.keep_interactions(np.arange(train.n_interactions) > 3)
    for others, options, what in [
        ((train, other_test), {}, "test interactions"),
        ((fewer, test), {}, "unseen items"),
        ((train, test), {"candidates": Sampled(3)}, "sampled items"),
    ]:
        one, same, other = (
            evaluate(Scores(table), *parts, key=Key.from_seed(seed), metrics=["mrr"], **options)
            for parts, seed in (((train, test), 1), ((train, test), 1), (others, 2))
        )
        assert (one.n_users, one.n_interactions) == (other.n_users, other.n_interactions)
        assert compare({"one": one, "same": same}).tests[0].p_value == 1.0
        with pytest.raises(ValueError, match=f"same {what}, and other differs from one; evaluate"):
            compare({"one": one, "other": other})
