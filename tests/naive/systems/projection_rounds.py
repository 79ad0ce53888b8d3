"""DPSubspace's sums in Python's integers, one user and one item at a time."""

import math


def share(unit, n):
    """Return floor(unit / sqrt(n))."""
    return math.isqrt(unit * unit // n)


def contribution(row, mean, encoder, scale, unit):
    """Return one contribution: row i is w z_i (p - z_i E_i), p = E'z, w the largest integer with a norm in unit."""
    n_columns = len(encoder[0])
    if not row:
        return [[0] * n_columns for _ in mean]
    row_share = share(scale, len(row))
    z = [row_share * (item in row) - m for item, m in enumerate(mean)]
    projection = [sum(a * e[k] for a, e in zip(z, encoder, strict=True)) for k in range(n_columns)]
    # The projection excludes item i, so that no item predicts itself.
    rows = [
        [a * (p - a * e) for p, e in zip(projection, of_item, strict=True)]
        for a, of_item in zip(z, encoder, strict=True)
    ]
    square = sum(x * x for of_item in rows for x in of_item)
    # The integer square root never rounds up, so the bound holds exactly.
    weight = math.isqrt(unit * unit // square) if square else 0
    return [[weight * x for x in of_item] for of_item in rows]


def projection_sums(rows, mean, encoder, scale, unit):
    """Return the sums over users, item by item."""
    parts = [contribution(row, mean, encoder, scale, unit) for row in rows]
    return [[sum(column) for column in zip(*of_item, strict=True)] for of_item in zip(*parts, strict=True)]
