"""Inverse tables of symmetric integer noise: 128-bit thresholds, and a proved distance from the ideal distribution.

A distribution comes as fixed-point weights W(0), ..., W(R + 1), proportional to its probabilities, each off by at most
`error`.  The table has support [-R, R].  Its total variation distance from the ideal is at most the sum of

- ((2 R + 1) error + tail) / (sum of weights), where `tail` bounds the weight outside the support, by the ratio of the
  last two weights (all distributions here are log-concave, so ratios fall), and
- (2 R + 1) / 2^129, because every probability is rounded to a multiple of 2^-128.

All of this is integer arithmetic, in words of 64 bits (`_kernels/_noise_table`).
See docs/explanation/mechanisms/noise/noise-tables.md.
"""

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec._kernels.mechanisms.noise import _noise_table as _kernel
from fastfedrec.core.arrays import read_only
from fastfedrec.core.immutable import Immutable
from fastfedrec.mechanisms.noise.exact_sampling import exp_minus

__all__ = ["NoiseTable", "gaussian_table", "laplace_table", "rounded_gaussian_table"]

_BITS = 256  # of a weight
_WORDS = 5  # of 64 bits, for a weight or a sum of weights
_TOTAL_BITS = 128  # of a threshold
_MAX_REACH = 2**19  # 16 MB of thresholds
_MOMENT_BITS = 320


@dataclass(frozen=True)
class NoiseTable(Immutable):
    """What the kernel reads: index i of the first threshold above a word is the draw i - reach."""

    reach: int
    high: np.ndarray  # (2 reach + 1,) uint64, high halves of the thresholds and one sentinel
    low: np.ndarray  # (2 reach + 1,) uint64, low halves
    guide: np.ndarray  # (n_cells,) int32, how many thresholds lie below each cell of the words' top bits
    shift: int  # from a word to its cell
    distance: Fraction  # upper bound of the total variation distance from the ideal


def tabulate(weights: np.ndarray, error: int) -> NoiseTable:
    """The table of weights of 0, 1, ..., reach and one beyond, in words, each of which is off by at most `error`."""
    reach = len(weights) - 2
    last, beyond = (_whole(row) for row in weights[reach:])
    total = 2 * _sum(weights[1 : reach + 1]) + _whole(weights[0])
    ratio = Fraction(beyond + error, last - error)
    tail = 2 * (last + error) * ratio / (1 - ratio)
    distance = ((2 * reach + 1) * error + tail) / total + Fraction(2 * reach + 1, 2 ** (_TOTAL_BITS + 1))
    high, low = (np.full(2 * reach + 1, 2**64 - 1, dtype=np.uint64) for _ in range(2))
    inverse = 2 ** (64 * _WORDS + _TOTAL_BITS) // total
    _kernel.fill_thresholds(
        weights[: reach + 1], split_words(total, _WORDS), split_words(inverse, 4), high[:-1], low[:-1]
    )
    cell_bits = min(max((2 * reach).bit_length(), 8), 16)
    cells = np.arange(2**cell_bits, dtype=np.uint64) << np.uint64(64 - cell_bits)
    guide = np.searchsorted(high[:-1], cells, side="left").astype(np.int32)
    # All mechanisms with this parameter share the arrays.
    return NoiseTable(reach, read_only(high), read_only(low), read_only(guide), 64 - cell_bits, distance)


def split_words(number: int, n: int) -> np.ndarray:
    """A whole number as `n` 64-bit words, the lowest first."""
    return np.frombuffer(number.to_bytes(8 * n, "little"), dtype="<u8").astype(np.uint64)


def _whole(words: np.ndarray) -> int:
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def _sum(rows: np.ndarray) -> int:
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
    # Most of the room is never touched.
    out = np.empty((_MAX_REACH + 3, _WORDS), dtype=np.uint64)
    steps = [split_words(step, 4) for step in ratio_of_ratios] or [np.empty(0, dtype=np.uint64)]
    return out[: _kernel.fill_weights(split_words(ratio, 4), *steps, out)]


