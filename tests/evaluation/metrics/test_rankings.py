"""Tests of metrics that are functions: their input, their results, and refused functions."""

import numpy as np
import pytest
from hypothesis import given, settings
from support.evaluation_case import KEY, ByScore, dense_data, interactions, random_table

from fastfedrec import EASE, Interactions, Popularity
from fastfedrec.evaluation import RandomHoldout, Rankings, Sampled, compare, evaluate, parse_metrics


def hits(rankings):
    """Twin of hit@3 for scores without ties."""
    return np.maximum.reduceat(rankings.ranks <= 3, np.searchsorted(rankings.users, np.arange(rankings.n_users)))


def recall(rankings):
    """Twin of recall@3 for scores without ties."""
    return rankings.mean_by_user(rankings.ranks <= 3)


def coverage(rankings):
    """Twin of coverage@3."""
    top = rankings.top(3)
    return len(np.unique(top[top >= 0])) / rankings.n_items


def novelty(rankings):
    """Twin of novelty@3."""
    n_users = np.count_nonzero(rankings.train.interactions_per_user())
    values = -np.log2(np.maximum(rankings.item_counts, 1) / n_users)
    return np.nanmean(np.where(rankings.top(3) >= 0, values[rankings.top(3)], np.nan), axis=1)


def below_half(rankings):
    """Metric that is undefined for users with a single test item."""
    n_test = np.bincount(rankings.users)
    return np.where(n_test > 1, rankings.mean_by_user(rankings.ranks / rankings.n_ranked[rankings.users]), np.nan)


below_half.less_is_better = True


class Untied:
    """Model without ties."""

    def score(self, user_ids, item_ids):
        return np.sin(np.asarray(user_ids) * 1000.0 + np.asarray(item_ids))


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_functions_give_the_figures_of_the_same_metrics():
    train, test = next(RandomHoldout(share=0.3).split(dense_data(), key=KEY))
    names = ["hit@3", "recall@3", "coverage@3", "novelty@3"]
    functions = [hits, recall, coverage, novelty]
    result = evaluate(Untied(), train, test, metrics=[*names, *functions], per_user=True)
    for name, function in zip(names, functions, strict=True):
        assert result[function.__name__] == pytest.approx(result[name], rel=1e-12)
        low, high = result.intervals(key=KEY)[function.__name__]
        assert (low, high) == pytest.approx(result.intervals(key=KEY)[name], rel=1e-12, nan_ok=True)
        if name != "coverage@3":
            np.testing.assert_allclose(result.per_user[function.__name__], result.per_user[name], rtol=1e-12)
    assert "coverage" not in result.per_user


@given(interactions())
@settings(deadline=None, max_examples=30)
def test_ranks_are_the_mean_ranks_of_ties(data):
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    if not test.n_interactions:
        return
    model = random_table(data, n_levels=3)

    def check(rankings):
        users = train.user_index(rankings.user_ids)
        for user, item, rank in zip(users[rankings.users], rankings.items, rankings.ranks, strict=True):
            unseen = np.setdiff1d(np.arange(data.n_items), train.indices[train.indptr[user] : train.indptr[user + 1]])
            scores, own = model.scores[user, unseen], model.scores[user, item]
            assert rank == (scores > own).sum() + ((scores == own).sum() + 1) / 2
        for user, items in zip(users, rankings.top(4), strict=True):
            unseen = np.setdiff1d(np.arange(data.n_items), train.indices[train.indptr[user] : train.indptr[user + 1]])
            best = unseen[np.argsort(-model.scores[user, unseen], kind="stable")][:4].tolist()
            assert items.tolist() == best + [-1] * (4 - len(best))
        return 1.5

    assert evaluate(model, train, test, metrics=[check]) == {"check": 1.5}


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_undefined_values_and_directions_reach_the_comparison():
    train, test = next(RandomHoldout(share=0.1).split(dense_data(), key=KEY))
    results = [evaluate(model, train, test, metrics=[below_half], per_user=True) for model in (Untied(), ByScore())]
    values = results[0].per_user["below_half"]
    assert np.isnan(values).any()
    assert results[0]["below_half"] == pytest.approx(np.nanmean(values))
    compared = compare(results, key=KEY)
    best = min(results, key=lambda result: result["below_half"]).model
    assert compared.verdicts()[0].startswith(f"below_half: {best} scores lowest")
    assert "below_half" in results[0].to_markdown(key=KEY)


