"""Functions for Numba: arguments of wrong types, numbers and lengths are refused."""

import numba
import numpy as np
import pytest
from support.numba_case import (
    GLOBAL,
    SUBKEY,
    TABLE,
    answered,
    answers,
    clip_into,
    clipped,
    gaussians,
    laplaces,
    left,
    numbers,
    opened,
    opened_at,
    read,
    read_into,
    read_into_global,
    respond_to,
    scratch_of,
    several_below,
    solved,
    solved_by,
    tabled,
)

from fastfedrec import numba as private
from fastfedrec.core.arrays import frozen
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read(np.zeros(3), 1, 1), "stream must be a C-contiguous array of uint64"),
        (lambda: opened(np.zeros(8, np.int64), 0, 0), "subkey must be a C-contiguous array of uint32"),
        (lambda: clipped(np.zeros((2, 2), np.int64), 1.0, 2), "row must be a C-contiguous array of float32 or float64"),
        *((lambda table=table: tabled(opened(SUBKEY, 0, 0), table, 1), "table must be the tuple that noise_table")
          for table in ((1, 2), (TABLE[0].repeat(2)[::2], *TABLE[1:]), (TABLE[0][None], *TABLE[1:]),
                        (*TABLE[:3], 1.0))),
        (lambda: read_into(opened(SUBKEY, 0, 0), frozen(GLOBAL)), "out must be a writable array, got .* pass it as an"),
        (lambda: read_into_global(opened(SUBKEY, 0, 0)), "out must be a writable array, got .* makes global arrays"),
        (lambda: left(frozen(opened(SUBKEY, 0, 0))), "stream must be a writable array"),
        (lambda: clip_into(np.ones(2), frozen(np.ones(2))), "out must be a writable array"),
        (lambda: solved_by(1, np.zeros(2, np.int64), np.zeros(0, np.int32), 0, 1, frozen(np.ones((1, 2)))),
         "out must be a writable array"),
        *((lambda number=number: opened(SUBKEY, number, 0), "round must be an integer, got (float64|bool)")
          for number in (1.5, np.nan, True)),
        (lambda: opened(SUBKEY, 0, np.nan), "user must be an integer, got float64"),
        (lambda: numbers(opened(SUBKEY, 0, 0), 2.5, 1), "bound must be an integer, got float64"),
        (lambda: answers(opened(SUBKEY, 0, 0), np.zeros(3), 1.5, np.zeros(3, np.uint64)), "span must be an integer"),
        (lambda: respond_to(opened(SUBKEY, 0, 0), np.zeros(3), 1.5), "span must be an integer"),
        (lambda: answered(np.zeros(3), np.zeros(3, np.uint64), 1.5), "span must be an integer"),
        (lambda: solved_by(1.0, np.zeros(2, np.int64), np.zeros(0, np.int32), 0, 1, np.ones((1, 2))),
         "handle must be an integer"),
        (lambda: solved_by(1, np.zeros(2, np.int64), np.zeros(0, np.int32), 0.0, 1, np.ones((1, 2))),
         "first must be an integer"),
        (lambda: solved(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.ones((2, 2)),
                        np.eye(2), 1.0, 1), "values must be None, or a C-contiguous array of float64 as out"),
        (lambda: solved(np.zeros(1, np.int64), np.zeros(0, np.int32), None, np.ones((2, 2)).T,
                        np.eye(2), 1.0, 1), "item_factors must be a C-contiguous array"),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_at_compilation(call, message):
    with pytest.raises(numba.core.errors.TypingError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opened(SUBKEY[:7], 0, 0), "subkey must have 8 words"),
        (lambda: opened(SUBKEY, 2**32, 0), r"round must be from 0 to 2\*\*32 - 1"),
        (lambda: opened(SUBKEY, 0, -1), "user at least 0"),
        *((lambda bound=bound: numbers(opened(SUBKEY, 0, 0), bound, 1), "bound must be at least 1")
          for bound in (0, -5)),
        *((lambda span=span: answers(opened(SUBKEY, 0, 0), np.zeros(3), span, np.zeros(3, np.uint64)),
           r"span must be from 0 to 2\*\*63 - 1") for span in (-1, np.uint64(2**63))),
        (lambda: respond_to(opened(SUBKEY, 0, 0), np.zeros(3), -1), "span must be from 0"),
        (lambda: answered(np.zeros(3), np.zeros(3, np.uint64), -1), "span must be from 0"),
        (lambda: solved_by(0, np.zeros(2, np.int64), np.zeros(0, np.int32), 0, 1, np.ones((1, 2))),
         r"handle must be of als_open\(\), got 0"),
        (lambda: scratch_of(0), r"handle must be of als_open\(\), got 0"),
        (lambda: answers(opened(SUBKEY, 0, 0), np.zeros(3), 1, np.zeros(2, np.uint64)), "words and out must have the"),
        (lambda: laplaces(opened(SUBKEY, 0, 0), np.ones(10, np.uint64), 1), "numbers must have 4 entries"),
        (lambda: gaussians(opened(SUBKEY, 0, 0), np.ones(4, np.uint64), 1), "numbers must have 10 entries"),
        (lambda: clipped(np.ones((1, 2)), 0.0, 2), "bound from 1e-100 to 1e100"),
        (lambda: clipped(np.ones((1, 2)), 1.0, 3), "order 1 or 2"),
        (lambda: solved(np.zeros(1, np.int64), np.zeros(0, np.int32), None, np.ones((2, 300)), np.eye(300), 1.0, 1),
         "1 to 256 columns"),
        (lambda: solved(np.zeros(1, np.int64), np.zeros(0, np.int32), None, np.ones((2, 3)), np.eye(2), 1.0, 1),
         "gram their shape"),
        (lambda: solved(np.array([0, 9]), np.zeros(0, np.int32), None, np.ones((2, 3)), np.eye(3), 1.0, 1),
         "items must have all entries of indptr"),
    ],
)  # fmt: skip
def test_wrong_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "draw",
    [
        left,
        lambda stream: opened_at(stream, SUBKEY),
        lambda stream: read(stream, 1, 1),
        lambda stream: read(stream, 0, 0),
        lambda stream: numbers(stream, 2, 1),
        lambda stream: several_below(stream, 2),
        lambda stream: answers(stream, np.zeros(1), 1, np.zeros(1, np.uint64)),
        lambda stream: respond_to(stream, np.zeros(1), 1),
        lambda stream: laplaces(stream, private.exact_numbers(DiscreteLaplace(20)), 1),
        lambda stream: gaussians(stream, private.exact_numbers(DiscreteGaussian(20)), 1),
        lambda stream: tabled(stream, TABLE, 1),
    ],
)
def test_arrays_that_are_no_streams_are_refused(draw):
    with pytest.raises(ValueError, match=r"stream must be of make_stream\(\)"):
        draw(np.zeros(1, np.uint64))


def test_draws_that_need_large_integers_are_refused():
    with pytest.raises(OverflowError, match="the draw needs integers above 128 bits"):
        laplaces(opened(SUBKEY, 0, 0), private.exact_numbers(DiscreteLaplace(2**61)), 500)
    with pytest.raises(OverflowError, match="the draw needs integers above 128 bits"):
        gaussians(opened(SUBKEY, 0, 0), private.exact_numbers(DiscreteGaussian(2**31)), 500)


def test_the_functions_run_in_compiled_code_only():
    for name in set(private.__all__) - {"subkey", "exact_numbers", "noise_table"}:
        function = getattr(private, name)
        with pytest.raises(TypeError, match=r"compiled by numba\.njit"):
            function(*[0] * function.__code__.co_argcount)
