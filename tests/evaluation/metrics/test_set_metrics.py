"""Tests of expectations over ties: against all orders with ties, and against trec_eval and ranx without ties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import set_metrics as naive

from fastfedrec.compute.ranks import rank_counts
from fastfedrec.evaluation.metrics.names import KINDS, parse_metrics
from fastfedrec.evaluation.metrics.set_metrics import Placement

CUT = [kind for kind, of in KINDS.items() if of.input == "rankings" and of.cutoff != "none"]
WHOLE = [kind for kind, of in KINDS.items() if of.input == "rankings" and of.cutoff != "required"]


def names(cutoffs):
    return [f"{kind}@{k}" for kind in CUT for k in cutoffs] + WHOLE


def placement_of(scores, relevant, weights=None):
    """Return the placement of relevant columns in lists of rows of scores; all columns are ranked."""
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in relevant])])
    columns = np.concatenate([np.sort(list(row)) for row in relevant]).astype(np.int32)
    above, same = (np.empty(len(columns), dtype=np.int64) for _ in range(2))
    for u, row in enumerate(scores):
        user_slice = slice(indptr[u], indptr[u + 1])
        above[user_slice], same[user_slice] = rank_counts([row], ([0, indptr[u + 1] - indptr[u]], columns[user_slice]))
    ones = np.ones(len(columns)) if weights is None else weights
    return Placement(indptr, above, same, np.array([len(row) for row in scores]), ones)


@st.composite
def rows(draw):
    """Draw rows of few items, with ties among relevant items and between relevant and other items."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores, relevant = [], []
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 7))
        scores.append(rng.integers(0, draw(st.sampled_from([1, 2, 3, 50])), n).astype(np.float64).tolist())
        relevant.append(set(rng.choice(n, draw(st.integers(1, n)), replace=False).tolist()))
    return scores, relevant


# ---- oracle ------------------------------------------------------------------------------------------------------


def undefined(function, error):
    """Return the kinds of ranking metrics for which a function of a metric raises an error."""
    kinds = set()
    for metric in parse_metrics(names([1])):
        try:
            function(metric)
        except error:
            kinds.add(metric.kind)
    return kinds


def test_every_kind_of_ranking_metric_has_a_formula_and_a_twin():
    formulas = undefined(placement_of([[2.0, 1.0]], [{0}]).values, KeyError)
    assert formulas == set(), "define their formulas in fastfedrec/evaluation/metrics/set_metrics.py"
    twins = undefined(lambda metric: naive.of_list(metric.kind, metric.cutoff, [0, 1], {0}), ValueError)
    assert twins == set(), "define them in of_list of tests/naive/evaluation/metrics/set_metrics.py"


@given(rows(), st.lists(st.integers(1, 9), min_size=1, max_size=2, unique=True))
@settings(deadline=None, max_examples=60)
def test_expectations_equal_the_mean_over_all_orders(case, cutoffs):
    scores, relevant = case
    placement = placement_of(scores, relevant)
    for metric in parse_metrics(names(cutoffs)):
        values, weights = placement.values(metric)
        for u, (row, positives) in enumerate(zip(scores, relevant, strict=True)):
            # AUC needs a negative item, and the percentile rank needs two items.
            if (metric.kind == "auc" and len(positives) == len(row)) or (metric.kind == "mpr" and len(row) == 1):
                assert weights[u] == 0
                continue
            expected = naive.expectation(metric.kind, metric.cutoff, dict(enumerate(row)), positives)
            assert values[u] == pytest.approx(expected, rel=1e-12, abs=1e-12), (metric.name, row, positives)


@pytest.mark.parametrize("seed", range(3))
def test_large_groups_of_ties_by_hand(seed):
    """A constant model of 5,000 items: hypergeometric means, from binomials of whole numbers."""
    rng = np.random.default_rng(seed)
    t, r, k = 5000, int(rng.integers(1, 60)), int(rng.integers(1, 40))
    placement = placement_of([[1.0] * t], [set(range(r))])
    actual = {m.name: placement.values(m)[0][0] for m in parse_metrics(names([k]))}
    miss = math.comb(t - r, k) / math.comb(t, k)
    first = [math.comb(t - j, r - 1) / math.comb(t, r) for j in range(1, t - r + 2)]  # place of the first relevant one
    assert actual[f"recall@{k}"] == pytest.approx(k / t, rel=1e-12)
    assert actual[f"precision@{k}"] == pytest.approx(r / t, rel=1e-12)
    assert actual[f"hit@{k}"] == pytest.approx(1 - miss, rel=1e-11)
    assert actual["mrr"] == pytest.approx(sum(p / j for j, p in enumerate(first, 1)), rel=1e-10)
    assert actual[f"mrr@{k}"] == pytest.approx(sum(p / j for j, p in enumerate(first[:k], 1)), rel=1e-10)
    assert actual["auc"] == pytest.approx(0.5, abs=1e-12)
    assert actual["mpr"] == pytest.approx(0.5, abs=1e-12)
    # Place p holds a relevant item with chance r / t, and (p - 1) (r - 1) / (t - 1) before it.
    precisions = [(r / t) * (1 + (p - 1) * (r - 1) / (t - 1)) / p for p in range(1, t + 1)]
    assert actual["map"] == pytest.approx(sum(precisions) / r, rel=1e-10)
    assert actual[f"map@{k}"] == pytest.approx(sum(precisions[:k]) / min(k, r), rel=1e-10)


