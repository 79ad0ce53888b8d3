"""Inverse tables of symmetric integer noise: 128-bit thresholds, and a proved distance from the ideal distribution.

A distribution is given by fixed-point weights W(0), ..., W(R + 1), proportional to its probabilities, with an error of
at most `error` each.  The table has support [-R, R].  Its total-variation distance from the ideal is at most the sum of

- ((2 R + 1) error + tail) / (sum of weights), and
- (2 R + 1) / 2^129, because every probability is rounded to a multiple of 2^-128.

Here `tail` bounds the weight outside the support by the ratio of the last two weights.  All distributions here are
log-concave, so these ratios decrease.

All computations use integer arithmetic in words of 64 bits (`_kernels/_noise_table`).
See docs/explanation/mechanisms/noise/noise-tables.md.
"""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec._kernels.mechanisms.noise import _noise_table as _kernel
from fastfedrec.core.arrays import read_only
from fastfedrec.core.bessel import bessel_weights
from fastfedrec.core.immutable import Immutable
from fastfedrec.mechanisms.noise.exact_sampling import exp_minus

__all__ = [
    "NoiseTable", "gaussian_distance", "gaussian_table", "laplace_table", "rounded_gaussian_table", "skellam_table",
]  # fmt: skip

_BITS = 256  # fraction bits of a weight
_WORDS = 5  # 64-bit words of a weight or a sum of weights
_TOTAL_BITS = 128  # fraction bits of a threshold
_DISTANCE_BITS = 320  # fraction bits of a total-variation distance, which is above 2^-129
_MAX_REACH = 2**19  # largest value of a table, with 16 MB of thresholds
_MOMENT_BITS = 320  # fraction bits of the series of `rounded_gaussian_table`


@dataclass(frozen=True)
class NoiseTable(Immutable):
    """Inverse table of a distribution: the index i of the first threshold above a word gives the draw i - reach."""

    reach: int
    high: np.ndarray  # (2 reach + 1,) uint64, high halves of the thresholds and one sentinel
    low: np.ndarray  # (2 reach + 1,) uint64, low halves
    guide: np.ndarray  # (n_cells,) int32, number of thresholds below each cell of the words' top bits
    shift: int  # right shift from a word to its cell
    total_variation: Fraction  # upper bound on the total-variation distance from the ideal


def tabulate(weights: np.ndarray, error: int) -> NoiseTable:
    """Return the table for the weights of 0, ..., reach + 1, in words, with an error of at most `error` each."""
    reach = len(weights) - 2
    total, distance = _total_and_distance(weights, error)
    # Thresholds are cumulative weights times 2^128 / total, in two halves; the last entry is a sentinel.
    high, low = (np.full(2 * reach + 1, 2**64 - 1, dtype=np.uint64) for _ in range(2))
    inverse = 2 ** (64 * _WORDS + _TOTAL_BITS) // total
    _kernel.fill_thresholds(
        weights[: reach + 1], split_words(total, _WORDS), split_words(inverse, 4), high[:-1], low[:-1]
    )
    # The guide maps a word's top bits to its first possible threshold, which shortens the search.
    cell_bits = min(max((2 * reach).bit_length(), 8), 16)
    cells = np.arange(2**cell_bits, dtype=np.uint64) << np.uint64(64 - cell_bits)
    guide = np.searchsorted(high[:-1], cells, side="left").astype(np.int32)
    # All mechanisms with this parameter share the arrays, so these are read-only.
    return NoiseTable(reach, read_only(high), read_only(low), read_only(guide), 64 - cell_bits, distance)


def _total_and_distance(weights: np.ndarray, error: int) -> tuple[int, Fraction]:
    """Return the sum of all weights of a table, and the bound on its total-variation distance."""
    reach = len(weights) - 2
    last, after_last = (_join_words(row) for row in weights[reach:])
    total = 2 * _sum(weights[1 : reach + 1]) + _join_words(weights[0])
    # The weights beyond the support decrease at least as fast as a geometric series with this ratio.
    ratio = Fraction(after_last + error, last - error)
    tail = 2 * (last + error) * ratio / (1 - ratio)
    distance = ((2 * reach + 1) * error + tail) / total + Fraction(2 * reach + 1, 2 ** (_TOTAL_BITS + 1))
    # Rounded up, because arithmetic with the numerators of thousands of bits takes most of the time of a plan.
    return total, Fraction(math.ceil(distance * 2**_DISTANCE_BITS), 2**_DISTANCE_BITS)


def split_words(number: int, n: int) -> np.ndarray:
    """Return an integer as `n` 64-bit words, the lowest first."""
    return np.frombuffer(number.to_bytes(8 * n, "little"), dtype="<u8").astype(np.uint64)


def _join_words(words: np.ndarray) -> int:
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def _sum(rows: np.ndarray) -> int:
    # Sums of halves fit 64 bits, for up to 2^32 rows.
    low, high = (half.sum(axis=0).tolist() for half in (rows & np.uint64(2**32 - 1), rows >> np.uint64(32)))
    return sum((a + (b << 32)) << (64 * k) for k, (a, b) in enumerate(zip(low, high, strict=True)))


def _check_reach(
    weights: np.ndarray, name: str, value: Fraction, remedy: str = "use sampler='exact', or a coarser grid"
) -> None:
    if len(weights) - 2 > _MAX_REACH:
        raise ValueError(
            f"{name} must be small enough for a table of {2 * _MAX_REACH} values, got {float(value):g}; {remedy}"
        )


