"""Tests of candidates that the caller gives, against `Sampled` and the naive twin."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import sampled as naive_sampled
from naive.evaluation.metrics import set_metrics
from naive.evaluation.splits import as_sets
from support.evaluation_case import KEY, dense_data, interactions, random_table

from fastfedrec import EASE, Interactions
from fastfedrec.evaluation import LeaveOneOut, RandomHoldout, Sampled, compare, evaluate

METRICS = ("recall@2", "ndcg@3", "hr@1", "map@2", "mrr", "auc", "mpr")


def sampled_lists(train, test, n):
    """Return the items that `Sampled(n)` draws, by user id."""
    ids = train.item_ids
    drawn = naive_sampled.drawn_lists(train, test, n, KEY)
    return {train.user_ids[u]: [ids[item] for item in items] for u, _, items in drawn}


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(interactions(), st.sampled_from([1, 4, 30]), st.sampled_from([1, 2**20]))
@settings(deadline=None, max_examples=40)
@pytest.mark.filterwarnings("ignore:.*tested users have")
def test_the_candidates_of_sampled_give_the_figures_of_sampled(data, n, batch_size):
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))
    lists = sampled_lists(train, test, n)
    if not lists:
        return
    test = test._keep(np.isin(test.user_ids, list(lists))[np.repeat(np.arange(test.n_users), np.diff(test.indptr))])
    model = random_table(data, n_levels=3)
    expected = evaluate(model, train, test, metrics=METRICS, candidates=Sampled(n), key=KEY)
    assert evaluate(model, train, test, metrics=METRICS, candidates=lists, batch_size=batch_size) == expected


def test_factors_give_the_same_ranks():
    data = dense_data()
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))
    lists = sampled_lists(train, test, 20)
    for model in (EASE().fit(train), WithFactors()):
        expected = evaluate(model, train, test, metrics=METRICS, candidates=Sampled(20), key=KEY)
        got = evaluate(model, train, test, metrics=METRICS, candidates=lists)
        assert got == expected
        assert (got.protocol, expected.protocol) == ("20 given candidates", "20 sampled unseen items")


class WithFactors:
    """Model with factors that depend on the ids."""

    def factors(self, user_ids, item_ids):
        return np.cos(np.outer(user_ids, [1.0, 2.0])), np.sin(np.outer(item_ids, [3.0, 5.0]))


@given(interactions(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
@pytest.mark.filterwarnings("ignore:.*candidates are not ranked")
def test_any_candidates_equal_naive(data, seed):
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))
    if not test.n_interactions:
        return
    rng = np.random.default_rng(seed)
    lists = {u: rng.choice(data.n_items, min(data.n_items, rng.integers(1, 6))) for u in range(data.n_users)}
    model, trained, tested = random_table(data, n_levels=3), as_sets(train), as_sets(test)
    got = evaluate(
        model, train, test, metrics=METRICS[:5], candidates={data.user_ids[u]: data.item_ids[lists[u]] for u in lists}
    )
    for name in METRICS[:5]:
        kind, _, cutoff = name.partition("@")
        values = []
        for u in (u for u in range(data.n_users) if tested[u]):
            ranked = {*tested[u], *(set(lists[u].tolist()) - set(trained[u]))}
            scores = {item: model.scores[u, item] for item in ranked}
            kind = "hit" if kind == "hr" else kind
            values.append(set_metrics.expectation(kind, int(cutoff) if cutoff else None, scores, set(tested[u])))
        assert got[name] == pytest.approx(np.mean(values), rel=1e-12, abs=1e-12), name


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_every_form_gives_the_same_figures():
    pandas = pytest.importorskip("pandas")
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    lists = sampled_lists(train, test, 7)
    users, items = np.repeat(list(lists), 7), np.concatenate(list(lists.values()))
    matrix = scipy.sparse.coo_array((np.ones(len(users)), (users, items)), shape=data.shape)
    rectangle = np.array([lists[u] for u in test.user_ids.tolist()])
    forms = [
        {u: np.array(row) for u, row in lists.items()},
        {u: iter(row) for u, row in lists.items()},
        {u: [*row, row[0], row[0]] for u, row in lists.items()},  # repeated candidates count once
        [lists[u] for u in test.user_ids.tolist()],
        rectangle,
        pandas.DataFrame({"user": users, "item": items}),
        matrix,
        Interactions.from_arrays(users, items),
    ]
    results = [evaluate(EASE().fit(train), train, test, metrics=METRICS, candidates=form) for form in forms]
    assert all(result == results[0] for result in results)
    other = evaluate(WithFactors(), train, test, metrics=METRICS, candidates=lists)
    assert len(compare([results[0], other]).tests) == len(METRICS)


def test_results_of_other_candidates_are_not_compared():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    lists = sampled_lists(train, test, 7)
    first = evaluate(EASE().fit(train), train, test, candidates=lists)
    lists[0] = [lists[0][0], *sorted(set(range(60)) - {*lists[0], *as_sets(train)[0], *as_sets(test)[0]})[:6]]
    other = evaluate(WithFactors(), train, test, candidates=lists)
    with pytest.raises(ValueError, match="results must be of the same given candidates"):
        compare([first, other])


def test_a_model_ranks_unknown_candidates_last_and_long_lists_of_one_user_need_no_wide_batch():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    lists = {u: [0] if u else list(range(60)) for u in range(40)}
    with pytest.warns(UserWarning, match=r"candidates are not ranked: 0 are items outside train, and \d+ are in train"):
        whole = evaluate(random_table(data), train, test, metrics=METRICS, candidates=lists)
    model = random_table(data)
    with pytest.warns(UserWarning, match="candidates are not ranked"):
        parts = evaluate(model, train, test, metrics=METRICS, candidates=lists, batch_size=70)
    assert parts == whole
    assert max(model.calls) <= 70


@pytest.mark.parametrize("batch_size", [1, 500, 2**20])
def test_rows_of_scores_give_the_ranks_of_scores_of_pairs(batch_size):
    data = dense_data()
    train, test = next(RandomHoldout(n=3).split(data, key=KEY))
    pairs = random_table(data)

    class Rows:
        def score_items(self, user_ids):
            return pairs.scores[data.user_index(user_ids)]

    for candidates in (Sampled(20), Sampled(20, per="interaction"), sampled_lists(train, test, 20)):
        options = {"metrics": METRICS, "candidates": candidates, "key": KEY, "batch_size": batch_size}
        assert evaluate(Rows(), train, test, **options) == evaluate(pairs, train, test, **options)


@pytest.mark.filterwarnings("ignore:.*candidates are not ranked")
def test_candidates_may_be_dates():
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[ns]")
    train, test = Interactions.from_arrays([1, 2, 2], days), Interactions.from_arrays([1], days[1:2])
    model = random_table(train)
    as_array, as_list = (evaluate(model, train, test, candidates={1: given}) for given in (days[1:], list(days[1:])))
    assert as_array == as_list


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        (99, TypeError, r"candidates must be Sampled, or item ids of each user, got 99; use Sampled\(99\)"),
        ("file", TypeError, "or read_test_negatives"),
        ([[1]], ValueError, "candidates must have a list for each user of the test, 40, got 1; pass a dict"),
        ({0: 3}, TypeError, "candidates of user 0 must be a sequence of item ids, got 3; pass a list"),
        ({0: np.array(3)}, TypeError, r"candidates of user 0 must be a sequence of item ids, got array\(3\); pass a"),
        ({0: np.ma.array([3, 4], mask=[0, 1])}, ValueError, r"candidates of user 0\[1\] is missing \(masked or null\)"),
        ({0: "ab"}, TypeError, "candidates of user 0 must be a sequence of item ids, got 'ab'"),
        (
            {0: [1]},
            ValueError,
            "candidates must list an item for each tested user, but 39 of 40 have none, the first 1",
        ),
        ({u: [] if u == 3 else [u] for u in range(40)}, ValueError, "but 1 of 40 have none, the first 3"),
        ({str(u): [u] for u in range(40)}, TypeError, "user ids"),
        (object(), TypeError, "candidates must be Interactions"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*candidates are not ranked")
def test_bad_candidates_are_named(candidates, error, message):
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    with pytest.raises(error, match=message):
        evaluate(random_table(data), train, test, candidates=candidates)


def test_metrics_of_lists_need_all_items():
    data = dense_data()
    train, test = next(LeaveOneOut().split(data, key=KEY))
    for name in ("coverage@5", "novelty@5", "diversity@5"):
        with pytest.raises(ValueError, match=rf"metrics \['{name}'\] need lists of all unseen items"):
            evaluate(random_table(data), train, test, metrics=[name], candidates=[[1]] * 40)
