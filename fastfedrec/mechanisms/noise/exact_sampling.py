"""Exact sampling: integer arithmetic of any size is the only arithmetic between random bits and a draw.

A compiled twin of `laplace_draws` and `gaussian_draws` (`_kernels/_exact_sampling`) makes the same draws from the same
words if all numbers have at most 128 bits.
"""

import decimal
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from fastfedrec._kernels.mechanisms.noise import _exact_sampling as _kernel
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key

__all__ = [
    "accept_exp",
    "draw_below",
    "exp_minus",
    "gaussian_numbers",
    "laplace_numbers",
    "sample_gaussian",
    "sample_laplace",
    "words",
]

_BLOCK_WORDS = 4096  # words of one stream; part of the streams' definition
_FIRST_WORDS = 64  # a single selection reads fewer, and needs no whole block
_WORD_BITS = 64


def word_blocks(key: Key, purpose: str, round_number: int) -> Iterator[np.ndarray]:
    """Yield blocks of 64-bit words without end: block b holds the first words of the stream (purpose, round, b)."""
    check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    round_number = check_integer("round", round_number, low=0, high=2**32 - 1)
    for block in itertools.count():
        yield key.words(purpose, round=round_number, user=block, size=_BLOCK_WORDS)


def words(key: Key, purpose: str, round_number: int) -> Iterator[int]:
    """Yield the words of `word_blocks` singly."""
    check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    yield from key.words(purpose, round=round_number, size=_FIRST_WORDS).tolist()
    for number, block in enumerate(word_blocks(key, purpose, round_number)):
        yield from block[_FIRST_WORDS if number == 0 else 0 :].tolist()


