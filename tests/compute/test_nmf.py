"""Non-negative factorisation: rows against SciPy's active set method, and a loss that never rises."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import nmf as naive
from support.strategies import seeds

from fastfedrec import Interactions, Key, hardware
from fastfedrec.compute.nmf import fit_nmf, solve_rows_nonnegative


def problem(n, m, n_factors, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    held = rng.random((n, m)) < 0.6
    x = rng.integers(0, 6, (n, m)) * held
    v = rng.random((m, n_factors))
    return x.astype(dtype), held, (v - 0.2 * rng.random()).astype(dtype), rng.random((n, m)).astype(dtype)


def observed(x, held):
    return Interactions.from_scipy(scipy.sparse.csr_array((x[held], np.nonzero(held)), shape=x.shape))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n=st.integers(1, 6),
    m=st.integers(1, 150),
    n_factors=st.integers(1, 40),
    form=st.sampled_from(["sparse", "weighted sparse", "dense", "weighted dense"]),
    regularization=st.floats(0.5, 20),
)
def test_rows_equal_the_active_set_method(seed, n, m, n_factors, form, regularization):
    x, held, v, weights = problem(n, m, n_factors, seed)
    held[0, 0] = True
    data = observed(x, held) if "sparse" in form else x
    mask = held if "sparse" in form else np.ones_like(held)
    w = weights * mask if "weighted" in form else mask.astype(float)
    given_weights = None if "weighted" not in form else weights[held] if "sparse" in form else w
    got = solve_rows_nonnegative(
        data, v, regularization=regularization, weights=given_weights, max_sweeps=20_000, tolerance=1e-10
    )
    assert (got >= 0).all()
    dtype_tolerance = 1e-7 if got.dtype == np.float64 else 1e-3
    for u in range(n):
        expected = naive.solve_row(x[u], w[u], v, regularization)
        np.testing.assert_allclose(got[u], expected, atol=dtype_tolerance * max(1, expected.max()))


@given(
    seed=seeds(),
    n=st.integers(1, 4),
    m=st.integers(1, 150),
    n_factors=st.integers(2, 40),
    n_sweeps=st.integers(1, 4),
    form=st.sampled_from(["sparse", "weighted sparse", "dense", "weighted dense"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    instruction_set=st.sampled_from(hardware.instruction_sets()),
)
def test_so_many_sweeps_are_those_steps(seed, n, m, n_factors, n_sweeps, form, dtype, instruction_set):
    """With few sweeps and with many beside the number of factors, which take different code."""
    x, held, v, weights = problem(n, m, n_factors, seed, dtype)
    held[0, 0] = True
    v[:, 0] = 0  # a factor that no entry has
    start = np.random.default_rng(seed).random((n, n_factors))
    sparse, weighted = "sparse" in form, "weighted" in form
    data = observed(x, held) if sparse else x
    mask = held.astype(float) if sparse else np.ones_like(x)
    with hardware.use_instruction_set(instruction_set):
        got = solve_rows_nonnegative(
            data, v, regularization=0.5, start=start, max_sweeps=n_sweeps, tolerance=0.0,
            weights=None if not weighted else weights[held] if sparse else weights,
        )  # fmt: skip
    for u in range(n):
        w = mask[u] * (weights[u] if weighted else 1)
        expected = naive.descend_row(x[u], w, v, 0.5, start[u], n_sweeps) if mask[u].any() else np.zeros(n_factors)
        # The twin computes in double, from which single precision may differ by 2e-3 after these sweeps.
        tolerance = 1e-9 if got.dtype == np.float64 else 2e-3
        np.testing.assert_allclose(got[u], expected, atol=tolerance * max(1, expected.max()))


def test_a_row_too_long_for_the_cache_takes_the_same_steps():
    x, _, v, _ = problem(1, 40_000, 6, 3)
    start = np.ones((1, 6))
    weights = np.ones((1, 40_000))
    got = solve_rows_nonnegative(x, v, regularization=1.0, weights=weights, start=start, max_sweeps=2, tolerance=0.0)
    expected = naive.descend_row(x[0], np.ones(40_000), v, 1.0, start[0], 2)
    np.testing.assert_allclose(got[0], expected, rtol=1e-9)


@given(seed=seeds(), dtype=st.sampled_from([np.float32, np.float64]), n_factors=st.sampled_from([1, 7, 16, 17, 33]))
def test_one_epoch_with_many_sweeps_is_two_exact_halves(seed, dtype, n_factors):
    x, _, _, weights = problem(12, 9, n_factors, seed, dtype)
    key = Key.from_seed(seed)
    result = fit_nmf(x, n_factors, regularization=1.0, n_epochs=1, n_sweeps=5_000, weights=weights, key=key)
    repeated = solve_rows_nonnegative(x.T.copy(), result.row_factors, regularization=1.0, weights=weights.T.copy())
    np.testing.assert_allclose(result.item_factors, repeated, atol=1e-2 if dtype == np.float32 else 1e-4)


@given(
    seed=seeds(),
    n_factors=st.sampled_from([1, 4, 9, 16, 17, 24, 33, 48, 64, 65, 130, 256]),
    m=st.integers(1, 70),
    regularization=st.sampled_from([0.0, 0.7]),
    form=st.sampled_from(["sparse", "weighted sparse", "dense", "weighted dense"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    instruction_set=st.sampled_from(hardware.instruction_sets()),
)
def test_an_epoch_of_multiplicative_steps_is_those_steps(
    seed, n_factors, m, regularization, form, dtype, instruction_set
):
    """All rows, and then all items for the rows' new factors."""
    x, held, _, weights = problem(7, m, 1, seed, dtype)
    held[0, 0] = True
    weights[:, 0] = 0  # an item that no entry has
    data = observed(x, held) if "sparse" in form else x
    w = (held if "sparse" in form else np.ones_like(held)) * (weights if "weighted" in form else 1.0)
    given_weights = None if "weighted" not in form else weights[held] if "sparse" in form else weights
    with hardware.use_instruction_set(instruction_set):
        before, after = (
            fit_nmf(
                data, n_factors, regularization=regularization, n_epochs=n, solver="mu", weights=given_weights,
                key=Key.from_seed(seed),
            )
            for n in (1, 2)
        )  # fmt: skip
    rows = naive.multiply_rows(x, w, before.row_factors, before.item_factors, regularization)
    items = naive.multiply_rows(x.T, w.T, before.item_factors, rows, regularization)
    rtol = 1e-9 if after.row_factors.dtype == np.float64 else 1e-3
    np.testing.assert_allclose(after.row_factors, rows, rtol=rtol, atol=1e-30)
    np.testing.assert_allclose(after.item_factors, items, rtol=rtol, atol=1e-30)


