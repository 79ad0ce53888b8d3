"""Priors of item pairs from features, and the part of them that a noisy release confirms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import shrinkage as naive

from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.systems import _feature_prior as feature_prior
from fastfedrec.systems._feature_prior import (
    believed_scales,
    combine,
    hollow_inner,
    prior_factors,
    spread_of_pairs,
    strongest,
)


def aligned(table, n_items):
    return ItemFeatures.of("item_features", table).align("item_features", np.arange(n_items))


@st.composite
def labelled(draw):
    """Return 1 to 9 items with no, one or several labels, and their popularity."""
    labels = draw(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=9))
    some = st.floats(0, 2) | st.just(0.0)
    return labels, np.array(draw(st.lists(some, min_size=len(labels), max_size=len(labels))))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(case=labelled())
def test_priors_equal_naive_twin_and_are_uncorrelated_with_popularity(case):
    labels, popularity = case
    features = aligned({"c": labels}, len(labels))
    rows = features.blocks[0].toarray().astype(float).tolist()
    expected = np.array(naive.prior(rows, popularity.tolist())) if rows[0] else np.zeros((len(rows), len(rows)))
    product = np.zeros_like(expected)
    for factors in prior_factors(features, popularity):
        product += factors @ factors.T
        np.testing.assert_allclose(np.sqrt(popularity) @ factors, 0, atol=1e-6)
    np.testing.assert_allclose(product, expected, atol=1e-6)


@given(seed=st.integers(0, 999), n_blocks=st.integers(1, 4), noise=st.sampled_from([0.01, 0.3, 3.0]))
@settings(max_examples=40)
def test_scales_equal_naive_twin(seed, n_blocks, noise):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(12, 3)) for _ in range(n_blocks)]
    upper = np.triu(noise * rng.normal(size=(12, 12)), 1)
    truth = rng.normal(size=n_blocks)
    matrix = upper + upper.T + sum(a * g @ g.T for a, g in zip(truth, blocks, strict=True))
    np.fill_diagonal(matrix, 0)
    products = np.array([np.sum(g * (matrix @ g)) for g in blocks])
    scales = believed_scales(products, hollow_inner(blocks), spread_of_pairs(hollow_inner(blocks), noise**2))
    expected = naive.scales(matrix, [g @ g.T for g in blocks], noise)
    np.testing.assert_allclose(scales, expected, rtol=1e-3, atol=1e-3 * noise)


@given(seed=st.integers(0, 99), rank=st.integers(1, 9))
def test_combined_priors_are_the_nearest_of_their_rank(seed, rank):
    rng = np.random.default_rng(seed)
    vectors, values, prior = rng.normal(size=(9, 4)), rng.normal(size=4), rng.normal(size=(9, 2))
    whole = (vectors * values) @ vectors.T + prior @ prior.T
    weights, turn = np.linalg.eigh(whole)
    strongest = np.argsort(weights)[::-1][:rank]
    strongest = strongest[weights[strongest] > 1e-9]
    expected = (turn[:, strongest] * weights[strongest]) @ turn[:, strongest].T
    factors = combine(values, vectors, prior, rank)
    np.testing.assert_allclose(factors @ factors.T, expected, atol=1e-8)
    assert (np.diff(np.square(factors).sum(axis=0)) <= 1e-9).all()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_only_the_strongest_of_many_dimensions_remain(monkeypatch):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 40)) * 0.7 ** np.arange(40)
    features, popularity = aligned(vectors, 60), rng.random(60)
    (whole,) = prior_factors(features, popularity)
    monkeypatch.setattr(feature_prior, "_MAX_COLUMNS", 12)
    (few,) = prior_factors(features, popularity)
    assert few.shape[1] == 12
    values = np.linalg.eigvalsh(whole @ whole.T)[::-1]
    assert np.linalg.norm(few @ few.T - whole @ whole.T, 2) <= 1.5 * values[10]
    np.testing.assert_array_equal(few, prior_factors(features, popularity)[0])


def test_a_feature_that_all_items_have_or_none_is_no_prior():
    assert prior_factors(aligned({"a": ["x"] * 4, "b": [None] * 4, "c": [1] * 4}, 4), np.ones(4)) == []


@pytest.mark.parametrize(
    "table", [np.eye(6), {"c": ["a", None, None, None, None, None]}, {"c": [("a",), ("b",), (), (), (), ()]}]
)
def test_features_of_single_items_give_no_prior_of_pairs_or_a_finite_one(table):
    for popularity in (np.ones(6), np.arange(6.0), np.zeros(6), np.array([0.01, 1, 1, 1, 1, 1])):
        blocks = [*prior_factors(aligned(table, 6), popularity), popularity[:, None]]
        scales = believed_scales(np.full(len(blocks), 5.0), hollow_inner(blocks), hollow_inner(blocks))
        assert np.isfinite(scales).all()
        assert (scales >= 0).all()


def test_scales_below_twice_the_noise_are_none_and_large_ones_stay():
    inner = np.array([[4.0]])
    assert believed_scales(np.array([3.9]), inner, inner).tolist() == [0.0]
    assert believed_scales(np.array([-50.0]), inner, inner).tolist() == [0.0]
    assert believed_scales(np.array([4e6]), inner, inner)[0] == pytest.approx(1e6, rel=1e-4)


def test_the_required_signal_is_stated_and_measured_by_the_spread():
    inner = np.diag([4.0, 9.0])
    z = np.array([5.0, 2.5])
    for spread in (inner, np.diag([100.0, 0.01])):
        t = z * np.sqrt(spread.diagonal())
        scales = believed_scales(t, inner, spread, 3.0)
        np.testing.assert_allclose(scales, [t[0] / 4 * (1 - (3 / 5) ** 2), 0.0], rtol=1e-5)


def test_two_equal_columns_share_the_scale_of_the_prior():
    inner = np.full((2, 2), 9.0)
    scales = believed_scales(np.array([900.0, 900.0]), inner, 1e-6 * inner)
    assert scales.sum() == pytest.approx(100, rel=1e-3)


def test_strongest_directions_are_orthonormal_and_at_most_the_rank():
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 5))
    vectors = strongest(factors, 4)
    assert vectors.shape == (20, 3)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-9)
    assert strongest(np.zeros((20, 0)), 4).shape == (20, 0)