def random_runs(n_users=40, n_items=200, seed=0):
    """Scores of all items without ties, and up to 30 relevant items a user: from one to more than the cut-off."""
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(n_items, dtype=np.float64), (n_users, 1)), axis=1)
    relevant = [set(rng.choice(n_items, rng.integers(1, 31), replace=False).tolist()) for _ in range(n_users)]
    relevant[0] = {3}
    return scores, relevant


TREC = {"recall": "recall", "precision": "P", "hit": "success", "ndcg": "ndcg_cut", "map": "map_cut"}
RANX = {kind: kind for kind in ("recall", "precision", "ndcg", "map", "mrr")} | {"hit": "hit_rate"}


def test_equal_to_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores, relevant = random_runs()
    # trec_eval also receives users without a run, and runs of users without relevant items: it omits both.
    qrel = {f"u{u}": {f"i{i}": 1 for i in row} for u, row in enumerate(relevant)} | {"absent": {"i1": 1}}
    run = {f"u{u}": {f"i{i}": float(s) for i, s in enumerate(row)} for u, row in enumerate(scores)}
    run["nobody"] = run["u0"]
    measures = {f"{kind}.1,5,10,100" for kind in TREC.values()} | {"ndcg", "map", "recip_rank"}
    actual = pytrec_eval.RelevanceEvaluator(qrel, measures).evaluate(run)
    assert set(actual) == {f"u{u}" for u in range(len(scores))}
    placement = placement_of(scores, relevant)
    n_relevant = np.array([len(row) for row in relevant])
    for metric in parse_metrics([*(f"{kind}@{k}" for kind in TREC for k in (1, 5, 10, 100)), "ndcg", "map", "mrr"]):
        theirs = {"mrr": "recip_rank"}.get(metric.name, metric.kind)
        if metric.cutoff:
            theirs = f"{TREC[metric.kind]}_{metric.cutoff}"
        values, _ = placement.values(metric)
        if metric.kind == "map" and metric.cutoff:  # trec_eval divides by all that are relevant, not by the cut-off
            values = values * np.minimum(n_relevant, metric.cutoff) / n_relevant
        expected = [actual[f"u{u}"][theirs] for u in range(len(scores))]
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12, err_msg=metric.name)


@pytest.mark.filterwarnings("ignore")
def test_equal_to_ranx():
    ranx = pytest.importorskip("ranx")
    scores, relevant = random_runs(seed=1)
    qrels = ranx.Qrels({f"u{u}": {f"i{i}": 1 for i in row} for u, row in enumerate(relevant)})
    run = ranx.Run({f"u{u}": {f"i{i}": float(s) for i, s in enumerate(row)} for u, row in enumerate(scores)})
    placement = placement_of(scores, relevant)
    n_relevant = np.array([len(row) for row in relevant])
    for metric in parse_metrics([f"{kind}@{k}" for kind in RANX for k in (1, 5, 10, 100)]):
        expected = np.asarray(ranx.evaluate(qrels, run, f"{RANX[metric.kind]}@{metric.cutoff}", return_mean=False))
        values, _ = placement.values(metric)
        if metric.kind == "map":  # ranx, too, divides by all that are relevant
            values = values * np.minimum(n_relevant, metric.cutoff) / n_relevant
        np.testing.assert_allclose(np.sort(values), np.sort(expected), rtol=1e-12, atol=1e-12, err_msg=metric.name)


def test_equal_to_trec_eval_if_ties_are_broken_beforehand():
    """trec_eval puts the greater id first: scores to which that order is added have no ties, and give its figures."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 20, (30, 100)).astype(np.float64)
    relevant = [set(rng.choice(100, rng.integers(1, 20), replace=False).tolist()) for _ in range(30)]
    called = [f"i{i:03}" for i in range(100)]
    qrel = {f"u{u}": {called[i]: 1 for i in row} for u, row in enumerate(relevant)}
    run = {f"u{u}": {called[i]: float(s) for i, s in enumerate(row)} for u, row in enumerate(scores)}
    actual = pytrec_eval.RelevanceEvaluator(qrel, {"ndcg_cut.10", "recip_rank"}).evaluate(run)
    broken, tied = placement_of(scores + np.arange(100) / 1000, relevant), placement_of(scores, relevant)
    for metric, theirs in zip(parse_metrics(["ndcg@10", "mrr"]), ("ndcg_cut_10", "recip_rank"), strict=True):
        expected = [actual[f"u{u}"][theirs] for u in range(30)]
        np.testing.assert_allclose(broken.values(metric)[0], expected, rtol=1e-12, atol=1e-12)
        assert abs(tied.values(metric)[0] - expected).max() > 0.1  # the order within a tie is an accident


# ---- invariants --------------------------------------------------------------------------------------------------


def test_the_best_and_the_worst_order():
    scores = [list(range(10, 0, -1)), list(range(10))]
    best, worst = ({0, 1, 2}, {0, 1, 2})
    placement = placement_of(scores, [best, worst])
    for metric in parse_metrics([*(f"{kind}@3" for kind in CUT), "auc"]):
        assert placement.values(metric)[0].tolist() == pytest.approx([1.0, 0.0])
    assert placement.values(parse_metrics(["mpr"])[0])[0] == pytest.approx([1 / 9, 8 / 9])


def test_values_weigh_the_percentile_rank_alone():
    placement = placement_of([[3.0, 2.0, 1.0]], [{0, 2}], weights=np.array([3.0, 1.0]))
    values, weights = placement.values(parse_metrics(["mpr"])[0])
    assert values.tolist() == [0.25]  # (3 * 0 + 1 * 1) / 4
    assert weights.tolist() == [4.0]
    assert placement.values(parse_metrics(["recall@1"])[0])[0].tolist() == [0.5]