def _fill(ratio: int, *ratio_of_ratios: int) -> np.ndarray:
    # The kernel writes a small part of the buffer; the system allocates pages at their first use.
    out = np.empty((_MAX_REACH + 3, _WORDS), dtype=np.uint64)
    steps = [split_words(step, 4) for step in ratio_of_ratios] or [np.empty(0, dtype=np.uint64)]
    return out[: _kernel.fill_weights(split_words(ratio, 4), *steps, out)]


def _laplace_weights(scale: Fraction) -> tuple[np.ndarray, int]:
    weights = _fill(exp_minus(1 / scale, _BITS))
    return weights, 3 * len(weights)  # each product adds an error of 2 for the ratio and 1 for the shift


def _gaussian_weights(variance: Fraction) -> tuple[np.ndarray, int]:
    # The ratios exp(-(x + 1)^2 q) / exp(-x^2 q) form a geometric sequence in x.
    weights = _fill(exp_minus(1 / (2 * variance), _BITS), exp_minus(1 / variance, _BITS))
    return weights, 3 * len(weights) ** 2  # each step adds the error of the ratio, at most 3 x


@functools.lru_cache(maxsize=4)
def laplace_table(scale: Fraction) -> NoiseTable:
    """Return the table of the discrete Laplace distribution."""
    weights, error = _laplace_weights(scale)
    _check_reach(weights, "scale", scale)
    return tabulate(weights, error)


@functools.lru_cache(maxsize=4)
def gaussian_table(stddev: Fraction) -> NoiseTable:
    """Return the table of the discrete Gaussian distribution with parameter sigma `stddev`."""
    weights, error = _gaussian_weights(stddev**2)
    _check_reach(weights, "stddev", stddev)
    return tabulate(weights, error)


@functools.lru_cache(maxsize=4096)
def gaussian_distance(stddev: Fraction) -> Fraction:
    """Return the `total_variation` of `gaussian_table`, without the thresholds, which take most of its time."""
    return _total_and_distance(*_gaussian_weights(stddev**2))[1]


@functools.lru_cache(maxsize=4)
def skellam_table(variance: Fraction) -> NoiseTable:
    """Return the table of the Skellam distribution; `variance` is at most 2^28, which takes a second."""
    weights = bessel_weights(variance, _BITS, _TOTAL_BITS)
    rows = np.frombuffer(b"".join(weight.to_bytes(8 * _WORDS, "little") for weight in weights), dtype="<u8")
    return tabulate(rows.astype(np.uint64).reshape(-1, _WORDS), 2 * len(weights) + 2)


@functools.lru_cache(maxsize=4)
def rounded_gaussian_table(stddev: Fraction) -> NoiseTable:
    """Return the table of a normal variable rounded to the nearest integer; `stddev` is at least 1/2."""
    # With q = 1 / (2 stddev^2), the mass of the density between x - 1/2 and x + 1/2 is proportional to exp(-x^2 q)
    # times the sum over j of (x q)^(2 j) / (2 j)! M(j), where M(j) is the integral of (2 u)^(2 j) exp(-u^2 q) over u in
    # [-1/2, 1/2].  All terms of both factors are positive.
    weights, error = _gaussian_weights(stddev**2)
    _check_reach(weights, "stddev", stddev, "use gaussian_noise(stddev), up to 2^56, or a coarser grid")
    bits = ((len(weights) - 1) ** 2).bit_length()
    _kernel.integrate_cells(_coefficients(1 / (2 * stddev**2), bits), weights, bits)
    # The error is at most the sum of 2^23 times the density's error, the average's error below 2^40 2^-320, and the
    # error of the shift.
    return tabulate(weights, error * 2**24)


def _coefficients(q: Fraction, bits: int) -> np.ndarray:
    """Return (s q)^(2 j) / (2 j)! M(j) for s^2 = 2^bits, in units of 2^-320, from the last nonzero one down."""
    # s is above every x, and x q <= 16 in the support, so s q <= 23: at most 2^7 terms are above 2^-320.  The terms of
    # x itself add up to at most 2^23.  Horner's rule multiplies the error of each coefficient by a power of x^2 / s^2.
    # So the errors add up as in the series at x, and the rounding error of each step, below 1, only decreases.
    terms, top, bottom, j = [1 << _MOMENT_BITS], q.numerator**2 << bits, q.denominator**2, 0
    while terms[-1]:
        terms.append(terms[-1] * top // (bottom * (2 * j + 1) * (2 * j + 2)))
        j += 1
    series = _moment_terms(q)
    products = [term * _moment(series, j) >> _MOMENT_BITS for j, term in enumerate(terms[:-1])]
    return np.stack([split_words(product, 6) for product in reversed(products)])


def _moment_terms(q: Fraction) -> list[int]:
    """Return (q / 4)^i / i! up to the last nonzero one, with an error of at most 2 units of 2^-320 each."""
    terms, i = [1 << _MOMENT_BITS], 0
    while terms[-1]:
        i += 1
        terms.append(terms[-1] * q.numerator // (4 * i * q.denominator))
    return terms


def _moment(terms: list[int], j: int) -> int:
    """Return M(j) as the integrated alternating series of exp, with an error below 2^9 units."""
    return sum((-1) ** i * term // (2 * j + 2 * i + 1) for i, term in enumerate(terms))
