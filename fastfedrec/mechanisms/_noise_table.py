"""Inverse tables of symmetric integer noise: 128-bit thresholds, and a proved distance from the ideal distribution.

A distribution comes as fixed-point weights W(0), ..., W(R + 1), proportional to its probabilities, each off by at most
`error`.  The table has support [-R, R].  Its total variation distance from the ideal is at most the sum of

- ((2 R + 1) error + tail) / (sum of weights), where `tail` bounds the weight outside the support, by the ratio of the
  last two weights (all distributions here are log-concave, so ratios fall), and
- (2 R + 1) / 2^129, because every probability is rounded to a multiple of 2^-128.

All of this is integer arithmetic.  See docs/explanation/privacy/noise-tables.md.
"""

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastfedrec.mechanisms._exact_sampling import exp_minus

_BITS = 256  # of a weight
_TOTAL_BITS = 128  # of a threshold
_MAX_REACH = 2**19  # 16 MB of thresholds
_MOMENT_BITS = 320


@dataclass(frozen=True)
class NoiseTable:
    """What the kernel reads: index i of the first threshold above a word is the draw i - reach."""

    reach: int
    high: np.ndarray  # (2 reach + 1,) uint64, high halves of the thresholds and one sentinel
    low: np.ndarray  # (2 reach + 1,) uint64, low halves
    guide: np.ndarray  # (n_cells,) int32, how many thresholds lie below each cell of the words' top bits
    shift: int  # from a word to its cell
    distance: Fraction  # upper bound of the total variation distance from the ideal


def _tabulate(weights: list[int], error: int) -> NoiseTable:
    reach = len(weights) - 2
    support = [*weights[reach:0:-1], *weights[: reach + 1]]
    total = sum(support)
    ratio = Fraction(weights[-1] + error, weights[reach] - error)
    tail = 2 * (weights[reach] + error) * ratio / (1 - ratio)
    distance = ((2 * reach + 1) * error + tail) / total + Fraction(2 * reach + 1, 2 ** (_TOTAL_BITS + 1))
    thresholds, cumulative = [], 0
    for weight in support[:-1]:
        cumulative += weight
        thresholds.append((cumulative << _TOTAL_BITS) // total)
    high = np.array([t >> 64 for t in thresholds] + [2**64 - 1], dtype=np.uint64)
    low = np.array([t & (2**64 - 1) for t in thresholds] + [2**64 - 1], dtype=np.uint64)
    cell_bits = min(max((2 * reach).bit_length(), 8), 16)
    cells = np.arange(2**cell_bits, dtype=np.uint64) << np.uint64(64 - cell_bits)
    guide = np.searchsorted(high[:-1], cells, side="left").astype(np.int32)
    for array in (high, low, guide):  # shared by all mechanisms with this parameter
        array.flags.writeable = False
    return NoiseTable(reach, high, low, guide, 64 - cell_bits, distance)


def _check_reach(weights: list[int], name: str, value: Fraction) -> None:
    if len(weights) - 2 > _MAX_REACH:
        raise ValueError(
            f"{name} must be small enough for a table of {2 * _MAX_REACH} values, got {float(value):g}; "
            "use sampler='exact', or a coarser grid"
        )


def _laplace_weights(scale: Fraction) -> tuple[list[int], int]:
    ratio = exp_minus(1 / scale, _BITS)
    weights = [1 << _BITS]
    while weights[-1] >> (_BITS - _TOTAL_BITS) and len(weights) <= _MAX_REACH + 2:
        weights.append(weights[-1] * ratio >> _BITS)
    return weights, 3 * len(weights)  # each product adds 2 for the ratio and 1 for the shift


def _gaussian_weights(variance: Fraction) -> tuple[list[int], int]:
    # exp(-(x + 1)^2 q) / exp(-x^2 q) is itself a geometric sequence.
    ratio, step = exp_minus(1 / (2 * variance), _BITS), exp_minus(1 / variance, _BITS)
    weights = [1 << _BITS]
    while weights[-1] >> (_BITS - _TOTAL_BITS) and len(weights) <= _MAX_REACH + 2:
        weights.append(weights[-1] * ratio >> _BITS)
        ratio = ratio * step >> _BITS
    return weights, 3 * len(weights) ** 2  # the ratio's own error, at most 3 x, is added at every step


@functools.lru_cache(maxsize=4)
def laplace_table(scale: Fraction) -> NoiseTable:
    """The table of the discrete Laplace distribution."""
    weights, error = _laplace_weights(scale)
    _check_reach(weights, "scale", scale)
    return _tabulate(weights, error)


@functools.lru_cache(maxsize=4)
def gaussian_table(stddev: Fraction) -> NoiseTable:
    """The table of the discrete Gaussian distribution; `stddev` is the parameter sigma."""
    weights, error = _gaussian_weights(stddev**2)
    _check_reach(weights, "stddev", stddev)
    return _tabulate(weights, error)


@functools.lru_cache(maxsize=4)
def rounded_gaussian_table(stddev: Fraction) -> NoiseTable:
    """The table of a normal variable rounded to the nearest integer; `stddev` at least 1/2.

    With q = 1 / (2 stddev^2), the mass of the density between x - 1/2 and x + 1/2 is proportional to
    exp(-x^2 q) times the sum over j of (x q)^(2 j) / (2 j)! M(j), where M(j) is the integral of (2 u)^(2 j) exp(-u^2 q)
    over u in [-1/2, 1/2].  Both factors have only positive terms.
    """
    densities, error = _gaussian_weights(stddev**2)
    _check_reach(densities, "stddev", stddev)
    q = 1 / (2 * stddev**2)
    # x q <= 16 in the support, so at most 2^7 terms are above 2^-320 and they add up to at most 2^23.
    terms = _moment_terms(q)
    moments = [_moment(terms, j) for j in range(128)]
    top, bottom = q.numerator**2, q.denominator**2
    weights = []
    for x, density in enumerate(densities):
        term, average, j = 1 << _MOMENT_BITS, 0, 0
        while term:
            average += term * moments[j] >> _MOMENT_BITS
            term = term * (x * x * top) // (bottom * (2 * j + 1) * (2 * j + 2))
            j += 1
        weights.append(density * average >> _MOMENT_BITS)
    # Off by at most: density's error x 2^23; average's error, below 2^40 x 2^-320; the shift.
    return _tabulate(weights, error * 2**24)


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
