"""Tests of novelty and diversity against naive twins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.evaluation.metrics import beyond_accuracy as naive
from support.evaluation_case import KEY, dense_data, interactions

from fastfedrec import EASE, Interactions
from fastfedrec.evaluation import RandomHoldout, evaluate
from fastfedrec.evaluation.metrics.beyond_accuracy import diversity, novelty


def lists_of(rng, n_users, n_items, k):
    """Return lists of distinct items, some of them short or empty, and some with a gap."""
    lists = np.full((n_users, k), -1, dtype=np.int32)
    for row in lists:
        n = rng.integers(0, min(k, n_items) + 1)
        row[rng.choice(k, n, replace=False)] = rng.choice(n_items, n, replace=False)
    return lists


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(interactions(), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_novelty_and_diversity_equal_naive(data, k, seed):
    lists = lists_of(np.random.default_rng(seed), 7, data.n_items, k)
    items = [[item for item in row if item >= 0] for row in lists.tolist()]
    if data.n_interactions:
        expected = [naive.novelty(row, data) for row in items]
        np.testing.assert_allclose(novelty(lists, data), expected, rtol=1e-12, atol=1e-12)
    expected = [naive.diversity(row, data) for row in items]
    np.testing.assert_allclose(diversity(lists, data), expected, rtol=1e-12, atol=1e-12)


def test_evaluate_measures_the_lists_that_a_model_recommends():
    data = dense_data()
    train, test = next(RandomHoldout(share=0.3).split(data, key=KEY))
    model = EASE().fit(train)
    items, _ = model.recommend(test.user_ids, 5)
    lists = train.item_index(np.asarray(items).ravel()).reshape(len(items), 5)
    result = evaluate(model, train, test, metrics=["novelty@5", "diversity@5", "coverage@5"], per_user=True)
    for name, twin in (("novelty@5", naive.novelty), ("diversity@5", naive.diversity)):
        np.testing.assert_allclose(result.per_user[name], [twin(row, train) for row in lists.tolist()], rtol=1e-12)
        low, high = result.intervals(key=KEY)[name]
        assert low < result[name] < high


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_values_by_hand():
    train = Interactions.from_arrays([1, 2, 3, 4, 1, 2, 3], [0, 0, 0, 0, 1, 1, 2], item_ids=[0, 1, 2, 3])
    lists = np.array([[0, -1], [1, 2], [3, 2], [0, 1]], dtype=np.int32)
    # Items 0 to 3 have 4, 2, 1 and 0 of the 4 users; an item without users counts as one with a user.
    assert novelty(lists, train).tolist() == [0.0, 1.5, 2.0, 0.5]
    values = diversity(lists, train)
    assert np.isnan(values[0])  # no pair
    assert values[1:].tolist() == pytest.approx([1.0, 1.0, 1 - 2 / np.sqrt(8)])


def test_blocks_do_not_change_the_diversity(monkeypatch):
    from fastfedrec.evaluation.metrics import beyond_accuracy

    data = dense_data()
    lists = lists_of(np.random.default_rng(2), 50, data.n_items, 8)
    whole = diversity(lists, data)
    monkeypatch.setattr(beyond_accuracy, "_BLOCK_PAIRS", 60)
    np.testing.assert_array_equal(diversity(lists, data), whole)
