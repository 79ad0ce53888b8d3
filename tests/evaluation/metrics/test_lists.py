"""Tests of `evaluate_lists` against trec_eval, the naive twin and `evaluate`, and of refused lists."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import lists as naive
from support.evaluation_case import KEY, dense_data, random_table

from fastfedrec import EASE, Interactions, Popularity, datasets
from fastfedrec.evaluation import RandomHoldout, compare, evaluate, evaluate_lists

METRICS = ["recall@2", "precision@3", "hit@1", "ndcg@2", "ndcg", "map@3", "map", "mrr@2", "mrr"]
# Names of trec_eval by our kind.
TREC = {"recall": "recall", "precision": "P", "hit": "success", "ndcg": "ndcg_cut"}
CUTOFFS = (1, 5, 10, 100)
TWO = {"user": [1, 1], "item": [10, 11]}


def as_frame(lists):
    """Return columns of {user: {item: score}}."""
    rows = [(user, item, score) for user, of_user in lists.items() for item, score in of_user.items()]
    users, items, scores = zip(*rows, strict=True) if rows else ((), (), ())
    return {"user": list(users), "item": list(items), "score": list(scores)}


@st.composite
def worlds(draw):
    """Train, test and lists as dicts; lists have unknown users, unknown items, seen items and ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items = [f"i{n}" for n in range(draw(st.integers(2, 7)))]

    def rows(users, catalogue, chance):
        return {u: {i for i in catalogue if rng.random() < chance} for u in users}

    train, test = rows("abcd", items, 0.3), rows("cdbe", [*items, "x"], 0.5)
    n_levels = draw(st.sampled_from([2, 100]))
    lists = {
        user: {i: float(rng.integers(n_levels)) for i in rng.permutation([*items, "y"])[: rng.integers(1, 6)].tolist()}
        for user in "bcf"
    }
    return items, train, test, lists


def interactions_of(rows, items):
    pairs = [(user, item) for user, of_user in rows.items() for item in sorted(of_user)]
    users, columns = zip(*pairs, strict=True) if pairs else ((), ())
    return Interactions.from_arrays(list(users), list(columns), user_ids=list(rows), item_ids=items)


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(worlds())
@settings(deadline=None, max_examples=60)
@pytest.mark.filterwarnings("ignore:.*(tested users have no list|listed items are in train|lists of tested users have)")
def test_any_lists_equal_naive(world):
    items, train, test, lists = world
    data = interactions_of(train, items), interactions_of(test, [*items, "x"])
    expected = {}
    for name in METRICS:
        kind, _, cutoff = name.partition("@")
        expected[name] = naive.evaluate_lists(lists, train, test, set(items), kind, int(cutoff) if cutoff else None)
    if expected["mrr"] is None:
        with pytest.raises(ValueError, match="test must have an interaction to look up in a list, but none remains"):
            evaluate_lists(as_frame(lists), *data, METRICS)
        return
    result = evaluate_lists(as_frame(lists), *data, METRICS)
    assert dict(result) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.filterwarnings("ignore:.*lists of tested users have at most 30 items")