def test_multiplicative_epochs_are_those_of_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    x = np.random.default_rng(1).random((30, 20)) + 0.1
    started, result = (
        fit_nmf(x, 4, regularization=0.6, n_epochs=n, solver="mu", key=Key.from_seed(1)) for n in (1, 11)
    )
    # scikit-learn multiplies penalties by the numbers of items and of rows; it starts from the factors of one epoch.
    theirs = decomposition.NMF(
        4, solver="mu", init="custom", max_iter=10, tol=0, alpha_W=0.6 / 20, alpha_H=0.6 / 30, l1_ratio=0
    )
    rows = theirs.fit_transform(x, W=started.row_factors, H=started.item_factors.T.copy())
    np.testing.assert_allclose(result.row_factors, rows, rtol=1e-9)
    np.testing.assert_allclose(result.item_factors, theirs.components_.T, rtol=1e-9)


def test_a_multiplicative_step_is_that_of_cornac():
    """Cornac moves items by the users' old factors, and weighs the regularization by numbers of entries."""
    cornac = pytest.importorskip("cornac")
    x = np.random.default_rng(1).integers(1, 6, (12, 9)).astype(np.float32)
    everywhere = np.ones(x.shape, dtype=bool)
    started, result = (
        fit_nmf(observed(x, everywhere), 4, regularization=0.9, n_epochs=n, solver="mu", key=Key.from_seed(1))
        for n in (1, 2)
    )
    # Cornac scales its penalties by each row's number of entries, which is 9 for users and 12 for items here.
    entries = [(u, i, float(x[u, i])) for u, i in np.ndindex(*x.shape)]
    first = {"U": started.row_factors.copy(), "V": started.item_factors.copy()}
    theirs = cornac.models.NMF(k=4, max_iter=1, lambda_u=0.9 / 9, lambda_v=0.9 / 12, init_params=first, seed=1)
    theirs.fit(cornac.data.Dataset.from_uir(entries))
    np.testing.assert_allclose(result.row_factors, theirs.u_factors, rtol=1e-5)
    items = naive.multiply_rows(x.T, everywhere.T, started.item_factors, started.row_factors, 0.9)
    np.testing.assert_allclose(items, theirs.i_factors, rtol=1e-5)
    assert np.abs(result.item_factors / items - 1).max() > 1e-3


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=seeds(),
    form=st.sampled_from(["sparse", "dense", "weighted dense"]),
    regularization=st.floats(0, 5),
    solver=st.sampled_from(["cd", "mu"]),
)
def test_loss_never_rises_and_factors_stay_nonnegative(seed, form, regularization, solver):
    x, held, _, weights = problem(10, 12, 3, seed)
    held[0, 0] = True
    data = observed(x, held) if form == "sparse" else x
    w = held.astype(float) if form == "sparse" else weights if "weighted" in form else np.ones_like(x)
    losses = []
    for n_epochs in (1, 2, 4, 8):
        result = fit_nmf(
            data, 3, regularization=regularization, n_epochs=n_epochs, key=Key.from_seed(seed),
            weights=weights if "weighted" in form else None, solver=solver,
        )  # fmt: skip
        assert min(result.row_factors.min(), result.item_factors.min()) >= 0
        losses.append(naive.loss(x, w, result.row_factors, result.item_factors, regularization))
    # The tolerance allows for rounding near the minimum.
    assert all(b <= a * (1 + 1e-5) + 1e-6 for a, b in itertools.pairwise(losses))