def test_batches_and_threads_change_no_rankings():
    train, test = next(RandomHoldout(share=0.3).split(dense_data(), key=KEY))
    for model in (random_table(dense_data()), EASE().fit(train)):
        results = [
            evaluate(model, train, test, metrics=[hits, novelty, coverage], batch_size=size, n_threads=n_threads)
            for size, n_threads in ((1, 1), (2**20, 4))
        ]
        assert results[0] == results[1]


def test_candidates_have_ranks_and_no_lists():
    train, test = next(RandomHoldout(share=0.3).split(dense_data(), key=KEY))
    options = {"candidates": Sampled(9), "key": KEY}
    result = evaluate(Untied(), train, test, metrics=["recall@3", recall], **options)
    assert result["recall"] == pytest.approx(result["recall@3"])
    with pytest.raises(ValueError, match="top needs lists of all unseen items, got candidates; use candidates=None"):
        evaluate(Untied(), train, test, metrics=[coverage], **options)
    with pytest.raises(ValueError, match=r"metrics \['recall'\] are functions, which need one list for each user"):
        evaluate(Untied(), train, test, metrics=[recall], candidates=Sampled(9, per="interaction"), key=KEY)


def test_top_pads_beyond_the_catalogue_and_computes_the_lists_once():
    train, test = next(RandomHoldout(share=0.3).split(dense_data(), key=KEY))
    model = random_table(dense_data())

    def lengths(rankings):
        assert isinstance(rankings, Rankings)
        assert rankings.top(70).shape == (rankings.n_users, 70)
        n_calls = len(model.calls)
        assert (rankings.top(5) == rankings.top(70)[:, :5]).all()
        assert len(model.calls) == n_calls
        return (rankings.top(70) >= 0).sum(axis=1) == rankings.n_ranked

    assert evaluate(model, train, test, metrics=[lengths]) == {"lengths": 1.0}


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_a_function_must_have_a_name_of_its_own():
    with pytest.raises(
        ValueError, match=r"a metric must have a name, got <function .*<lambda>.*define a function by def"
    ):
        parse_metrics([lambda rankings: 0.0])
    with pytest.raises(ValueError, match="a metric must have a name"):
        parse_metrics([Rankings])

    def other():
        """Unused."""

    other.__name__ = "hits"
    with pytest.raises(ValueError, match=r"metrics must have distinct names, got \['hits'\] more than once"):
        parse_metrics([hits, other])


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.ones(3), ValueError, r"must return a value for each user, shape \(2,\), or one number, got shape \(3,\)"),
        (np.array(["a", "b"]), TypeError, "must return real numbers, got dtype <U1"),
        (np.inf, ValueError, "returned an infinite value; return NaN where it is undefined"),
        (None, TypeError, "must return real numbers"),
    ],
)
def test_bad_results_of_a_function_are_named(value, error, message):
    train = Interactions.from_arrays([1, 2, 2], [9, 10, 11])
    test = Interactions.from_arrays([1, 1, 2], [10, 11, 9])

    def mine(rankings):
        return value

    with pytest.raises(error, match=f"metric 'mine' {message}"):
        evaluate(Popularity().fit(train), train, test, metrics=[mine])


def test_bad_arguments_of_rankings_are_named():
    train = Interactions.from_arrays([1, 2, 2], [9, 10, 11])
    test = Interactions.from_arrays([1, 1, 2], [10, 11, 9])

    def mine(rankings):
        with pytest.raises(ValueError, match="k must be at least 1, got 0"):
            rankings.top(0)
        with pytest.raises(ValueError, match=r"one entry for each test interaction, shape \(3,\), got \(2,\)"):
            rankings.mean_by_user([1, 2])
        return 0

    assert evaluate(Popularity().fit(train), train, test, metrics=[mine]) == {"mine": 0.0}
