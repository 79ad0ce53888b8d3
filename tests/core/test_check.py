"""`check`: numbers of every kind become Python's own, exactly, or are refused by name."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.core.check import (
    check_array,
    check_choice,
    check_exact,
    check_flag,
    check_integer,
    check_real,
    plain_array,
)

INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, np.float32, np.float64, np.longdouble)
NO_NUMBERS = [True, np.True_, np.array(True), np.array(True, dtype=object), "5", np.str_("5"), None, 5j, [5]]
NO_NUMBERS += [np.array([5]), np.timedelta64(5, "s"), np.ma.masked, np.ma.array(5, mask=True)]

# ---- Oracle: what a number is, as Python has it ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_every_width(kind):
    for value in (kind(5), np.array(5, dtype=kind), np.array(5, dtype=kind).astype(">" + np.dtype(kind).str[1:])):
        result = check_integer("x", value), check_real("x", value), check_exact("x", value)
        assert result == (5, 5.0, Fraction(5))
        assert [type(v) for v in (*result, result[2].numerator)] == [int, float, Fraction, int]


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_of_every_width(kind):
    for value in (kind(0.375), np.array(0.375, dtype=kind)):
        result = check_real("x", value), check_exact("x", value)
        assert result == (0.375, Fraction(3, 8))
        assert [type(v) for v in (*result, result[1].numerator)] == [float, Fraction, int]
        with pytest.raises(TypeError, match="x must be an integer, got"):
            check_integer("x", value)


@given(st.fractions())
def test_exact_numbers_lose_nothing(value):
    assert check_exact("x", value) == value
    assert check_real("x", value) == float(value)


@given(st.decimals(-(10**30), 10**30, allow_nan=False))
def test_decimals_are_the_decimal_number(value):
    if value == 0 or abs(value.adjusted()) < 300:
        assert check_exact("x", value) == Fraction(value)
        assert check_real("x", value) == float(value)


def test_a_fraction_of_numpy_integers_is_rebuilt():
    spoilt = Fraction(np.int32(65536))
    with np.errstate(over="ignore"):
        assert spoilt * spoilt != 2**32  # otherwise the test would be empty
    assert check_exact("x", spoilt) ** 2 == 2**32
    assert check_exact("x", np.int32(65536)) ** 2 == 2**32


def test_a_long_double_keeps_its_digits():
    third = np.longdouble(1) / 3
    assert check_exact("x", third) == Fraction(*third.as_integer_ratio())
    assert check_real("x", third) == float(third)


# ---- Bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("check", [check_integer, check_real, check_exact])
def test_what_is_no_number_is_refused_by_name(check, value):
    with pytest.raises(TypeError, match=r"some_name must be an? (integer|real number), got"):
        check("some_name", value)


NO_FLOATS = [math.nan, math.inf, -math.inf, np.float16("nan"), np.longdouble("inf"), np.longdouble("1e400")]
NO_FLOATS += [10**400, -(10**5000), Fraction(10**400), Fraction(1, 10**400)]
NO_FLOATS += [Decimal(text) for text in ("nan", "sNaN", "-Infinity", "1e400", "1e-400", "1e999999999", "1e-999999999")]


@pytest.mark.parametrize("value", NO_FLOATS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("check", [check_real, check_exact])
def test_what_no_float_can_hold_is_refused_by_name(check, value):
    if isinstance(value, np.longdouble) and np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long doubles are doubles here")
    with pytest.raises(ValueError, match=r"some_name must be (finite|within the range of floats), got") as error:
        check("some_name", value)
    assert len(str(error.value)) < 250


def test_zeros_of_any_exponent():
    assert check_exact("x", Decimal("0e999999999")) == check_real("x", Decimal("-0e-999999999")) == 0


def test_bounds():
    with pytest.raises(ValueError, match="x must be at least 6, got 5"):
        check_integer("x", np.uint8(5), low=6)
    with pytest.raises(ValueError, match="x must be at most 9223372036854775807, got 9223372036854775808"):
        check_integer("x", np.uint64(2**63))
    assert check_integer("x", 10**30, high=None) == 10**30
    with pytest.raises(ValueError, match="x must be greater than 0, got 0"):
        check_exact("x", np.int8(0), low=0, exclusive=True)
    with pytest.raises(ValueError, match=r"x must be at most 1, got 1\.5"):
        check_real("x", Fraction(3, 2), high=1)


def test_flags_and_choices_become_pythons():
    for value in (True, np.True_, np.array(True)):
        assert check_flag("x", value) is True
    for value in (1, "True", None, np.array([True]), np.ma.array(True, mask=True)):
        with pytest.raises(TypeError, match="x must be True or False, got"):
            check_flag("x", value)
    assert type(check_choice("x", np.str_("a"), ("a", "b"))) is str
    with pytest.raises(ValueError, match="x must be one of 'a', 'b', got 'c'"):
        check_choice("x", "c", ("a", "b"))


def test_arrays_without_a_shape_or_with_a_mask():
    with pytest.raises(ValueError, match="x must be an array, got"):
        plain_array("x", [[1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match=r"x\[1\] is missing"):
        check_array("x", np.ma.array([1.0, 999.0], mask=[False, True]), ndim=1)
