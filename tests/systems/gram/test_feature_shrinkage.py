"""Estimates of pairs with a prior from features: the twin, large matrices, useful features and random ones."""

import tracemalloc

import numpy as np
import pytest
from naive.systems.gram import shrinkage as naive
from support.feature_case import grouped, hit_ratio_of

from fastfedrec import DPGram, DPSubspace, Key, ShuffledSketchGram
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.systems._feature_prior import prior_factors
from fastfedrec.systems.gram import shrinkage
from fastfedrec.systems.gram._feature_shrinkage import (
    denoise_signed,
    denoise_with_features,
    estimate_popularity,
    fitted_prior,
)
from fastfedrec.systems.gram.shrinkage import denoise_pairs


def case(n=70, noise=1.0, seed=3, strength=4.0):
    """Return a noisy matrix of pairs of items in groups, the clean one, the features and the popularity."""
    rng = np.random.default_rng(seed)
    groups, popularity = rng.integers(0, 5, n), 0.1 + rng.random(n)
    table = {"group": groups.astype(str), "noise": rng.integers(0, 4, n).astype(str)}
    features = ItemFeatures.of("item_features", table).align("item_features", np.arange(n))
    prior, _ = prior_factors(features, popularity)
    tastes = rng.normal(size=(n, 3))
    upper = np.triu(noise * rng.normal(size=(n, n)), 1)
    clean = strength * prior @ prior.T + tastes @ tastes.T
    return (clean + upper + upper.T).astype(np.float32), clean, features, popularity


def difference(factors, clean):
    off = ~np.eye(len(clean), dtype=bool)
    return np.linalg.norm((factors @ factors.T - clean)[off])


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.2, 1.0, 3.0])
def test_estimate_equals_naive_twin(noise):
    matrix, _, features, popularity = case(noise=noise)
    priors = [g @ g.T for g in prior_factors(features, popularity)]
    expected = naive.denoise_with_priors(matrix, noise, priors, popularity)
    factors = denoise_with_features(matrix, noise, features, popularity, rank=70)
    np.testing.assert_allclose(factors @ factors.T, expected, atol=2e-3 * np.abs(expected).max())


def test_a_large_matrix_has_the_estimate_of_a_full_decomposition(monkeypatch):
    matrix, _, features, popularity = case(900, 3.0)
    expected = denoise_with_features(matrix.copy(), 3.0, features, popularity, rank=150)
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    factors = denoise_with_features(matrix, 3.0, features, popularity, rank=150)
    apart = np.linalg.norm(factors @ factors.T - expected @ expected.T)
    assert apart < 0.02 * np.linalg.norm(expected @ expected.T)


def test_strong_signals_add_no_eigenvalue_below_0_in_a_large_matrix(monkeypatch):
    """Strong signals are at the other end of the spectrum from the eigenvalues below 0."""
    rng, n = np.random.default_rng(4), 450
    vectors = np.linalg.qr(rng.normal(size=(n, 8)))[0]
    noise = np.triu(rng.normal(size=(n, n)), 1)
    matrix = ((vectors * np.linspace(800, 200, 8)) @ vectors.T + noise + noise.T).astype(np.float32)
    expected, _ = denoise_signed(matrix, 1.0, rank=100)
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    values, _ = denoise_signed(matrix, 1.0, rank=100)
    # The clean matrix has no eigenvalue below 0, so negative ones are noise, within a part of its radius.
    radius = 2 * np.sqrt(n)
    assert -0.5 * radius < expected.min() < 0
    assert -0.5 * radius < values.min() < 0
    np.testing.assert_allclose(values[:8], expected[:8], rtol=1e-3)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_without_informative_features_the_estimate_is_that_of_pairs():
    matrix, _, _, popularity = case()
    np.testing.assert_array_equal(denoise_with_features(matrix, 1.0, None, popularity), denoise_pairs(matrix, 1.0))
    # The result is the same if the matrix confirms no feature.
    lone = ItemFeatures.of("x", {"noise": np.random.default_rng(8).integers(0, 4, 70).astype(str)}).align(
        "x", range(70)
    )
    assert fitted_prior(matrix, 1.0, prior_factors(lone, popularity), popularity).shape == (70, 0)
    np.testing.assert_array_equal(denoise_with_features(matrix, 1.0, lone, popularity), denoise_pairs(matrix, 1.0))


