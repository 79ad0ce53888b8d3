"""The users' half step of ALS: against a dense solve, by the minimum it must be, and on systems without one."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
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
    users_of,
)
from support.interaction_case import rows_of
from support.strategies import seeds

from fastfedrec import Interactions, als, hardware

EVERY_KIND_OF_WIDTH = [*range(1, 41), 63, 64, 65, 95, 96, 97, 127, 128, 200, 255, 256]


# ---- oracle -----------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n_users=st.integers(1, 7),
    n_items=st.integers(1, 12),
    n_factors=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    regularization=st.floats(0.01, 100),
    weight=st.sampled_from([0.0, 0.5, 1.0, 40.0]),
    use_values=st.booleans(),
    n_threads=st.integers(1, 3),
)
def test_solve_users_equals_the_twin(
    seed, n_users, n_items, n_factors, dtype, regularization, weight, use_values, n_threads
):
    data = ratings(n_users, n_items, seed=seed, density=0.5)
    v = factors(n_items, n_factors, dtype, seed)
    got = als.solve_users(
        data,
        v,
        regularization=regularization,
        confidence_weight=weight,
        use_values=use_values,
        n_threads=n_threads,
    )
    assert got.dtype == dtype
    assert got.shape == (n_users, n_factors)
    expected = naive.solve_users(rows_of(data), v, regularization, weight, use_values)
    assert close(got, expected, ANY_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [1, 5, 16, 64, 255, 256])
@pytest.mark.parametrize("use_values", [False, True])
def test_every_width_equals_the_twin(n_factors, dtype, use_values):
    data = ratings(12, 300)
    v = factors(300, n_factors, dtype)
    for weight in (0.0, 2.0):
        got = als.solve_users(data, v, regularization=1.0, confidence_weight=weight, use_values=use_values)
        expected = naive.solve_users(rows_of(data), v, 1.0, weight, use_values)
        np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set_and_width_equals_the_twin(dtype):
    data = lengths_from_none_to_all(300)
    # A weight of 1e6 gives most systems a condition number of 1e6, and the twin an error of 1e-8.
    tolerance = {0.0: TOLERANCE, 2.0: TOLERANCE, 1e-30: TOLERANCE, 1e6: {np.float32: 1e-4, np.float64: 1e-7}}
    for n_factors in EVERY_KIND_OF_WIDTH:
        v, start = factors(300, n_factors, dtype), factors(data.n_users, n_factors, dtype, 2)
        weight, use_values = list(tolerance)[n_factors % 4], n_factors % 2 == 1
        mild = min(weight, 2.0)  # float32 has no digits left for conjugate gradients at 1e6
        exact = naive.solve_users(rows_of(data), v, 1.0, weight, use_values)
        steps = naive.solve_users_cg(rows_of(data), v, 1.0, mild, use_values, 2, start)
        common = {"regularization": 1.0, "use_values": use_values}
        for instruction_set in hardware.instruction_sets():
            with hardware.use_instruction_set(instruction_set):
                got = als.solve_users(data, v, confidence_weight=weight, **common)
                got_steps = als.solve_users(
                    data, v, confidence_weight=mild, solver="cg", cg_steps=2, start=start, **common
                )
            assert close(got, exact, tolerance[weight][dtype]), (n_factors, instruction_set)
            assert close(got_steps, steps, ANY_TOLERANCE[dtype]), (n_factors, instruction_set)


@pytest.mark.every_instruction_set
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [1, 5, 8, 9, 16, 17, 48, 49, 64, 128, 256])
def test_every_user_has_its_own_regularization(n_factors, dtype):
    data = lengths_from_none_to_all(300)
    v, start = factors(300, n_factors, dtype), factors(data.n_users, n_factors, dtype, 2)
    ridges = np.linspace(1.0, 60.0, data.n_users)[::-1]
    arguments = {"regularization": ridges, "confidence_weight": 2.0, "use_values": True}
    exact = naive.solve_users(rows_of(data), v, ridges, 2.0, True)
    steps = naive.solve_users_cg(rows_of(data), v, ridges, 2.0, True, 3, start)
    assert not close(naive.solve_users(rows_of(data), v, 1.0, 2.0, True), exact, 1e-2)  # it matters
    for instruction_set in hardware.instruction_sets():
        with hardware.use_instruction_set(instruction_set):
            got = als.solve_users(data, v, **arguments)
            got_steps = als.solve_users(data, v, solver="cg", cg_steps=3, start=start, **arguments)
        assert close(got, exact, TOLERANCE[dtype]), instruction_set
        assert close(got_steps, steps, ANY_TOLERANCE[dtype]), instruction_set


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("n_factors", [5, 64])
def test_one_regularization_may_be_given_for_each_user(n_factors, solver):
    data, v = ratings(9, 80), factors(80, n_factors)
    arguments = {"confidence_weight": 2.0, "solver": solver}
    one, per_user = (als.solve_users(data, v, regularization=r, **arguments) for r in (3, np.full(9, 3)))
    np.testing.assert_array_equal(one, per_user)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@settings(max_examples=20)
@given(
    seed=seeds(),
    n_factors=st.sampled_from([48, 49, 64, 80, 112, 128, 201, 256]),
    n_more_items=st.integers(2, 300),
    dtype=st.sampled_from(DTYPES),
    regularization=st.sampled_from([1.0, 100.0]),
    weight=st.sampled_from([1e-60, 1e-6, 0.5, 3.0, 40.0, 1e4]),
    use_values=st.booleans(),
)
def test_users_of_many_factors_equal_the_twin(
    instruction_set, seed, n_factors, n_more_items, dtype, regularization, weight, use_values
):
    # The solver takes conjugate gradients if V'V is regular and weights are small, else a matrix for each user.
    n_items = n_factors + n_more_items
    lengths = [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, n_factors // 2, n_factors - 1, n_factors, n_factors + 1, n_items]
    data, v = users_of(lengths, n_items, seed), factors(n_items, n_factors, dtype, seed)
    with hardware.use_instruction_set(instruction_set):
        got = als.solve_users(data, v, regularization=regularization, confidence_weight=weight, use_values=use_values)
    expected = naive.solve_users(rows_of(data), v, regularization, weight, use_values)
    assert close(got, expected, ANY_TOLERANCE[dtype])


# ---- invariants -------------------------------------------------------------------------------------------------


@given(seed=seeds(), weight=st.sampled_from([0.0, 3.0]), use_values=st.booleans())
def test_the_result_minimises_the_loss(seed, weight, use_values):
    data, v, regularization = ratings(3, 8, seed=seed), factors(8, 3, seed=seed), 0.5
    x = als.solve_users(data, v, regularization=regularization, confidence_weight=weight, use_values=use_values)

    def loss(x):
        total = regularization * (x**2).sum()
        for user, row in enumerate(rows_of(data)):
            for item in range(8):
                value = row.get(item, 0)
                confidence = 1 + weight * ((value if use_values else 1) if value > 0 else 0)
                total += confidence * (float(value > 0) - x[user] @ v[item]) ** 2
        return total

    best, rng = loss(x), np.random.default_rng(seed)
    for _ in range(5):
        assert loss(x + 1e-3 * rng.standard_normal(x.shape)) > best


def test_a_user_without_positive_values_gets_zeros():
    data = Interactions.from_scipy(scipy.sparse.csr_array(([0.0, 2.0], ([1, 2], [0, 1])), shape=(3, 2)))
    for weight in (0.0, 1.0):
        got = als.solve_users(data, np.eye(2), regularization=1.0, confidence_weight=weight)
        assert (got[:2] == 0).all()
        assert got[2, 1] > 0


def test_explicit_zeros_are_no_interactions():
    data, v = ratings(20, 30), factors(30, 4)
    assert data.positive().n_interactions < data.n_interactions
    for use_values in (False, True):
        np.testing.assert_array_equal(
            als.solve_users(data, v, regularization=1.0, confidence_weight=2.0, use_values=use_values),
            als.solve_users(data.positive(), v, regularization=1.0, confidence_weight=2.0, use_values=use_values),
        )


def test_values_count_only_where_asked():
    data, v = ratings(20, 30).positive(), factors(30, 4)

    def solve(data, weight, use_values):
        return als.solve_users(data, v, regularization=1.0, confidence_weight=weight, use_values=use_values)

    np.testing.assert_array_equal(solve(data, 2.0, False), solve(data.binarize(), 2.0, True))
    doubled = Interactions.from_scipy(2 * data.to_scipy())
    np.testing.assert_array_equal(solve(data, 2.0, True), solve(doubled, 1.0, True))
    assert np.abs(solve(data, 2.0, True) - solve(data, 2.0, False)).max() > 0.01


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("weight", [0.0, 2.0])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_each_user_stands_alone(instruction_set, weight, solver):
    data = ratings(50, 300)  # around 90 items each
    for n_factors in (6, 16, 40, 100, 130):
        for dtype in DTYPES:
            v = factors(300, n_factors, dtype)
            arguments = {"regularization": 1.0, "confidence_weight": weight, "solver": solver}
            with hardware.use_instruction_set(instruction_set):
                whole = als.solve_users(data, v, **arguments)
                parts = [als.solve_users(shard, v, **arguments) for shard in data.shard(7)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_without_users_or_interactions():
    empty = Interactions.from_scipy(scipy.sparse.csr_array((0, 4)))
    assert als.solve_users(empty, factors(4, 2), regularization=1.0, confidence_weight=1.0).shape == (0, 2)
    unused = Interactions.from_scipy(scipy.sparse.csr_array((3, 4)))
    assert (als.solve_users(unused, factors(4, 2), regularization=1.0, confidence_weight=1.0) == 0).all()


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"interactions": np.ones(3)}, TypeError, "interactions must be Interactions, .* or an array of users x items"),
        ({"item_factors": np.ones((4, 2))}, ValueError, r"item_factors must have shape \(3, 'any'\), got \(4, 2\)"),
        ({"item_factors": np.ones(3)}, ValueError, "item_factors must have 2 dimensions"),
        ({"item_factors": np.ones((3, 0))}, ValueError, "item_factors must have 1 to 256 columns, got 0"),
        ({"item_factors": np.ones((3, 257))}, ValueError, "item_factors must have 1 to 256 columns, got 257"),
        ({"item_factors": np.full((3, 2), np.nan)}, ValueError, r"item_factors must be finite, got nan at \(0, 0\)"),
        ({"item_factors": np.full((3, 2), np.inf)}, ValueError, "item_factors must be finite, got inf"),
        ({"item_factors": np.ones((3, 2), dtype=np.float16)}, TypeError, "item_factors must be an array of float32 or"),
        ({"item_factors": np.ones((3, 2), dtype=complex)}, TypeError, "item_factors must be an array of float32 or"),
        ({"regularization": -1}, ValueError, "regularization must be at least 0.0, got -1"),
        ({"regularization": np.nan}, ValueError, "regularization must be finite"),
        ({"regularization": "1"}, TypeError, "regularization must be a real number"),
        ({"regularization": [1.0, 2.0]}, ValueError, r"regularization must have shape \(3,\), got \(2,\)"),
        ({"regularization": [1.0, -2.0, 3.0]}, ValueError, "regularization must be at least 0, got -2 at position 1"),
        ({"regularization": [1.0, np.nan, 3.0]}, ValueError, "regularization must be finite"),
        ({"regularization": ["1", "2", "3"]}, TypeError, "regularization must be an array of float32 or float64"),
        (
            {"regularization": [1.0, 2.0, 3.0], "confidence_weight": 0.0},
            ValueError,
            "regularization must be one number where confidence_weight is 0",
        ),
        (
            {"regularization": [1.0, 2.0, 1e60], "item_factors": np.ones((3, 2), np.float32)},
            ValueError,
            "regularization must fit float32, got 1e[+]60; use float64 factors",
        ),
        ({"confidence_weight": -0.5}, ValueError, "confidence_weight must be at least 0.0, got -0.5"),
        ({"confidence_weight": np.inf}, ValueError, "confidence_weight must be finite"),
        ({"use_values": 1}, TypeError, "use_values must be True or False, got 1"),
        ({"solver": "lu"}, ValueError, "solver must be one of 'cholesky', 'cg', got 'lu'"),
        ({"cg_steps": 0}, ValueError, "cg_steps must be at least 1, got 0"),
        ({"cg_steps": 1.5}, TypeError, "cg_steps must be an integer"),
        ({"start": np.ones((3, 2))}, ValueError, "start must be None with solver='cholesky'"),
        ({"solver": "cg", "start": np.ones((2, 2))}, ValueError, r"start must have shape \(3, 2\), got \(2, 2\)"),
        ({"solver": "cg", "start": np.full((3, 2), np.nan)}, ValueError, "start must be finite"),
        ({"solver": "cg", "start": np.ones((3, 2), np.float32)}, TypeError, "start must be an array of float64"),
        ({"out": np.ones((2, 2))}, ValueError, r"out must have shape \(3, 2\), got \(2, 2\)"),
        ({"out": np.ones((3, 2), np.float32)}, TypeError, "out must be an array of float64, got an array of float32"),
        ({"out": np.ones((2, 3)).T}, ValueError, "out must be C-contiguous and writable"),
        ({"n_threads": -1}, ValueError, "n_threads must be at least 0"),
        ({"n_threads": 1.0}, TypeError, "n_threads must be an integer"),
    ],
)
def test_bad_arguments_are_named(changes, error, message):
    arguments = {
        "interactions": Interactions.from_scipy(scipy.sparse.eye_array(3)),
        "item_factors": np.ones((3, 2)),
        "regularization": 1.0,
        "confidence_weight": 1.0,
    } | changes
    with pytest.raises(error, match=message):
        als.solve_users(arguments.pop("interactions"), arguments.pop("item_factors"), **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [3, 20, 64])
def test_results_are_written_where_the_caller_says(dtype, n_factors):
    data, v = ratings(9, 30), factors(30, n_factors, dtype)
    arguments = {"regularization": 1.0, "confidence_weight": 2.0}
    expected, out = als.solve_users(data, v, **arguments), factors(9, n_factors, dtype, 1)  # which must be overwritten
    assert als.solve_users(data, v, out=out, **arguments) is out
    np.testing.assert_array_equal(out, expected)
    start = factors(9, n_factors, dtype, 2)
    expected = als.solve_users(data, v, solver="cg", start=start, **arguments)
    assert als.solve_users(data, v, solver="cg", start=start, out=out, **arguments) is out
    np.testing.assert_array_equal(out, expected)
    als.solve_users(data, v, solver="cg", start=start, out=start, **arguments)  # over itself
    np.testing.assert_array_equal(start, expected)
    als.solve_users(data, v, solver="cg", out=out, **arguments)  # from zeros and not from the old contents
    np.testing.assert_array_equal(out, als.solve_users(data, v, solver="cg", **arguments))
    with pytest.raises(ValueError, match="out must not share memory"):
        als.solve_users(data, v, out=v[:9], **arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_and_read_only_factors(dtype):
    data, plain = ratings(9, 20), factors(20, 6, dtype)
    expected = als.solve_users(data, plain, regularization=1.0, confidence_weight=2.0)
    strided = np.zeros((40, 12), dtype=dtype)[::2, ::2]
    strided[:] = plain
    for v in (strided, np.asfortranarray(plain)):
        v.flags.writeable = False
        np.testing.assert_array_equal(als.solve_users(data, v, regularization=1.0, confidence_weight=2.0), expected)


# ---- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", [5, 64, 100])
@pytest.mark.parametrize("weight", [0.0, 2.0])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_bits_do_not_depend_on_threads(dtype, n_factors, weight, solver):
    data, v = ratings(400, 320), factors(320, n_factors, dtype)
    arguments = {"regularization": 1.0, "confidence_weight": weight, "use_values": True, "solver": solver}
    one, four, all_of_them = (als.solve_users(data, v, n_threads=n, **arguments) for n in (1, 4, 0))
    np.testing.assert_array_equal(four, one)
    np.testing.assert_array_equal(all_of_them, one)
