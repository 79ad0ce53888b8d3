import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.compute import hadamard as naive

from fastfedrec import hardware
from fastfedrec.compute.hadamard import hadamard_transform


def integers(n_passes, n_rows=3, seed=1):
    return np.random.default_rng(seed).integers(-1000, 1000, (n_rows, 2**n_passes))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 7).flatmap(lambda n: st.lists(st.integers(-(2**40), 2**40), min_size=2**n, max_size=2**n)))
def test_equals_the_definition(values):
    assert hadamard_transform(values).tolist() == naive.transform(values)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_every_level_equals_the_definition(instruction_set, kind):
    with hardware.use_instruction_set(instruction_set):
        for n_passes in (1, 4, 5, 8):
            values = integers(n_passes)
            result = hadamard_transform(values.astype(kind))
            assert result.dtype == kind
            assert result.tolist() == [naive.transform(row) for row in values.tolist()]


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_twice_is_n_times_the_same():
    values = integers(9)
    np.testing.assert_array_equal(hadamard_transform(hadamard_transform(values)), 512 * values)


def test_keeps_the_shape_and_what_it_was_given():
    values = integers(3, 6).reshape(2, 3, 8)
    before = values.copy()
    out = hadamard_transform(values[:, ::2])
    assert out.shape == (2, 2, 8)
    np.testing.assert_array_equal(values, before)
    assert hadamard_transform(np.zeros((0, 4))).shape == (0, 4)


def test_whole_numbers_wrap_around():
    assert hadamard_transform([2**62, 2**62]).tolist() == [-(2**63), 0]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((4, 0)), np.float64(1), np.zeros((4, 6))])
def test_lengths_that_are_no_powers_of_two(values):
    with pytest.raises(ValueError, match="power of two as the length of the last axis"):
        hadamard_transform(values)


def test_other_types():
    with pytest.raises(TypeError, match="values must be integers or floats"):
        hadamard_transform(np.zeros(4, dtype=complex))


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_bits():
    values = np.random.default_rng(2).normal(size=(37, 256))
    one, four = (hadamard_transform(values, n_threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one, four)
