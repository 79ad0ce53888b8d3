"""The rotation-invariant estimator: comparison with its twin and with known limits, and large matrices."""

import ctypes
import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import shrinkage as naive

from fastfedrec.systems.gram import _spectrum, shrinkage
from fastfedrec.systems.gram.shrinkage import denoise_pairs, shrink_eigenvalues


@st.composite
def spectra(draw):
    """Draw up to 12 rising eigenvalues, a count for each, and a noise."""
    values = draw(st.lists(st.floats(-50, 50), min_size=1, max_size=12))
    counts = draw(st.lists(st.floats(0.5, 9), min_size=len(values), max_size=len(values)))
    return np.sort(values), np.array(counts), draw(st.sampled_from([0.01, 0.7, 1.0, 30.0]))


def noisy(n, noise, strengths=(), seed=3, dtype=np.float32):
    """Return a noisy matrix and the clean one, which has these eigenvalues and random eigenvectors."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(n, len(strengths))))[0]
    clean = (directions * np.array(strengths)) @ directions.T if strengths else np.zeros((n, n))
    upper = np.triu(noise * rng.normal(size=(n, n)), 1)
    return (clean + upper + upper.T).astype(dtype), clean


def semicircle(n):
    """Return the eigenvalues of large matrices of noise with standard deviation 1 / sqrt(n) and radius 2."""
    angles = (np.arange(n)[::-1] + 0.5) / n * np.pi
    return 2 * np.cos(angles), 2 * np.sin(angles) ** 2


def large(monkeypatch):
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(case=spectra())
def test_shrunk_values_equal_naive_twin(case):
    np.testing.assert_allclose(shrink_eigenvalues(*case), naive.shrink(*case), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_estimate_equals_naive_twin(noise):
    matrix, _ = noisy(70, noise, (90.0, 40.0, 20.0, 10.0, 5.0))
    np.fill_diagonal(matrix, 7.0)  # the diagonal is ignored
    factors = denoise_pairs(matrix, noise, rank=70)
    np.testing.assert_allclose(factors @ factors.T, naive.denoise(matrix, noise), atol=1e-4 * matrix.max())
    assert (matrix.diagonal() == 7.0).all()


@pytest.mark.parametrize(("noise", "room"), [(0.3, 0.015), (1.0, 0.04)])
def test_a_large_matrix_has_the_estimate_of_a_full_decomposition(monkeypatch, noise, room):
    strengths = tuple(400 / k for k in range(1, 40))
    matrix, _ = noisy(900, noise, strengths)
    expected = denoise_pairs(matrix, noise, rank=150)
    large(monkeypatch)
    factors = denoise_pairs(matrix, noise, rank=150)
    difference = np.linalg.norm(factors @ factors.T - expected @ expected.T)
    assert difference < room * np.linalg.norm(expected @ expected.T)
    squares, full_squares = np.square(factors[:, :20]).sum(axis=0), np.square(expected[:, :20]).sum(axis=0)
    np.testing.assert_allclose(squares, full_squares, atol=0.005 * 2 * noise * math.sqrt(900))


@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_single_precision_is_as_good_as_double(monkeypatch, noise):
    matrix, _ = noisy(600, noise, (90.0, 40.0, 20.0, 10.0, 5.0))
    factors = denoise_pairs(matrix, noise)
    monkeypatch.setattr(_spectrum, "_MIN_SINGLE", 601)
    expected = denoise_pairs(matrix, noise)
    difference = np.linalg.norm(factors @ factors.T - expected @ expected.T)
    assert 0 < difference < 1e-5 * np.linalg.norm(expected @ expected.T)


def test_a_large_matrix_of_few_directions_without_much_noise(monkeypatch):
    matrix, clean = noisy(600, 1e-3, (50.0, 30.0, 20.0))
    large(monkeypatch)
    factors = denoise_pairs(matrix, 1e-3, rank=40)
    off = ~np.eye(600, dtype=bool)
    assert np.abs(factors @ factors.T - clean)[off].max() < 0.02 * np.abs(clean).max()


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(case=spectra())
def test_shrunk_values_never_fall_and_are_not_negative(case):
    shrunk = shrink_eigenvalues(*case)
    assert (np.diff(shrunk) >= 0).all()
    assert (shrunk >= 0).all()


@given(case=spectra(), scale=st.sampled_from([2.0**-8, 4.0, 2.0**20]))
def test_another_unit_is_another_unit_of_the_result(case, scale):
    values, counts, noise = case
    scaled = shrink_eigenvalues(scale * values, counts, scale * noise)
    np.testing.assert_allclose(scaled, scale * shrink_eigenvalues(values, counts, noise), rtol=1e-9, atol=1e-9 * scale)


@given(case=spectra())
def test_a_point_with_a_count_of_two_equals_two_points(case):
    values, counts, noise = case
    repeated = shrink_eigenvalues(np.repeat(values, 2), np.repeat(counts / 2, 2), noise)
    np.testing.assert_allclose(repeated[::2], shrink_eigenvalues(values, counts, noise), rtol=1e-9, atol=1e-9)


@given(strength=st.floats(2.4, 40))
@settings(max_examples=8)
def test_a_separate_eigenvalue_equals_its_known_limit(strength):
    values, counts = semicircle(2000)
    shrunk = shrink_eigenvalues(np.append(values, strength), np.append(counts, 1e-9), 2000**-0.5)[-1]
    limit = math.sqrt(strength**2 - 2**2)
    assert abs(shrunk / limit - 1) < 0.01
    assert shrunk < 0.98 * strength or strength > 10  # the eigenvalue has changed


def test_pure_noise_is_shrunk_to_almost_0_and_a_direction_above_it_stays():
    values, counts = semicircle(2000)
    shrunk = shrink_eigenvalues(values, counts, 2000**-0.5)
    assert shrunk[values < 1].max() < 0.05 * 2
    assert shrunk.max() < 0.25 * 2  # smoothing keeps small values at the edge
    for strengths, bounds in (((), (0.0, 0.15)), ((80.0,), (0.8, 1.1))):
        matrix, clean = noisy(400, 1.0, strengths)
        factors = denoise_pairs(matrix, 1.0)
        size = np.linalg.norm(factors @ factors.T)
        assert bounds[0] <= size / (np.linalg.norm(clean) if strengths else np.linalg.norm(matrix)) <= bounds[1]


def test_the_estimator_turns_with_the_matrix():
    matrix, _ = noisy(60, 1.0, (60.0, 30.0), dtype=np.float64)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(60, 60)))[0]

    def estimate(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * shrink_eigenvalues(values, np.ones(60), 1.0)) @ vectors.T

    np.testing.assert_allclose(estimate(turn @ matrix @ turn.T), turn @ estimate(matrix) @ turn.T, atol=1e-9)


@pytest.mark.parametrize("is_large", [False, True])
def test_the_order_of_items_does_not_matter(monkeypatch, is_large):
    matrix, _ = noisy(300, 1.0, (200.0, 100.0, 60.0))
    if is_large:
        large(monkeypatch)
    order = np.random.default_rng(1).permutation(300)
    one, other = denoise_pairs(matrix, 1.0, rank=60), denoise_pairs(matrix[np.ix_(order, order)], 1.0, rank=60)
    # The large matrix's probes assign the same numbers to other items, so the density differs slightly.
    room = 0.03 if is_large else 1e-4
    expected = (one @ one.T)[np.ix_(order, order)]
    np.testing.assert_allclose(other @ other.T, expected, atol=room * np.abs(expected).max())


@pytest.mark.parametrize("rank", [1, 3, 200])
def test_the_rank_bounds_the_columns_and_the_strongest_is_first(rank):
    matrix, _ = noisy(120, 1.0, (100.0, 80.0, 60.0))
    factors = denoise_pairs(matrix, 1.0, rank=rank)
    squares = np.square(factors).sum(axis=0)
    assert factors.shape[1] <= rank
    assert (np.diff(squares) <= 1e-9 * squares[0]).all()
    assert squares[-1] > 0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_matrices(n):
    factors = denoise_pairs(np.full((n, n), 5.0, dtype=np.float32), 0.1)
    assert np.isfinite(factors).all()
    assert len(factors) == n


def test_a_large_matrix_of_zeros_has_no_factors(monkeypatch):
    large(monkeypatch)
    assert not denoise_pairs(np.zeros((100, 100), dtype=np.float32), 1.0, rank=20).any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    matrix = np.zeros((4, 4), dtype=np.float32)
    for arguments, message in (
        ((matrix[:3], 1.0), "matrix must be square"),
        ((matrix, 0.0), "noise must be greater than 0"),
        ((np.full((4, 4), np.nan, dtype=np.float32), 1.0), "matrix"),
    ):
        with pytest.raises(ValueError, match=message):
            denoise_pairs(*arguments)
    with pytest.raises(ValueError, match="rank must be at least 1"):
        denoise_pairs(matrix, 1.0, rank=0)
    with pytest.raises(ValueError, match="counts"):
        shrink_eigenvalues(np.zeros(3), np.ones(2), 1.0)


@pytest.mark.parametrize("n", [1, 2, 70, 600])
def test_eigenvectors_are_those_of_numpy(n):
    matrix, _ = noisy(n, 1.0)
    diagonal = np.arange(n, dtype=float)
    given = matrix.copy()
    values, vectors, *_ = _spectrum.full_spectrum(matrix, diagonal)
    np.testing.assert_array_equal(matrix, given)
    np.fill_diagonal(given, diagonal)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(given.astype(float)), atol=1e-6 * n)
    np.testing.assert_allclose(given @ vectors, vectors * values, atol=2e-6 * n)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-5)


def test_more_rows_than_lapack_can_count_raise():
    matrix = np.broadcast_to(np.float32(0), (32_767, 32_767))
    with pytest.raises(ValueError, match="matrix must have at most 32,766 rows, got 32,767; take a smaller rank"):
        _spectrum.full_spectrum(matrix, np.zeros(32_767))


def test_eigenvalues_that_do_not_converge_raise(monkeypatch):
    monkeypatch.setattr(_spectrum._kernel, "replace_by_eigenvectors", lambda *_: 3)
    with pytest.raises(np.linalg.LinAlgError, match="eigenvalues of 30 items did not converge; LAPACK returned 3"):
        denoise_pairs(noisy(30, 1.0)[0], 1.0)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_threads(monkeypatch):
    large(monkeypatch)
    monkeypatch.setattr("fastfedrec.systems.gram._spectrum._ROWS", 64)
    matrix, _ = noisy(300, 1.0, (200.0, 100.0, 60.0))
    one, four = (denoise_pairs(matrix, 1.0, rank=40, n_threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one, four)


def turns_during(function):
    """Return how often this thread ran, at most once in 2 ms, while another one called a function five times."""
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(lambda: [function() for _ in range(5)])
        while not calls.done():
            time.sleep(2e-3)
            turns += 1
    return turns


def test_other_threads_run_during_a_decomposition():
    """LAPACK is called without Python's lock, so a decision can evaluate two matrices at the same time."""
    matrix, _ = noisy(900, 1.0)
    turns = turns_during(lambda: _spectrum.full_spectrum(matrix, matrix.diagonal()))
    assert turns > 2 * turns_during(lambda: ctypes.PyDLL(None).usleep(50_000))  # the control keeps the lock


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [20, 80])
def test_a_shrunk_eigenvalue_is_the_clean_matrix_quadratic_form_of_its_vector(crowd):
    """The best value for an eigenvector v is v'Cv; values that are a tenth larger or smaller fit worse."""
    matrix, clean = noisy(1200, 1.0, tuple(np.linspace(45, 110, crowd)), dtype=np.float64)
    values, vectors = np.linalg.eigh(matrix)
    best = np.einsum("ij,ij->j", vectors, clean @ vectors)
    shrunk, edge = shrink_eigenvalues(values, np.ones(1200), 1.0), 2 * math.sqrt(1200)

    def loss(factor):
        return np.square(factor * shrunk - best)[values > edge].sum()

    assert loss(1.0) < 0.01 * np.square(best)[values > edge].sum()
    assert loss(1.0) < loss(0.9)
    assert loss(1.0) < loss(1.1)
