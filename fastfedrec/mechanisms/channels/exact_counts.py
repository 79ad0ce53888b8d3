"""Integer counts near target probabilities that keep epsilon, and unbiased outputs, both without rounding errors."""

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.mechanisms.channels.channel import TOTAL

__all__ = ["proposed_table", "sum_lower", "unbiased_outputs", "unbiased_table"]


def counts_within(probabilities: Sequence[Sequence[Fraction]], ratio: Fraction) -> list[list[int]]:
    """Return counts out of 2^64 near the target probabilities, with ratios of at most `ratio` within each column."""
    # Each column first gets a range [low, floor(low * ratio)] that its counts never leave.  So the bound does not
    # depend on the accuracy of the targets.  Low is rounded up: one word less in a rare cell would cost `ratio` words
    # of the column's frequent cells.
    lows = [max(1, math.ceil(min(column) * TOTAL)) for column in zip(*probabilities, strict=True)]
    highs = [int(low * ratio) for low in lows]
    table = []
    for row in probabilities:
        counts = [min(max(int(p * TOTAL), low), high) for p, low, high in zip(row, lows, highs, strict=True)]
        missing = TOTAL - sum(counts)
        sign = 1 if missing > 0 else -1
        slacks = [high - c if sign > 0 else c - low for c, low, high in zip(counts, lows, highs, strict=True)]
        # The columns with the largest slack take the difference, so that the smallest number of counts changes.
        for slack, y in sorted(zip(slacks, range(len(counts)), strict=True), reverse=True):
            step = sign * min(abs(missing), slack)
            counts[y] += step
            missing -= step
        if missing:
            raise ValueError(
                "nominal_epsilon is too small for this number of values: no table of 64-bit counts keeps it; use a "
                "larger nominal_epsilon or fewer values"
            )
        table.append(counts)
    return table


def sum_lower(a: float, b: float) -> float:
    """Return the largest float that is proved to be at most a + b, the sum of two budgets."""
    total = a + b
    if math.isinf(total):
        return sys.float_info.max
    return total if Fraction(total) <= Fraction(a) + Fraction(b) else math.nextafter(total, -math.inf)


def unbiased_outputs(
    counts: Sequence[Sequence[int]], inputs: Sequence[Fraction], start: Sequence[Fraction]
) -> list[Fraction]:
    """Return the outputs nearest to `start` that are exactly unbiased (at least as many outputs as inputs)."""
    errors = [
        x * TOTAL - sum((c * v for c, v in zip(row, start, strict=True)), Fraction(0))
        for row, x in zip(counts, inputs, strict=True)
    ]
    if len(start) == len(inputs):
        return [v + w for v, w in zip(start, _solve(counts, errors), strict=True)]
    # The correction of least norm is a combination of the rows of counts, with weights from the normal equations.
    gram = [[sum(a * b for a, b in zip(row, other, strict=True)) for other in counts] for row in counts]
    weights = _solve(gram, errors)
    return [
        v + sum((w * row[y] for w, row in zip(weights, counts, strict=True)), Fraction(0)) for y, v in enumerate(start)
    ]


def unbiased_table(
    probabilities: Sequence[Sequence[Fraction]],
    ratio: Fraction,
    inputs: Sequence[Fraction],
    start: Sequence[Fraction] | None = None,
) -> dict[str, Any]:
    """Return a `Channel`'s arguments: counts within `ratio`, and unbiased outputs near `start` (None: the inputs)."""
    counts = counts_within(probabilities, ratio)
    outputs = unbiased_outputs(counts, inputs, inputs if start is None else start)
    return {"counts": counts, "inputs": inputs, "outputs": outputs}


def proposed_table(
    sets: np.ndarray, weights: np.ndarray, values: np.ndarray, ratio: Fraction, inputs: Sequence[Fraction]
) -> dict[str, Any]:
    """Return the `unbiased_table` of outputs that are `ratio` times as likely on a set of inputs as elsewhere."""
    targets = [
        [Fraction(float(w)) * (ratio if is_in_set else 1) for w, is_in_set in zip(weights, row, strict=True)]
        for row in sets.T
    ]
    return unbiased_table(targets, ratio, inputs, [Fraction(float(v)) for v in values])


def _solve(matrix: Sequence[Sequence[int]], right: Sequence[Fraction]) -> list[Fraction]:
    """Solve an integer system by Bareiss' elimination, where every division is exact."""
    n = len(matrix)
    scale = math.lcm(*(v.denominator for v in right))
    rows = [[*row, int(v * scale)] for row, v in zip(matrix, right, strict=True)]
    previous = 1
    for i in range(n):
        pivot_row = next((j for j in range(i, n) if rows[j][i]), None)
        if pivot_row is None:
            raise ValueError(
                "inputs must have linearly independent counts, got dependent ones: no outputs are unbiased at this "
                "epsilon; use a larger nominal_epsilon"
            )
        rows[i], rows[pivot_row] = rows[pivot_row], rows[i]
        top, pivot = rows[i], rows[i][i]
        for row in rows[i + 1 :]:
            factor = row[i]
            for j in range(i + 1, n + 1):  # columns up to i are not read again
                row[j] = (pivot * row[j] - factor * top[j]) // previous
        previous = pivot
    # Every unknown is an integer over the determinant, which is the last pivot (Cramer).
    unknowns = [0] * n
    for i in reversed(range(n)):
        known_part = sum(rows[i][j] * unknowns[j] for j in range(i + 1, n))
        unknowns[i] = (previous * rows[i][n] - known_part) // rows[i][i]
    return [Fraction(v, previous * scale) for v in unknowns]