def test_loss_rises_where_both_sides_move_by_old_factors():
    """The control of the test above: from products that are four times the entries they go to a quarter, and back."""
    x = w = np.ones((3, 3))
    u = v = np.full((3, 1), 2.0)
    losses, alternating = [naive.loss(x, w, u, v, 0.0)], [naive.loss(x, w, u, v, 0.0)]
    a, b = u, v
    for _ in range(3):
        u, v = naive.multiply_rows(x, w, u, v, 0.0), naive.multiply_rows(x.T, w.T, v, u, 0.0)
        losses.append(naive.loss(x, w, u, v, 0.0))
        a = naive.multiply_rows(x, w, a, b, 0.0)
        b = naive.multiply_rows(x.T, w.T, b, a, 0.0)
        alternating.append(naive.loss(x, w, a, b, 0.0))
    assert any(b > a + 1 for a, b in itertools.pairwise(losses))
    assert all(b <= a for a, b in itertools.pairwise(alternating))


@pytest.mark.parametrize(("solver", "n_epochs"), [("cd", 500), ("mu", 5_000)])
def test_a_matrix_of_low_rank_is_found(solver, n_epochs):
    rng = np.random.default_rng(1)
    x = rng.random((40, 3)) @ rng.random((3, 30))
    result = fit_nmf(x, 3, regularization=0.0, n_epochs=n_epochs, solver=solver, key=Key.from_seed(1))
    assert np.abs(result.row_factors @ result.item_factors.T - x).max() < 0.05


def test_weights_of_zero_are_missing_entries_and_empty_rows_get_zeros():
    x, held, v, _ = problem(8, 9, 4, 5)
    held[3] = False
    held[0, 0] = True
    dense = solve_rows_nonnegative(x, v, regularization=0.7, weights=held.astype(float), tolerance=1e-9)
    sparse = solve_rows_nonnegative(observed(x, held), v, regularization=0.7, tolerance=1e-9)
    np.testing.assert_allclose(dense, sparse, atol=1e-4)
    assert (sparse[3] == 0).all()
    assert (dense[3] == 0).all()


@pytest.mark.parametrize("solver", ["cd", "mu"])
def test_interactions_that_hold_every_item_are_an_array(solver):
    x = np.random.default_rng(1).random((30, 20)).astype(np.float32)
    options = {"regularization": 0.5, "n_epochs": 2, "solver": solver, "key": Key.from_seed(1)}
    whole = observed(x, np.ones(x.shape, dtype=bool))
    assert fit_nmf(whole, 4, **options).row_factors.tobytes() == fit_nmf(x, 4, **options).row_factors.tobytes()
    order = np.random.default_rng(2).permuted(np.tile(np.arange(20, dtype=np.int32), (30, 1)), axis=1)
    # Complete rows in a random order of items take the sparse code, and must give the same factors up to rounding.
    mixed = whole._replace(indices=order.ravel(), values=np.take_along_axis(x, order.astype(int), axis=1).ravel())
    result = fit_nmf(mixed, 4, **options)
    np.testing.assert_allclose(result.row_factors, fit_nmf(x, 4, **options).row_factors, rtol=1e-3, atol=1e-5)
    duplicated = whole._replace(indices=np.where(order == 19, 18, order).ravel())  # as many entries
    # The same number of entries with a repeated item is not a complete matrix.
    other = fit_nmf(duplicated, 4, **options)
    assert not np.allclose(other.item_factors, fit_nmf(x, 4, **options).item_factors, rtol=1e-3)


