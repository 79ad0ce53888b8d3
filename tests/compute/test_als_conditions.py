"""Tests of the solvers of users' factors on systems that are singular or nearly so, and on factors that overflow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.compute import als as naive
from support.als_case import (
    ANY_TOLERANCE,
    DTYPES,
    TOLERANCE,
    close,
    factors,
    lengths_from_none_to_all,
    ratings,
)
from support.data import of_dense
from support.interaction_case import rows_of
from support.strategies import seeds

from fastfedrec import Interactions, als, hardware

# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_factors", "weight"), [(49, 6.0), (128, 10.0), (128, 40.0), (256, 40.0)])
def test_eigenvalues_that_are_spread_evenly_are_left_to_the_matrix(instruction_set, dtype, n_factors, weight):
    # V'V is the identity, and the user's items have shares from 0 to 1 of it: as many steps as the condition allows.
    shares = np.linspace(0, 1, n_factors + 2)[1:-1]
    v = np.concatenate([np.diag(np.sqrt(shares)), np.diag(np.sqrt(1 - shares))]).astype(dtype)
    data = of_dense(np.repeat([[1.0, 0.0]], n_factors, axis=1))
    with hardware.use_instruction_set(instruction_set):
        got = als.solve_users(data, v, regularization=0.0, confidence_weight=weight)
    expected = (1 + weight) * np.sqrt(shares) / (1 + weight * shares)
    np.testing.assert_allclose(got[0], expected, rtol=10 * TOLERANCE[dtype])


def test_a_user_whom_float32_cannot_solve_keeps_its_own_regularization():
    # Two factors that are nearly the same: pivots too small for float32, so that the plain form solves in double.
    v = np.array([[1, 1], [1, 1 + 1e-4], [2, 2]], dtype=np.float32)
    data = of_dense(np.ones((2, 3)))
    ridges = np.array([1e-3, 2e-3])
    got = als.solve_users(data, v, regularization=ridges, confidence_weight=5.0)
    assert close(got, naive.solve_users(rows_of(data), v, ridges, 5.0, False), 1e-4)


# ---- invariants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("n_factors", [2, 16, 128, 256])
def test_an_ill_conditioned_but_regular_system_is_solved(n_factors, weight):
    # V'V has condition 1e8: far from singular in double, and no reason to refuse.
    rng = np.random.default_rng(n_factors)
    orthonormal = np.linalg.qr(rng.standard_normal((2 * n_factors, n_factors)))[0]
    right = np.linalg.qr(rng.standard_normal((n_factors, n_factors)))[0]
    v = np.ascontiguousarray(orthonormal * np.geomspace(1, 1e-4, n_factors) @ right)
    data = ratings(6, 2 * n_factors)
    got = als.solve_users(data, v, regularization=0.0, confidence_weight=weight)
    expected = naive.solve_users(rows_of(data), v, 0.0, weight, False)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@given(
    seed=seeds(),
    n_factors=st.sampled_from([2, 5, 8, 13, 16, 17, 32, 65, 96, 130]),
    kind=st.sampled_from(["spectrum", "columns", "mean", "low rank"]),
    exponent=st.floats(0, 3.5),
    regularization=st.sampled_from([1e-4, 1e-2, 1.0]),
    weight=st.sampled_from([0.1, 10.0, 1e4]),
)
def test_float32_keeps_its_tolerance_whatever_the_condition(seed, n_factors, kind, exponent, regularization, weight):
    rng = np.random.default_rng(seed)
    shape, spectrum = (2 * n_factors, n_factors), np.geomspace(1, 10.0**-exponent, n_factors)
    v = {
        "spectrum": lambda: (
            np.linalg.qr(rng.standard_normal(shape))[0]
            * spectrum
            @ np.linalg.qr(rng.standard_normal((n_factors, n_factors)))[0]
        ),
        "columns": lambda: rng.standard_normal(shape) * spectrum,
        "mean": lambda: np.abs(rng.standard_normal(shape)) + 10 ** (exponent / 2) * rng.random((shape[0], 1)),
        "low rank": lambda: (
            rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, n_factors))
            + 10.0**-exponent * rng.standard_normal(shape)
        ),
    }[kind]().astype(np.float32)
    data = ratings(4, shape[0], seed=seed)
    scaled = regularization * float(np.square(v, dtype=np.float64).mean())
    got = als.solve_users(data, v, regularization=scaled, confidence_weight=weight, use_values=True)
    # Against our own float64, itself held to the twin above: a dense solve is no better than 1e-9 here.
    expected = als.solve_users(
        data, v.astype(np.float64), regularization=scaled, confidence_weight=weight, use_values=True
    )
    assert close(got, expected, ANY_TOLERANCE[np.float32])


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("n_factors", [3, 16, 40, 100])
def test_float32_with_nearly_dependent_columns_is_solved_in_double(instruction_set, n_factors):
    v = factors(240, n_factors, np.float32)
    v[:, 1] = v[:, 0] * np.float32(1 + 2**-20) + np.float32(1e-4) * v[:, 1]
    data = ratings(20, 240)
    with hardware.use_instruction_set(instruction_set):
        got = als.solve_users(data, v, regularization=1e-6, confidence_weight=2.0)
    expected = als.solve_users(data, v.astype(np.float64), regularization=1e-6, confidence_weight=2.0)
    assert close(got, expected, 1e-6)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("regularization", [1e-3, 10.0])
def test_more_factors_than_items_are_left_to_regularization(instruction_set, dtype, regularization):
    # V'V has rank 60, so all that makes it regular is the regularization: not enough to begin with its inverse.
    data, v = lengths_from_none_to_all(60), factors(60, 100, dtype)
    with hardware.use_instruction_set(instruction_set):
        got = als.solve_users(data, v, regularization=regularization, confidence_weight=2.0, use_values=True)
    assert close(got, naive.solve_users(rows_of(data), v, regularization, 2.0, True), 100 * TOLERANCE[dtype])


# ---- bad inputs -------------------------------------------------------------------------------------------------


@given(seed=seeds(), n_factors=st.integers(2, 20), weight=st.sampled_from([0.0, 2.0]))
def test_dependent_columns_are_singular(seed, n_factors, weight):
    rng = np.random.default_rng(seed)
    v = rng.integers(-3, 4, size=(40, n_factors)).astype(float)
    v[:, -1] = v[:, 0] - 2 * v[:, n_factors // 2 - 1] if n_factors > 3 else v[:, 0]
    data = of_dense(np.ones((2, 40)), user_ids=["ann", "bob"])
    message = "of every user is singular" if weight == 0 else "system of user 'ann' .row 0. is singular"
    with pytest.raises(ValueError, match=message):
        als.solve_users(data, v, regularization=0.0, confidence_weight=weight)
    assert np.isfinite(als.solve_users(data, v, regularization=1e-6, confidence_weight=weight)).all()


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("kind", [int, str, tuple])
def test_the_first_singular_user_is_named_by_external_id(n_threads, kind):
    # One item and two factors: every user who holds it is singular; user 0 is empty, and so is not.
    names = {int: [70, 71, 72], str: ["a", "b", "c"], tuple: [(0, 0), (0, 1), (0, 2)]}[kind]
    data = of_dense([[0], [1], [1]], user_ids=names)
    shown = {int: "71", str: "'b'", tuple: r"\(0, 1\)"}[kind]
    with pytest.raises(ValueError, match=rf"user {shown} \(row 1\) is singular at regularization=0.0.*raise regular"):
        als.solve_users(data, np.ones((1, 2)), regularization=0.0, confidence_weight=1.0, n_threads=n_threads)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_factors_that_overflow_are_no_result(weight):
    data = Interactions.from_arrays([0, 0], [0, 1])
    with pytest.raises(ValueError, match=r"item_factors must be small enough for V'V, got 1e[+]200; scale them down"):
        als.solve_users(data, np.full((2, 2), 1e200), regularization=1.0, confidence_weight=weight)
    with pytest.raises(ValueError, match="is singular"):  # V'V is finite, the user's own system is not
        als.solve_users(data, np.full((2, 2), 1e150), regularization=1.0, confidence_weight=1e200)