def test_equal_to_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(5)
    items = [f"i{i:03}" for i in range(120)]
    users = [f"u{u}" for u in range(40)]
    # Lists of 0 to 30 items without ties, and up to 20 test items of each user, more than some lists have.
    lists = {
        user: dict(zip(rng.permutation(items)[:n].tolist(), rng.permutation(n).astype(float).tolist(), strict=True))
        for user, n in zip(users, rng.integers(0, 31, len(users)), strict=True)
    }
    test = {user: set(rng.permutation(items)[: rng.integers(1, 21)].tolist()) for user in users}
    measures = {f"{kind}.{','.join(map(str, CUTOFFS))}" for kind in [*TREC.values(), "map_cut"]}
    qrel = {user: dict.fromkeys(of_user, 1) for user, of_user in test.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(qrel, measures | {"ndcg", "map", "recip_rank"})
    theirs = evaluator.evaluate({user: of_user for user, of_user in lists.items() if of_user})
    metrics = [f"{kind}@{k}" for kind in [*TREC, "map"] for k in CUTOFFS] + ["ndcg", "map", "mrr"]
    train = interactions_of({user: set() for user in users}, items)
    with pytest.warns(UserWarning, match="tested users have no list; their metrics are 0"):
        result = evaluate_lists(as_frame(lists), train, interactions_of(test, items), metrics, per_user=True)
    assert result.per_user["user"].tolist() == users
    n_relevant = np.array([len(test[user]) for user in users])
    for name in metrics:
        kind, _, cutoff = name.partition("@")
        measure = {"ndcg": "ndcg", "map": "map", "mrr": "recip_rank"}[name] if not cutoff else None
        measure = measure or f"{TREC.get(kind, 'map_cut')}_{cutoff}"
        values = result.per_user[name]
        if name.startswith("map@"):  # trec_eval divides by all relevant items, not by the cut-off
            values = values * np.minimum(n_relevant, int(cutoff)) / n_relevant
        # A user without a list has no entry, and counts as 0 with the option -c.
        expected = [theirs[user][measure] if lists[user] else 0.0 for user in users]
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_our_own_frames_give_the_figures_of_evaluate(library):
    frames = pytest.importorskip(library)
    data = datasets.generate_implicit(300, 60, key=KEY)
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    model = EASE().fit(train)
    metrics = ["recall@5", "precision@10", "ndcg@10", "map@10", "mrr@10", "hr@1", "coverage@10", "gini@5", "novelty@10"]
    expected = evaluate(model, train, test, metrics=metrics)
    recommended = model.recommend(test.user_ids, 10, as_frame=True)
    frame = frames.DataFrame({name: np.asarray(recommended[name]) for name in ("user", "item", "score", "rank")})
    result = evaluate_lists(frame, train, test, metrics, name="EASE")
    assert dict(result) == pytest.approx(dict(expected), rel=1e-12)
    assert (result.n_users, result.n_interactions) == (expected.n_users, expected.n_interactions)
    if library == "polars":
        assert evaluate_lists(frame.lazy(), train, test, metrics) == result
    other = Popularity().fit(train).recommend(test.user_ids, 10, as_frame=True)
    tests = compare([result, evaluate_lists(other, train, test, metrics, name="Popularity")]).tests
    assert {test.metric for test in tests} == set(metrics) - {"coverage@10", "gini@5"}


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_rank_precedes_score_and_score_precedes_the_order_of_rows():
    train = Interactions.from_arrays([1, 2, 2, 2], [9, 10, 11, 12])
    test = Interactions.from_arrays([1], [11])
    lists = {"user": [1, 1, 1], "item": [10, 11, 12], "score": [0.3, 0.2, 0.9], "rank": [3, 1, 2], "text": "abc"}
    assert evaluate_lists(lists, train, test, ["mrr"])["mrr"] == 1
    del lists["rank"]
    assert evaluate_lists(lists, train, test, ["mrr"])["mrr"] == 1 / 3
    del lists["score"]
    assert evaluate_lists(lists, train, test, ["mrr"])["mrr"] == 1 / 2
    # Tied rows count by the mean over their orders.
    tied = lists | {"rank": [1, 1, 2]}
    assert evaluate_lists(tied, train, test, ["mrr", "hr@1"]) == {"mrr": 0.75, "hr@1": 0.5}


def test_seen_items_and_items_outside_train_keep_their_rank():
    train = Interactions.from_arrays([1, 2, 2], [9, 10, 11])
    test = Interactions.from_arrays([1, 1], [9, 11])
    lists = {"user": [1, 1, 1, 5], "item": [9, 77, 11, 10]}
    with pytest.warns(UserWarning, match="1 of 3 listed items are in train of their user; they keep their rank"):
        result = evaluate_lists(lists, train, test, ["mrr", "coverage@3"])
    assert result == {"mrr": 1 / 3, "coverage@3": 2 / 3}
    assert result.dropped["seen_again"] == 1


def test_items_of_users_are_lists():
    train = Interactions.from_arrays(["a", "b", "b", "b"], [9, 10, 11, 12])
    test = Interactions.from_arrays(["a", "b", "c"], [11, 9, 9])
    columns = {"user": ["a", "a", "b"], "item": [12, 11, 9]}
    of_users = {"a": [12, 11], "b": np.array([9]), "d": []}
    expected = evaluate_lists(columns, train, test, ["mrr", "hr@2"])
    assert evaluate_lists(of_users, train, test, ["mrr", "hr@2"]) == expected == {"mrr": 0.75, "hr@2": 1.0}


@pytest.mark.parametrize(
    "ids",
    [
        [10, "a", 12, 13],
        [(1, 2), (1, 3), (2, 2), (5, 5)],
        ["a\0", "a", "b", "c"],
        [2**63 + 1, 5, 6, 7],
        [2**53, 2**53 + 1, 0.5, 7],
        np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"], dtype="M8[ns]"),
    ],
)
def test_ids_keep_their_types_in_lists_of_users(ids):
    ten, a, twelve, thirteen = ids
    train = Interactions.from_arrays([1, 2, 2, 3], [ten, a, twelve, thirteen])
    test = Interactions.from_arrays([1, 1, 2, 3], [a, twelve, ten, twelve])
    lists = {1: [twelve, thirteen], 2: [thirteen, ten], 3: [twelve], 4: [a]}
    result = evaluate_lists(lists, train, test, ["recall@2"])
    assert result["recall@2"] == pytest.approx(2.5 / 3)
    columns = {"user": [1, 1, 2, 2, 3, 4], "item": [item for of_user in lists.values() for item in of_user]}
    assert evaluate_lists(columns, train, test, ["recall@2"]) == result


def test_cutoffs_beyond_all_lists_warn_once_and_count_misses():
    train, test = Interactions.from_arrays([1, 2, 2], [9, 10, 11]), Interactions.from_arrays([1, 1], [10, 11])
    with pytest.warns(UserWarning, match=r"at most 1 items, and recall@5, hr@9 count more; each test item") as caught:
        result = evaluate_lists({1: [10]}, train, test, ["recall@5", "hr@9", "recall@1"])
    assert len(caught) == 1
    assert result == {"recall@5": 0.5, "hr@9": 1.0, "recall@1": 0.5}


@pytest.mark.filterwarnings("ignore:.*lists of tested users have at most 2 items")
def test_threshold_and_functions():
    train = Interactions.from_arrays([1, 2, 2, 2], [9, 10, 11, 12], [5, 4, 3, 2])
    test = Interactions.from_arrays([1, 1], [10, 11], [2, 5])

    def best_rank(rankings):
        assert rankings.top(2).tolist() == [[1, 2]]
        return np.minimum.reduceat(rankings.ranks, [0])

    lists = {"user": [1, 1], "item": [10, 11]}
    assert evaluate_lists(lists, train, test, [best_rank])["best_rank"] == 1
    assert evaluate_lists(lists, train, test, [best_rank], threshold=3)["best_rank"] == 2

    def missed(rankings):
        return rankings.mean_by_user(np.isinf(rankings.ranks))

    assert evaluate_lists({"user": [1], "item": [10]}, train, test, [missed])["missed"] == 0.5


@pytest.mark.filterwarnings("ignore:.*lists of tested users have at most 1 items")
def test_long_cutoffs_need_no_memory():
    train, test = Interactions.from_arrays([1, 2], [9, 10]), Interactions.from_arrays([1], [10])
    lists = {"user": [1], "item": [10]}
    metrics = ["precision@2000000000", "recall@2000000000", "ndcg@2000000000", "map@2000000000"]
    result = evaluate_lists(lists, train, test, metrics)
    assert list(result.values()) == pytest.approx([5e-10, 1, 1, 1])


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "error", "message"),
    [
        (
            [[1, 2]],
            TypeError,
            "lists must be a frame, or a mapping, with the columns user, item and rank or score, got",
        ),
        ({"user": [1], "score": [2]}, KeyError, r"lists must have the columns 'user' and 'item', got"),
        ({"user": [1, 1], "item": [10, 10]}, ValueError, "lists must have each item of a user once, got 1 repeated"),
        ({1: [10, 10]}, ValueError, "lists must have each item of a user once, got 1 repeated rows; remove the later"),
        ({1: 10}, TypeError, r"lists must map each user to a list of item ids, got 10 for 1; pass {user: \[item, item"),
        ({1: "10"}, TypeError, "got '10' for 1"),
        ({"user": [1, 1], "item": [10, 11], "score": [1, np.nan]}, ValueError, "finite ranks and scores, got 1 others"),
        ({"user": ["1"], "item": [10]}, TypeError, "user ids"),
        ({"user": [1], "item": ["10"]}, TypeError, "item ids"),
        ({"user": [1, 2], "item": [10]}, ValueError, "length"),
        ({1: np.ma.array([10, 11], mask=[0, 1])}, ValueError, r"lists\[1\]\[1\] is missing \(masked or null\)"),
        ({1: {10, 11}}, TypeError, r"lists must map each user to a list of item ids, got \{10, 11\} for 1"),
        ({1: np.array([[10]])}, ValueError, r"lists\[1\] must have 1 dimension, got shape \(1, 1\)"),
        (TWO | {"score": np.ma.array([2.0, 1.0], mask=[1, 0])}, ValueError, r"lists\['score'\]\[0\] is missing"),
        (TWO | {"score": [2**53, 2**53 + 1]}, TypeError, r"lists\['score'\] must be whole numbers of at most"),
        (TWO | {"rank": np.array(["NaT", "2020"], dtype="M8[Y]")}, TypeError, r"lists\['rank'\] must be an array of"),
        (TWO | {"rank": np.array([1, 2], dtype="m8[s]")}, TypeError, r"lists\['rank'\] must be an array of"),
        (TWO | {"rank": ["x", "y"]}, TypeError, r"lists\['rank'\] must be numbers, got the text 'x'"),
        (TWO | {"rank": 1}, ValueError, r"lists\['rank'\] must have 1 dimension, got shape \(\)"),
        (TWO | {"rank": [1]}, ValueError, r"lists\['rank'\] must have shape \(2,\), got \(1,\)"),
    ],
)
def test_bad_lists_are_named(lists, error, message):
    train, test = Interactions.from_arrays([1, 2, 2], [9, 10, 11]), Interactions.from_arrays([1], [10])
    with pytest.raises(error, match=message):
        evaluate_lists(lists, train, test)


@pytest.mark.parametrize("name", ["auc", "mpr", "rmse"])
def test_metrics_of_all_items_are_refused(name):
    train, test = Interactions.from_arrays([1, 2], [9, 10]), Interactions.from_arrays([1], [10])
    with pytest.raises(ValueError, match=rf"metrics \['{name}'\] are not defined for lists; use evaluate with a model"):
        evaluate_lists({"user": [1], "item": [10]}, train, test, [name])


def test_no_warning_without_a_cause():
    data = dense_data()
    train, test = next(RandomHoldout(n=2).split(data, key=KEY))
    users = np.repeat(test.user_ids, np.diff(test.indptr))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate_lists({"user": users, "item": test.item_ids[test.indices]}, train, test, ["recall@2", "ndcg"])
    assert result == {"recall@2": 1.0, "ndcg": 1.0}
    assert result == evaluate(_Oracle(test), train, test, metrics=["recall@2", "ndcg"])
    assert result != evaluate(random_table(data), train, test, metrics=["recall@2", "ndcg"])


class _Oracle:
    """Model that ranks the test items first."""

    def __init__(self, test):
        self.test = test

    def score_items(self, user_ids):
        return self.test.to_scipy().toarray()[self.test.user_index(user_ids)]
