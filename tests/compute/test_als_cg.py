"""A few steps of conjugate gradients from a start, as ALS takes them with solver="cg"."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.compute import als as naive
from support.als_case import ANY_TOLERANCE, DTYPES, TOLERANCE, factors, ratings
from support.data import of_dense
from support.interaction_case import rows_of
from support.strategies import seeds

from fastfedrec import als

# ---- oracle -----------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n_users=st.integers(1, 7),
    n_items=st.integers(1, 12),
    n_factors=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
    weight=st.sampled_from([0.0, 0.5, 4.0]),
    use_values=st.booleans(),
    n_steps=st.integers(1, 4),
    warm=st.booleans(),
)
def test_conjugate_gradients_equal_the_twin(
    seed, n_users, n_items, n_factors, dtype, weight, use_values, n_steps, warm
):
    data, v = ratings(n_users, n_items, seed=seed, density=0.5), factors(n_items, n_factors, dtype, seed)
    start = factors(n_users, n_factors, dtype, seed + 1) if warm else None
    before = None if start is None else start.copy()
    arguments = {"regularization": 20.0, "confidence_weight": weight, "use_values": use_values}
    got = als.solve_users(data, v, solver="cg", cg_steps=n_steps, start=start, **arguments)
    assert got.dtype == dtype
    twin_start = np.zeros((n_users, n_factors)) if start is None else start
    expected = naive.solve_users_cg(rows_of(data), v, 20.0, weight, use_values, n_steps, twin_start)
    np.testing.assert_allclose(got, expected, rtol=ANY_TOLERANCE[dtype], atol=TOLERANCE[dtype])
    if warm:
        np.testing.assert_array_equal(start, before)


# ---- invariants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [4, 16, 48])
def test_conjugate_gradients_converge_to_the_exact_solution(dtype, n_factors):
    data, v = ratings(20, 60), factors(60, n_factors, dtype)

    def error(**arguments):
        got = als.solve_users(data, v, regularization=5.0, confidence_weight=0.5, **arguments)
        return np.abs(got - exact).max() / np.abs(exact).max()

    exact = naive.solve_users(rows_of(data), v, 5.0, 0.5, False)
    errors = [error(solver="cg", cg_steps=n) for n in (1, 2, 4)]
    assert errors[0] > errors[1] > errors[2]
    assert error(solver="cg", cg_steps=n_factors) < (1e-5 if dtype == np.float32 else 1e-9)
    assert error(solver="cg", cg_steps=1, start=(0.9 * exact).astype(dtype)) < errors[0] / 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_conjugate_gradients_without_a_direction_leave_the_start(dtype):
    # Solved already, or overflowed: no NaN is ever returned; a user without items has zeros, wherever it starts.
    data = of_dense([[1.0, 1.0], [0.0, 0.0]])
    start = np.full((2, 2), 3, dtype=dtype)
    arguments = {"regularization": 1.0, "solver": "cg", "start": start}
    got = als.solve_users(data, np.zeros((2, 2), dtype=dtype), confidence_weight=1.0, **(arguments | {"start": None}))
    assert (got == 0).all()
    got = als.solve_users(data, np.eye(2, dtype=dtype), confidence_weight=1e308, **arguments)
    np.testing.assert_array_equal(got, [[3, 3], [0, 0]])
    got = als.solve_users(data, np.eye(2, dtype=dtype), confidence_weight=2.0, cg_steps=50, **(arguments))
    np.testing.assert_allclose(got, [[0.75, 0.75], [0, 0]], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [3, 16, 64, 100])
def test_users_who_start_from_zeros_among_others_are_solved_as_if_all_did(dtype, n_factors):
    # For them the first residual is the right-hand side, without a product.
    data, v = ratings(20, 60), factors(60, n_factors, dtype)
    start = factors(20, n_factors, dtype, seed=1)
    start[::2] = 0
    arguments = {"regularization": 5.0, "confidence_weight": 0.5, "solver": "cg"}
    got = als.solve_users(data, v, start=start, **arguments)
    from_zeros = als.solve_users(data, v, **arguments)
    np.testing.assert_array_equal(got[::2], from_zeros[::2])
    assert (got[1::2] != from_zeros[1::2]).any(axis=1).all()