@pytest.mark.parametrize("form", ["sparse", "dense", "weighted dense"])
@pytest.mark.parametrize("regularization", [0.0, 1.0])
def test_multiplicative_steps_have_zeros_where_nothing_was_liked(form, regularization):
    """Rows and items without entries, or with ratings of 0 alone, give 0 / 0 without regularization."""
    x, held, _, weights = problem(9, 8, 1, 6)
    x[2], x[:, 5] = 0, 0
    held[4], held[:, 1] = False, False
    held[2, 0] = True
    if form != "sparse":
        x[4], x[:, 1] = 0, 0
    result = fit_nmf(
        observed(x, held) if form == "sparse" else x, 3, regularization=regularization, n_epochs=5, solver="mu",
        key=Key.from_seed(1), weights=weights if "weighted" in form else None,
    )  # fmt: skip
    assert (result.row_factors[[2, 4]] == 0).all()
    assert (result.item_factors[[1, 5]] == 0).all()
    assert np.isfinite(result.row_factors).all()
    assert np.isfinite(result.item_factors).all()
    assert result.row_factors[0].min() > 0


def test_a_start_at_the_solution_stays():
    x, _, v, _ = problem(5, 20, 3, 2)
    first = solve_rows_nonnegative(x, v, regularization=1.0, tolerance=1e-12, max_sweeps=10_000)
    repeated = solve_rows_nonnegative(x, v, regularization=1.0, start=first, max_sweeps=1)
    np.testing.assert_allclose(repeated, first, atol=1e-9)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    x, v = np.ones((3, 2)), np.ones((2, 1))
    with pytest.raises(ValueError, match="weights must be at least 0, got -1"):
        solve_rows_nonnegative(x, v, regularization=1.0, weights=-x)
    with pytest.raises(ValueError, match=r"weights must have shape \(3, 2\), got \(2, 3\)"):
        solve_rows_nonnegative(x, v, regularization=1.0, weights=x.T)
    with pytest.raises(ValueError, match="ratings must have at least one entry, got none"):
        fit_nmf(np.zeros((0, 2)), 1, regularization=1.0, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="ratings must be finite, got nan"):
        fit_nmf(x * np.nan, 1, regularization=1.0, key=Key.from_seed(1))
    with pytest.raises(TypeError, match="ratings must be an array of float32 or float64, got dtype <U1"):
        fit_nmf([["a"]], 1, regularization=1.0, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="n_factors must be at most 256, got 257"):
        fit_nmf(x, 257, regularization=1.0, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="ratings must be at least 0 for solver 'mu', got -1"):
        fit_nmf(-x, 1, regularization=1.0, solver="mu", key=Key.from_seed(1))
    with pytest.raises(ValueError, match="solver must be one of"):
        fit_nmf(x, 1, regularization=1.0, solver="hals", key=Key.from_seed(1))
    with pytest.raises(ValueError, match="regularization must be at least 0"):
        fit_nmf(x, 1, regularization=-1.0, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="start must be at least 0, got -1"):
        solve_rows_nonnegative(x, v, regularization=1.0, start=-np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"item_factors must have shape \(2, 'any'\), got \(3, 1\)"):
        solve_rows_nonnegative(x, np.ones((3, 1)), regularization=1.0)
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        fit_nmf(x, 1, regularization=1.0, key=None)


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("solver", ["cd", "mu"])
def test_threads_do_not_change_a_bit(instruction_set, form, solver):
    x, held, _, _ = problem(200, 40, 5, 3, np.float32)
    data = observed(x, held) if form == "sparse" else x
    with hardware.use_instruction_set(instruction_set):
        one, four = (
            fit_nmf(data, 5, regularization=1.0, n_epochs=2, solver=solver, key=Key.from_seed(1), n_threads=n)
            for n in (1, 4)
        )
    assert one.row_factors.tobytes() == four.row_factors.tobytes()
    assert one.item_factors.tobytes() == four.item_factors.tobytes()


# ---- statistics -----------------------------------------------------------------------------------------------------
# Only the initial factors are random, and no claim depends on them.