def _laplace_weights(scale: Fraction) -> tuple[np.ndarray, int]:
    weights = _fill(exp_minus(1 / scale, _BITS))
    return weights, 3 * len(weights)  # each product adds 2 for the ratio and 1 for the shift


def _gaussian_weights(variance: Fraction) -> tuple[np.ndarray, int]:
    # exp(-(x + 1)^2 q) / exp(-x^2 q) is itself a geometric sequence.
    weights = _fill(exp_minus(1 / (2 * variance), _BITS), exp_minus(1 / variance, _BITS))
    return weights, 3 * len(weights) ** 2  # the ratio's own error, at most 3 x, is added at every step


@functools.lru_cache(maxsize=4)
def laplace_table(scale: Fraction) -> NoiseTable:
    """The table of the discrete Laplace distribution."""
    weights, error = _laplace_weights(scale)
    _check_reach(weights, "scale", scale)
    return tabulate(weights, error)


@functools.lru_cache(maxsize=4)
def gaussian_table(stddev: Fraction) -> NoiseTable:
    """The table of the discrete Gaussian distribution; `stddev` is the parameter sigma."""
    weights, error = _gaussian_weights(stddev**2)
    _check_reach(weights, "stddev", stddev)
    return tabulate(weights, error)


@functools.lru_cache(maxsize=4)
def rounded_gaussian_table(stddev: Fraction) -> NoiseTable:
    """The table of a normal variable rounded to the nearest integer; `stddev` at least 1/2.

    With q = 1 / (2 stddev^2), the mass of the density between x - 1/2 and x + 1/2 is proportional to
    exp(-x^2 q) times the sum over j of (x q)^(2 j) / (2 j)! M(j), where M(j) is the integral of (2 u)^(2 j) exp(-u^2 q)
    over u in [-1/2, 1/2].  Both factors have only positive terms.
    """
    weights, error = _gaussian_weights(stddev**2)
    _check_reach(weights, "stddev", stddev, "use LayeredGaussian, from 2^15 to 2^56, or a coarser grid")
    bits = ((len(weights) - 1) ** 2).bit_length()
    _kernel.integrate_cells(_coefficients(1 / (2 * stddev**2), bits), weights, bits)
    # Off by at most: density's error x 2^23; average's error, below 2^40 x 2^-320; the shift.
    return tabulate(weights, error * 2**24)


def _coefficients(q: Fraction, bits: int) -> np.ndarray:
    """(s q)^(2 j) / (2 j)! M(j) for s^2 = 2^bits, in units of 2^-320, from the last that is not 0 to the first.

    s is above every x, and x q <= 16 in the support, so s q <= 23: at most 2^7 terms are above 2^-320.  Those of x
    itself add up to at most 2^23.  By Horner's rule the error of each coefficient is multiplied by a power of x^2 /
    s^2, so that all of them together are those of the series at x, and each step's rounding, less than 1, only shrinks.
    """
    terms, top, bottom, j = [1 << _MOMENT_BITS], q.numerator**2 << bits, q.denominator**2, 0
    while terms[-1]:
        terms.append(terms[-1] * top // (bottom * (2 * j + 1) * (2 * j + 2)))
        j += 1
    series = _moment_terms(q)
    products = [term * _moment(series, j) >> _MOMENT_BITS for j, term in enumerate(terms[:-1])]
    return np.stack([split_words(product, 6) for product in reversed(products)])


def _moment_terms(q: Fraction) -> list[int]:
    """(q / 4)^i / i!, each off by at most 2 units of 2^-320, to the last that is not 0."""
    terms, i = [1 << _MOMENT_BITS], 0
    while terms[-1]:
        i += 1
        terms.append(terms[-1] * q.numerator // (4 * i * q.denominator))
    return terms


def _moment(terms: list[int], j: int) -> int:
    """M(j): the alternating series of exp, integrated; off by less than 2^9 units."""
    return sum((-1) ** i * term // (2 * j + 2 * i + 1) for i, term in enumerate(terms))
