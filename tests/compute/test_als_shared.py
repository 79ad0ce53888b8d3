"""Shared parts of all users' ALS systems: V'V, and the coordinates in which it is tridiagonal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.compute import als as naive
from support.als_case import ANY_TOLERANCE, DTYPES, close, factors, lengths_from_none_to_all, ratings
from support.data import of_dense
from support.interaction_case import rows_of
from support.strategies import seeds

from fastfedrec import als, hardware
from fastfedrec._kernels.compute import als as kernel

# ---- V'V --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@settings(max_examples=30)
@given(
    seed=seeds(),
    n_rows=st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 511, 512, 513, 1100])),  # end of the packed part
    n_factors=st.one_of(st.integers(1, 40), st.sampled_from([64, 100, 256])),
    dtype=st.sampled_from(DTYPES),
)
def test_gram_equals_a_product_in_double(instruction_set, seed, n_rows, n_factors, dtype):
    v = factors(n_rows, n_factors, dtype, seed)
    got = np.full((n_factors, n_factors), np.nan)
    with hardware.use_instruction_set(instruction_set):
        kernel.gram(v, got)
    expected = v.astype(np.float64).T @ v.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * max(n_rows, 1))
    np.testing.assert_array_equal(got, got.T)
    if n_rows > 0:  # one row less is seen
        assert np.abs(got - v[1:].astype(np.float64).T @ v[1:].astype(np.float64)).max() > 1e-6


# ---- rotated coordinates ----------------------------------------------------------------------------------------


def _items(kind, n_items, n_factors, dtype):
    rng = np.random.default_rng(n_factors)
    v = rng.standard_normal((n_items, n_factors))
    if kind == "zeros":
        v[:] = 0
    elif kind == "rank one":
        v = np.outer(v[:, 0], v[0]) / n_factors  # a condition at which rounding does not decide a third step
    elif kind == "orthogonal":  # V'V is diagonal, so no rotation is needed
        v = np.eye(n_items, n_factors) * rng.uniform(1, 2, n_factors)
    elif kind == "zero columns":
        v[:, ::3] = 0
    elif kind == "far apart":
        v *= np.geomspace(1, 1e-6, n_factors)
    return np.ascontiguousarray(v, dtype=dtype)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["any", "zeros", "rank one", "orthogonal", "zero columns", "far apart"])
@pytest.mark.parametrize("n_factors", [48, 49, 64, 100])  # up to 48 factors the coordinates equal the factors
def test_steps_are_those_of_the_twin_whatever_the_spectrum(instruction_set, dtype, kind, n_factors):
    data, v = lengths_from_none_to_all(150), _items(kind, 150, n_factors, dtype)
    start = factors(data.n_users, n_factors, dtype, 2)
    start[::3] = 0
    common = {"regularization": 1.0, "confidence_weight": 2.0, "use_values": True}
    twin = (rows_of(data), v, 1.0, 2.0, True)
    with hardware.use_instruction_set(instruction_set):
        for n_steps in (1, 3):
            got = als.solve_users(data, v, solver="cg", cg_steps=n_steps, start=start, **common)
            assert close(got, naive.solve_users_cg(*twin, n_steps, start), ANY_TOLERANCE[dtype])
    if kind in ("any", "zero columns", "orthogonal"):  # where a further step still moves
        assert not close(got, naive.solve_users_cg(*twin, 4, start), ANY_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_user_without_a_step_keeps_its_start_to_the_last_bit(dtype):
    # Rotated there and back, it would not.
    data = of_dense([[1.0, 1.0], [0.0, 0.0]])
    start, v = factors(2, 64, dtype), factors(2, 64, dtype, 2)
    arguments = {"regularization": 1.0, "solver": "cg", "start": start}
    got = als.solve_users(data, v, confidence_weight=1e308, **arguments)
    np.testing.assert_array_equal(got[0], start[0])
    assert (got[1] == 0).all()
    got = als.solve_users(data, v, confidence_weight=1.0, **arguments)
    assert (got[0] != start[0]).all()


@given(seed=seeds(), n_users=st.integers(1, 100), n_factors=st.sampled_from([49, 80]), dtype=st.sampled_from(DTYPES))
def test_a_user_is_rotated_alone(seed, n_users, n_factors, dtype):
    # Users are rotated together, 48 at a time, and register tiles take a few of them.
    data, v = ratings(n_users, 60, seed=seed), factors(60, n_factors, dtype)
    start = factors(n_users, n_factors, dtype, seed + 1)
    arguments = {"regularization": 1.0, "confidence_weight": 2.0, "solver": "cg"}
    whole = als.solve_users(data, v, start=start, **arguments)
    parts, first = [], 0
    for shard in data.shard(3):
        parts.append(als.solve_users(shard, v, start=start[first : first + shard.n_users], **arguments))
        first += shard.n_users
    np.testing.assert_array_equal(np.concatenate(parts), whole)