def draw_below(bound: int, words: Iterator[int]) -> int:
    """Return a uniform integer in [0, bound), by rejection."""
    # Each attempt takes the smallest number of words, and of their high bits, that can hold the integer.
    bits = (bound - 1).bit_length()
    n_words = -(-bits // _WORD_BITS)
    surplus = n_words * _WORD_BITS - bits
    while True:
        number = 0
        for _ in range(n_words):
            number = number << _WORD_BITS | next(words)
        number >>= surplus
        if number < bound:
            return number


def bernoulli_exp(numerator: int, denominator: int, words: Iterator[int]) -> bool:
    """Return True with probability exp(-numerator / denominator) (Canonne, Kamath, Steinke 2020, Algorithm 1)."""
    # For a ratio in [0, 1], a run of successes of coins with probability ratio / 1, ratio / 2, ratio / 3, ... reaches
    # length k with probability ratio^k / k!.  So it ends at an even length with probability
    # 1 - ratio + ratio^2 / 2 - ... = exp(-ratio).  A larger ratio needs a success for each whole 1 and for the
    # remainder.
    while numerator > denominator:
        if not bernoulli_exp(1, 1, words):
            return False
        numerator -= denominator
    bound, length = denominator, 0
    while draw_below(bound, words) < numerator:
        length += 1
        bound += denominator
    return length % 2 == 0


def laplace_draws(scale: Fraction, words: Iterator[int]) -> Iterator[int]:
    """Yield discrete Laplace draws without end (Canonne, Kamath, Steinke 2020, Algorithm 2)."""
    numerator, denominator = scale.numerator, scale.denominator
    while True:
        # A geometric number with ratio exp(-1 / numerator), from its remainder and its quotient by the numerator.
        remainder = draw_below(numerator, words)
        if not bernoulli_exp(remainder, numerator, words):
            continue
        quotient = 0
        while bernoulli_exp(1, 1, words):
            quotient += 1
        size = (remainder + numerator * quotient) // denominator
        negative = draw_below(2, words)
        if negative and size == 0:
            continue  # +0 and -0 together would make zero twice as likely
        yield -size if negative else size


def gaussian_draws(variance: Fraction, words: Iterator[int]) -> Iterator[int]:
    """Yield discrete Gaussian draws without end, from discrete Laplace draws by rejection (Algorithm 3)."""
    scale, step, shift, denominator = _gaussian_numbers(variance)
    for draw in laplace_draws(Fraction(scale), words):
        if bernoulli_exp((abs(draw) * step - shift) ** 2, denominator, words):
            yield draw


def _gaussian_numbers(variance: Fraction) -> tuple[int, int, int, int]:
    # A Laplace draw x is accepted with probability exp(-(|x| - variance / scale)^2 / (2 variance)), in integers.
    a, b = variance.numerator, variance.denominator
    scale = math.isqrt(a // b) + 1
    return scale, scale * b, a, 2 * a * b * scale**2


def sample_laplace(scale: Fraction, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
    """Return the first `laplace_draws` from `words` as int64, or as Python's integers if one is beyond int64."""
    draws = _compiled(_kernel.laplace_blocks, laplace_numbers(scale), size, key, purpose, round_number)
    return _collected(laplace_draws(scale, words(key, purpose, round_number)), size) if draws is None else draws


def sample_gaussian(variance: Fraction, size: int, key: Key, purpose: str, round_number: int) -> np.ndarray:
    """Return the first `gaussian_draws` from `words` as int64, or as Python's integers if one is beyond int64."""
    draws = _compiled(_kernel.gaussian_blocks, gaussian_numbers(variance), size, key, purpose, round_number)
    return _collected(gaussian_draws(variance, words(key, purpose, round_number)), size) if draws is None else draws


def laplace_numbers(scale: Fraction) -> np.ndarray | None:
    """Return the parameters of the kernel's discrete Laplace draws, or None if one is too large for it."""
    return _halves(scale.numerator, scale.denominator)


def gaussian_numbers(variance: Fraction) -> np.ndarray | None:
    """Return the parameters of the kernel's discrete Gaussian draws, or None if one is too large for it."""
    scale, *acceptance = _gaussian_numbers(variance)
    return _halves(scale, 1, *acceptance)


def _halves(*numbers: int) -> np.ndarray | None:
    if max(numbers) >> 128:
        return None
    return np.array([[number & (2**64 - 1), number >> 64] for number in numbers], dtype=np.uint64)


def _compiled(
    fill: Callable[..., bool], numbers: np.ndarray | None, size: int, key: Key, purpose: str, round_number: int
) -> np.ndarray | None:
    """Return a kernel's draws from the words of `word_blocks`, or None if a number is too large for it."""
    check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    round_number = check_integer("round", round_number, low=0, high=2**32 - 1)
    out = np.empty(size, dtype=np.int64)
    if numbers is None or not fill(numbers, key.subkey(purpose), out, round_number, _BLOCK_WORDS):
        return None
    return out


def _collected(draws: Iterator[int], size: int) -> np.ndarray:
    first = list(itertools.islice(draws, size))
    try:
        return np.array(first, dtype=np.int64)
    except OverflowError:
        return np.array(first, dtype=object)


@functools.lru_cache(maxsize=1024)  # a selection needs few different numbers repeatedly
def exp_minus(x: Fraction, bits: int) -> int:
    """Return an integer n with n <= 2^bits exp(-x) < n + 2, for x >= 0."""
    # The argument is rounded up and the exponential down, each by less than 1 part in 10^20 of the last bit.
    if x > bits:
        return 0
    down, up = _contexts(bits * 3 // 10 + 21)
    argument = up.divide(decimal.Decimal(x.numerator), decimal.Decimal(x.denominator))
    # `copy_negate`, because a minus sign would round to the caller's own context; `exp` always rounds to nearest.
    lower = down.next_minus(down.exp(argument.copy_negate()))
    return int(Fraction(lower) * 2**bits)


@functools.cache
def _contexts(precision: int) -> tuple[decimal.Context, decimal.Context]:
    down, up = (
        decimal.Context(prec=precision, rounding=rounding, Emin=-999999, Emax=999999)
        for rounding in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING)
    )
    return down, up


def accept_exp(number: int, bits: int, x: Fraction, words: Iterator[int]) -> bool:
    """Return whether (number + U) / 2^bits < exp(-x), for U uniform in [0, 1)."""
    # Further bits of U are drawn only while `exp_minus`, which is exact within 2, cannot decide.
    while True:
        lower = exp_minus(x, bits)
        if number < lower:
            return True
        if number >= lower + 2:
            return False
        number = number << _WORD_BITS | next(words)
        bits += _WORD_BITS
