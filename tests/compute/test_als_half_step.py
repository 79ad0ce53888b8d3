"""`als.HalfStep`: the bits of `solve_users` for any number of calls with the same item factors."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from naive.compute import als as naive
from support.als_case import ANY_TOLERANCE, DTYPES, close, factors, lengths_from_none_to_all, ratings
from support.interaction_case import rows_of

from fastfedrec import als, hardware

# Numbers of factors with different code: users in lanes, one at a time, with V R^-1 or rotated (float32, both types).
N_FACTORS = [5, 16, 64, 130]
# With use_values the largest value of a user decides whether V R^-1 serves the user, else the weight.
OPTIONS = [
    {"confidence_weight": weight, "use_values": use_values, "solver": solver}
    for weight in (0.0, 0.5, 40.0)
    for use_values in (False, True)
    for solver in ("cholesky", "cg")
]

# ---- oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_factors", N_FACTORS)
def test_the_bits_are_those_of_solve_users(instruction_set, dtype, n_factors):
    data, v = lengths_from_none_to_all(300), factors(300, n_factors, dtype)
    ridges = np.linspace(0.5, 3.0, data.n_users)
    for options in OPTIONS:
        for regularization in (0.5, ridges) if options["confidence_weight"] else (0.5,):
            how = {"regularization": regularization, **options}
            step = als.HalfStep(v, **how)  # with the best instruction set
            with hardware.use_instruction_set(instruction_set):
                expected = als.solve_users(data, v, **how)
                for _ in range(2):
                    np.testing.assert_array_equal(step.solve(data), expected)
                np.testing.assert_array_equal(step.solve(data.to_scipy()), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_users_one_at_a_time_equal_the_twin(dtype):
    data, v = lengths_from_none_to_all(300), factors(300, 64, dtype)
    step = als.HalfStep(v, regularization=0.5, confidence_weight=2.0, use_values=True)
    one_by_one = np.concatenate([step.solve(user) for user in data.shard(data.n_users)])
    assert close(one_by_one, naive.solve_users(rows_of(data), v, 0.5, 2.0, True), ANY_TOLERANCE[dtype])
    assert not close(one_by_one, naive.solve_users(rows_of(data), v, 5.0, 2.0, True), ANY_TOLERANCE[dtype])


# ---- invariants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS)
def test_a_later_change_of_the_arguments_has_no_effect(options):
    data, v = ratings(9, 40), factors(40, 64, np.float32)
    regularization = 0.5 if options["confidence_weight"] == 0 else np.linspace(0.5, 3.0, 9)
    step = als.HalfStep(v, regularization=regularization, **options)
    expected = step.solve(data)
    v[:] = 0
    if np.ndim(regularization):
        regularization[:] = 9
    np.testing.assert_array_equal(step.solve(data), expected)
    for copied in (copy.copy(step), copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
        np.testing.assert_array_equal(copied.solve(data), expected)
        np.testing.assert_array_equal(copied.item_factors, step.item_factors)


def test_an_object_cannot_be_changed():
    step = als.HalfStep(factors(4, 2), regularization=0.5, confidence_weight=2.0)
    for name in ("item_factors", "regularization", "confidence_weight", "use_values", "solver", "cg_steps", "solve"):
        with pytest.raises(AttributeError, match=f"'{name}' of HalfStep cannot be changed"):
            setattr(step, name, None)
    with pytest.raises(ValueError, match="read-only"):
        step.item_factors[0] = 0


def test_a_start_of_cg_is_as_for_solve_users():
    data, v, start = ratings(9, 40), factors(40, 64), factors(9, 64, seed=3)
    how = {"regularization": 0.5, "confidence_weight": 2.0, "solver": "cg", "cg_steps": 2}
    got = als.HalfStep(v, **how).solve(data, start=start)
    np.testing.assert_array_equal(got, als.solve_users(data, v, start=start, **how))
    assert not np.array_equal(got, als.HalfStep(v, **how).solve(data))


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"item_factors": np.full((3, 2), np.nan)}, "item_factors must be finite, got nan at"),
        ({"item_factors": np.ones((3, 257))}, "item_factors must have 1 to 256 columns, got 257"),
        ({"item_factors": np.full((3, 2), 1e200)}, "item_factors must be small enough for V'V"),
        ({"regularization": -1.0}, "regularization must be at least 0.0, got -1"),
        ({"regularization": np.array([1.0, -1.0])}, "regularization must be at least 0, got -1 at position 1"),
        ({"regularization": np.array([1.0, 2.0]), "confidence_weight": 0.0}, "regularization must be one number where"),
        ({"regularization": 0.0, "confidence_weight": 0.0}, "of every user is singular: item_factors have dependent"),
        ({"confidence_weight": -1.0}, "confidence_weight must be at least 0"),
        ({"solver": "lu"}, "solver must be one of 'cholesky', 'cg', got 'lu'"),
        ({"cg_steps": 0}, "cg_steps must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    arguments = {"item_factors": np.ones((3, 2)), "regularization": 1.0, "confidence_weight": 1.0} | changes
    with pytest.raises(ValueError, match=message):
        als.HalfStep(arguments.pop("item_factors"), **arguments)


def test_rows_that_do_not_fit_are_refused():
    step = als.HalfStep(factors(40, 3), regularization=np.full(8, 0.5), confidence_weight=2.0)
    with pytest.raises(ValueError, match="interactions must have 40 items, one for each row of item_factors, got 39"):
        step.solve(ratings(8, 39))
    with pytest.raises(ValueError, match="interactions must have 8 users, one for each regularization, got 9"):
        step.solve(ratings(9, 40))
    assert step.solve(ratings(8, 40)).shape == (8, 3)
    with pytest.raises(ValueError, match="start must be None with solver='cholesky'"):
        step.solve(ratings(8, 40), start=np.zeros((8, 3)))
    singular = als.HalfStep(np.ones((40, 3)), regularization=0.0, confidence_weight=2.0)
    with pytest.raises(ValueError, match=r"the system of user 1 .* is singular at regularization=0.0"):
        singular.solve(ratings(3, 40))


# ---- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("n_threads", [1, 4])
def test_python_threads_may_share_an_object(solver, n_threads):
    data, v = ratings(40, 900), factors(900, 64, np.float32)
    how = {"regularization": 0.5, "confidence_weight": 2.0, "solver": solver}
    expected = als.solve_users(data, v, n_threads=1, **how)
    for _ in range(5):  # all threads meet before the first one has prepared the factors
        step = als.HalfStep(v, **how)
        with ThreadPoolExecutor(8) as pool:
            for got in pool.map(lambda _, step=step: step.solve(data, n_threads=n_threads), range(8)):
                np.testing.assert_array_equal(got, expected)
