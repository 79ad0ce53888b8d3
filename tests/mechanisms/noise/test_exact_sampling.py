"""The compiled exact samplers against Python's integers: the same draws from the same words, or none at all."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.strategies import keys

from fastfedrec import Key
from fastfedrec._kernels.mechanisms.noise import _exact_sampling as kernel
from fastfedrec.mechanisms.noise import exact_sampling as exact

N = 12
FEW = 2**7  # more coins than any draw below tosses

# ---- oracle ---------------------------------------------------------------------------------------------------------

# Chance alone hardly ever makes a run of coins long, or a uniform number its bound.
some_words = st.lists(st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=40)
block_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=5)
whole_numbers = st.integers(0, 130).flatmap(lambda bits: st.integers(1, 2**bits))


def cut(words, sizes):
    for size in itertools.cycle(sizes):
        yield np.array(list(itertools.islice(words, size)), dtype=np.uint64)


def halves(numbers):
    return np.array([[number & (2**64 - 1), number >> 64] for number in numbers], dtype=np.uint64)


def from_blocks(fill, numbers, blocks):
    """The kernel's draws: one that runs out of words starts over, with the next block appended."""
    out, unread, done = np.empty(N, dtype=np.int64), np.empty(0, dtype=np.uint64), 0
    while done < N and not max(numbers) >> 128:
        unread = np.concatenate([unread, next(blocks)])
        n_drawn, n_read = fill(halves(numbers), unread, out[done:])
        if n_drawn < 0:
            return None
        done, unread = done + n_drawn, unread[n_read:]
    return out if done == N else None


def first_draws(fill, numbers, draws, first, key, sizes):
    """The kernel's, from blocks of a few words that end in the middle of draws, and Python's."""
    words, same = (itertools.chain(first, exact.words(key, "test", 0)) for _ in range(2))
    return from_blocks(fill, numbers, cut(words, sizes)), list(itertools.islice(draws(same), N))


@given(scale=st.builds(Fraction, whole_numbers, whole_numbers), first=some_words, key=keys(), sizes=block_sizes)
@example(scale=Fraction(1), first=[0] * 40, key=Key.from_seed(1), sizes=[1])
@example(scale=Fraction(2**56 - 1), first=[0] * 40, key=Key.from_seed(1), sizes=[2])  # the largest in 64 bits
@example(scale=Fraction(2**56), first=[0] * 40, key=Key.from_seed(1), sizes=[2])
@example(scale=Fraction(2**64), first=[], key=Key.from_seed(1), sizes=[3])
@example(scale=Fraction(2**64 + 1, 2**40), first=[2**64 - 1] * 9, key=Key.from_seed(1), sizes=[1, 2])
def test_laplace_draws_are_those_of_numbers_of_any_size(scale, first, key, sizes):
    numbers = scale.as_integer_ratio()
    compiled_draws, expected = first_draws(
        kernel.laplace, numbers, lambda words: exact.laplace_draws(scale, words), first, key, sizes
    )
    if compiled_draws is None:
        assert max(numbers) * FEW >= 2**128 or max(abs(draw) for draw in expected) >= 2**63
    else:
        assert compiled_draws.tolist() == expected


@given(
    stddev=st.builds(Fraction, st.integers(1, 2**16), st.integers(1, 2**10)) | st.builds(Fraction, whole_numbers),
    first=some_words,
    key=keys(),
    sizes=block_sizes,
)
@example(stddev=Fraction(2**27 + 1, 5), first=[], key=Key.from_seed(1), sizes=[5])
def test_gaussian_draws_are_those_of_numbers_of_any_size(stddev, first, key, sizes):
    scale, step, shift, denominator = exact._gaussian_numbers(stddev**2)
    compiled_draws, expected = first_draws(
        kernel.gaussian,
        (scale, 1, step, shift, denominator),
        lambda words: exact.gaussian_draws(stddev**2, words),
        first,
        key,
        sizes,
    )
    if compiled_draws is None:
        assert max(FEW * scale * step, shift) >= 2**64 or denominator * FEW >= 2**128
    else:
        assert compiled_draws.tolist() == expected


@pytest.mark.parametrize(
    ("scale", "compiled"),
    [
        (Fraction(3, 2**127), True),
        (Fraction(2**120 + 1, 2**100), True),
        (Fraction(2**127 + 1, 2**100), False),  # the bounds of coins, in the middle of a draw
        (Fraction(1, 2**128), False),
        (Fraction(2**128), False),
        (Fraction(2**61), False),  # draws that are no int64
    ],
)
def test_python_draws_large_scales_from_the_first_word_on(scale, compiled):
    key = Key.from_seed(3)
    numbers, out = exact.laplace_numbers(scale), np.empty(500, dtype=np.int64)
    is_drawn = numbers is not None and kernel.laplace_blocks(numbers, key.subkey("test"), out, 2, 4096)
    assert is_drawn == compiled
    expected = list(itertools.islice(exact.laplace_draws(scale, exact.words(key, "test", 2)), 500))
    assert exact.sample_laplace(scale, 500, key, "test", 2).tolist() == expected


@pytest.mark.parametrize(("stddev", "compiled"), [(Fraction(40), True), (2**26, True), (0.7, False), (2**60, False)])
def test_python_takes_gaussian_draws_that_are_too_large(stddev, compiled):
    key, variance = Key.from_seed(3), Fraction(stddev) ** 2
    numbers, out = exact.gaussian_numbers(variance), np.empty(500, dtype=np.int64)
    is_drawn = numbers is not None and kernel.gaussian_blocks(numbers, key.subkey("test"), out, 2, 4096)
    assert is_drawn == compiled
    expected = list(itertools.islice(exact.gaussian_draws(variance, exact.words(key, "test", 2)), 500))
    assert exact.sample_gaussian(variance, 500, key, "test", 2).tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_draws_go_on_in_the_stream_of_the_next_block(size):
    # 3,000 draws take several blocks of 4,096 words.
    key, scale, variance = Key.from_seed(4), Fraction(20), Fraction(400)
    words = [exact.words(key, "test", 5) for _ in range(2)]
    assert exact.sample_laplace(scale, size, key, "test", 5).tolist() == list(
        itertools.islice(exact.laplace_draws(scale, words[0]), size)
    )
    assert exact.sample_gaussian(variance, size, key, "test", 5).tolist() == list(
        itertools.islice(exact.gaussian_draws(variance, words[1]), size)
    )


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_an_unfinished_draw_is_returned_if_words_run_out():
    numbers = np.array([[10, 0], [1, 0]], dtype=np.uint64)
    words, out = Key.from_seed(1).words("test", size=400), np.zeros(100, dtype=np.int64)
    ends = [0]
    for n in range(401):
        n_drawn, n_read = kernel.laplace(numbers, words[:n], out)
        ends += [n] * (n_drawn == len(ends))
        assert (n_drawn, n_read) == (len(ends) - 1, ends[-1])
    assert len(ends) > 30


# ---- bad inputs, threads, statistics --------------------------------------------------------------------------------
# With the mechanisms: test_discrete_laplace.py, test_discrete_gaussian.py.
