"""The nearest estimate without negative sums over pairs: its twin, its sum, and its distance from the truth."""

import numpy as np
import pytest
from naive.systems.gram import non_negative as naive

from fastfedrec.systems.gram import non_negative as module
from fastfedrec.systems.gram.non_negative import non_negative


def case(n, rank, seed=1):
    """Return factors of a matrix with entries of both signs, and the shared part."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, rank)) * np.geomspace(1.0, 0.1, rank)
    return factors, rng.uniform(0.02, 0.2, size=n)


def pairs_of(factors, shared):
    """Return the entries of L L' + s s', with 0 on the diagonal."""
    pairs = factors @ factors.T + np.outer(shared, shared)
    np.fill_diagonal(pairs, 0.0)
    return pairs


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("rows", [2, 1024])
def test_the_matrix_equals_naive_twin(monkeypatch, n, rows):
    monkeypatch.setattr(module, "_ROWS", rows)
    factors, shared = case(n, n)
    result = non_negative(factors, shared)
    matrix, expected = factors @ factors.T, naive.non_negative(factors @ factors.T, shared)
    np.testing.assert_allclose(result @ result.T, expected, atol=1e-5 * matrix.max())
    if n > 2:  # the controls: no shift, and no shared part
        for wrong in (naive.non_negative(matrix, shared, has_shift=False), naive.non_negative(matrix, 0 * shared)):
            assert np.abs(wrong - expected).max() > 1e-3 * matrix.max()


def test_a_subspace_of_few_directions_has_the_strongest_ones_of_the_matrix():
    factors, shared = case(200, 30)
    result = non_negative(factors, shared)
    expected = naive.non_negative(factors @ factors.T, shared)
    values, vectors = np.linalg.eigh(expected)
    best = (vectors[:, -30:] * values[-30:]) @ vectors[:, -30:].T
    least = np.linalg.norm(best - expected)
    # The result is nearer to the best matrix of its rank than the matrix within the space of the factors themselves.
    basis = np.linalg.qr(factors)[0]
    within = basis @ basis.T @ expected @ basis @ basis.T
    losses = [np.linalg.norm(found - expected) - least for found in (result @ result.T, within)]
    assert losses[0] < 0.5 * losses[1], (losses, least)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_an_estimate_without_negative_pairs_stays_as_it_is():
    factors, shared = np.abs(case(40, 6)[0]), np.full(40, 0.5)
    result = non_negative(factors, shared)
    np.testing.assert_allclose(result @ result.T, factors @ factors.T, atol=1e-5)


def test_the_sum_of_all_pairs_stays_and_negative_pairs_shrink():
    factors, shared = case(60, 60)
    before, after = pairs_of(factors, shared), pairs_of(non_negative(factors, shared), shared)
    assert np.minimum(after, 0).sum() > 0.2 * np.minimum(before, 0).sum()
    cut = np.maximum(before, 0)
    assert abs(after.sum() - before.sum()) < 0.2 * abs(cut.sum() - before.sum())


def test_factors_are_orthogonal_strongest_first_and_independent_of_their_signs():
    factors, shared = case(50, 12)
    result = non_negative(factors, shared)
    inner = result.T @ result
    assert 1 < len(inner) <= 12
    np.testing.assert_allclose(inner, np.diag(inner.diagonal()), atol=1e-5 * inner.max())
    assert (np.diff(inner.diagonal()) <= 0).all()
    np.testing.assert_allclose(non_negative(-factors, shared), result, atol=1e-4)


def test_an_estimate_without_columns_stays_empty():
    assert non_negative(np.zeros((4, 0)), np.ones(4)).shape == (4, 0)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_negative", [False, True])
def test_sums_that_are_not_negative_are_nearer_to_the_result(is_negative):
    """The control has sums of both signs, and there the estimate is nearer than the result."""
    rng, n = np.random.default_rng(7), 120
    groups, shared = rng.integers(0, 6, n), np.full(n, 0.4)
    signs = np.where(groups % 2, 1.0, -1.0)
    true = np.outer(signs, signs) if is_negative else 1.0 * (groups[:, None] == groups)
    noise = np.triu(0.3 * rng.normal(size=(n, n)), 1)
    values, vectors = np.linalg.eigh(true + noise + noise.T)
    factors = (vectors * np.sqrt(np.maximum(values, 0)))[:, values > 0]

    def distance(found):
        return np.linalg.norm(pairs_of(found, shared) - np.where(np.eye(n), 0, true + np.outer(shared, shared)))

    assert (distance(non_negative(factors, shared)) < distance(factors)) != is_negative