def test_informative_features_improve_the_estimate_and_random_ones_are_ignored():
    matrix, clean, features, popularity = case(300, 2.0)
    group_prior, _ = prior_factors(features, popularity)
    prior = fitted_prior(matrix, 2.0, prior_factors(features, popularity), popularity)
    assert prior.shape == group_prior.shape  # the random feature has no column
    assert np.square(prior).sum() / np.square(group_prior).sum() == pytest.approx(4.0, rel=0.1)
    without = difference(denoise_pairs(matrix, 2.0), clean)
    assert difference(denoise_with_features(matrix, 2.0, features, popularity), clean) < 0.9 * without


def test_eigenvalues_below_0_correct_a_prior_that_is_too_large():
    """Some groups have a signal and others have none, so eigenvalues below 0 must correct the prior."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(6), 50)
    clean = 6.0 * (groups[:, None] == groups) * (groups < 3)
    upper = np.triu(rng.normal(size=(300, 300)), 1)
    matrix = (clean + upper + upper.T).astype(np.float32)
    features = ItemFeatures.of("x", {"group": groups.astype(str)}).align("x", range(300))
    factors = denoise_with_features(matrix, 1.0, features, np.ones(300))
    within = (factors @ factors.T)[150:, 150:][groups[150:, None] == groups[150:]]
    assert np.abs(within).mean() < 0.1 * 6.0


def test_memory_grows_with_items_and_dimensions_alone():
    matrix, _, features, popularity = case(1500)
    priors = prior_factors(features, popularity)
    tracemalloc.start()
    try:
        fitted_prior(matrix, 1.0, priors, popularity)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1500**2


def test_popularity_of_pairs_that_are_not_centred():
    rng = np.random.default_rng(2)
    shares = rng.random(400) ** 2 + 0.02
    upper = np.triu(0.1 * rng.normal(size=(400, 400)), 1)
    matrix = (np.outer(shares, shares) + upper + upper.T).astype(np.float32)
    np.fill_diagonal(matrix, 1e6)  # the diagonal is ignored
    estimated = estimate_popularity(matrix)
    assert np.corrcoef(estimated, shares)[0, 1] > 0.98
    assert estimated.min() > 0


@pytest.mark.parametrize("is_large", [False, True])
def test_threads_give_the_same_bits(monkeypatch, is_large):
    if is_large:
        monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    matrix, _, features, popularity = case(400)
    one, four = (denoise_with_features(matrix.copy(), 1.0, features, popularity, rank=60, n_threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one, four)


# ---- statistics -----------------------------------------------------------------------------------------------------


def hits(kind, epsilon, seeds, tables, *, n_users, n_items, **options):
    """Return the mean HR@10 of fits with each table of features, for users who prefer groups of items."""
    ratios = np.zeros(len(tables))
    for seed in seeds:
        train, test, groups = grouped(n_users, n_items, seed)
        for number, table in enumerate(tables):
            model = kind(epsilon, item_features=table(groups, np.random.default_rng(seed)), **options)
            ratios[number] += hit_ratio_of(model.fit(train, key=Key.from_seed(seed)), train, test) / len(seeds)
    return ratios


def nothing(groups, rng):
    return None


def true_groups(groups, rng):
    return {"group": groups, "noise": rng.permutation(groups)}


def pure_noise(groups, rng):
    n = len(groups)
    return {"label": rng.permutation(groups), "number": rng.normal(size=n), "vector": rng.normal(size=(n, 40))}


CASES = {
    "DPGram": (DPGram, 1.0, {"n_users": 3000, "n_items": 300}),
    "ShuffledSketchGram": (ShuffledSketchGram, 2.0, {"n_users": 3000, "n_items": 200}),
    "DPSubspace": (DPSubspace, 1.0, {"n_users": 5000, "n_items": 800}),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_true_groups_help_and_random_ones_cost_little(name):
    kind, epsilon, options = CASES[name]
    without, useful, useless = hits(kind, epsilon, (1, 2, 3), (nothing, true_groups, pure_noise), **options)
    assert useful > without + 0.05
    assert abs(useless - without) < 0.005
