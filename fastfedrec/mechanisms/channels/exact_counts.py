"""From wished-for probabilities to integers that keep epsilon and to outputs that are unbiased, without rounding."""

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fastfedrec.mechanisms.channels.channel import TOTAL

__all__ = ["proposed_table", "sum_lower", "unbiased_outputs", "unbiased_table"]


def counts_within(probabilities: Sequence[Sequence[Fraction]], ratio: Fraction) -> list[list[int]]:
    """Counts out of 2^64 near the wished-for probabilities, with no two of a column further apart than `ratio`.

    Each column gets a range [low, floor(low * ratio)] first, and its counts never leave it, so the bound does not
    depend on how exact the wishes are; what a row lacks or has too much goes to the columns with the most room.
    """
    # Rounded up: one word less in a rare cell would cost `ratio` words of its column's frequent ones.
    lows = [max(1, math.ceil(min(column) * TOTAL)) for column in zip(*probabilities, strict=True)]
    highs = [int(low * ratio) for low in lows]
    table = []
    for row in probabilities:
        counts = [min(max(int(p * TOTAL), low), high) for p, low, high in zip(row, lows, highs, strict=True)]
        missing = TOTAL - sum(counts)
        sign = 1 if missing > 0 else -1
        rooms = [high - c if sign > 0 else c - low for c, low, high in zip(counts, lows, highs, strict=True)]
        for room, y in sorted(zip(rooms, range(len(counts)), strict=True), reverse=True):
            step = sign * min(abs(missing), room)
            counts[y] += step
            missing -= step
        if missing:
            raise ValueError(
                "nominal_epsilon is too small or there are too many values: no table of 64-bit counts keeps it"
            )
        table.append(counts)
    return table


def sum_lower(a: float, b: float) -> float:
    """The largest float known to be at most a + b: what two budgets are worth together."""
    total = a + b
    if math.isinf(total):
        return sys.float_info.max
    return total if Fraction(total) <= Fraction(a) + Fraction(b) else math.nextafter(total, -math.inf)


def unbiased_outputs(
    counts: Sequence[Sequence[int]], inputs: Sequence[Fraction], start: Sequence[Fraction]
) -> list[Fraction]:
    """The outputs nearest to `start` whose mean on every input is that input exactly (at least as many as inputs)."""
    errors = [
        x * TOTAL - sum((c * v for c, v in zip(row, start, strict=True)), Fraction(0))
        for row, x in zip(counts, inputs, strict=True)
    ]
    if len(start) == len(inputs):
        return [v + w for v, w in zip(start, _solve(counts, errors), strict=True)]
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
    """What a `Channel` is made of: counts within `ratio`, and unbiased outputs near `start` (None for the inputs)."""
    counts = counts_within(probabilities, ratio)
    outputs = unbiased_outputs(counts, inputs, inputs if start is None else start)
    return {"counts": counts, "inputs": inputs, "outputs": outputs}


def proposed_table(
    sets: np.ndarray, weights: np.ndarray, values: np.ndarray, ratio: Fraction, inputs: Sequence[Fraction]
) -> dict[str, Any]:
    """The same for outputs that are each `ratio` times as likely on a set of inputs as on the others, near `values`."""
    wishes = [
        [Fraction(float(w)) * (ratio if own else 1) for w, own in zip(weights, row, strict=True)] for row in sets.T
    ]
    return unbiased_table(wishes, ratio, inputs, [Fraction(float(v)) for v in values])


def _solve(matrix: Sequence[Sequence[int]], right: Sequence[Fraction]) -> list[Fraction]:
    """The solution of an integer system: Bareiss' elimination, in which every division is exact."""
    n = len(matrix)
    scale = math.lcm(*(v.denominator for v in right))
    rows = [[*row, int(v * scale)] for row, v in zip(matrix, right, strict=True)]
    previous = 1
    for i in range(n):
        found = next((j for j in range(i, n) if rows[j][i]), None)
        if found is None:
            raise ValueError("inputs cannot be told apart: the channel has no unbiased outputs at this epsilon")
        rows[i], rows[found] = rows[found], rows[i]
        top, pivot = rows[i], rows[i][i]
        for row in rows[i + 1 :]:
            factor = row[i]
            for j in range(i + 1, n + 1):
                row[j] = (pivot * row[j] - factor * top[j]) // previous
        previous = pivot
    # Every unknown is an integer over the determinant, which is the last pivot (Cramer).
    unknowns = [0] * n
    for i in reversed(range(n)):
        rest = sum(rows[i][j] * unknowns[j] for j in range(i + 1, n))
        unknowns[i] = (previous * rows[i][n] - rest) // rows[i][i]
    return [Fraction(v, previous * scale) for v in unknowns]
