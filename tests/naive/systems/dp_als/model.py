"""DP-ALS's sums by item in Python's integers, one user at a time."""

import math


def sum_by_item(selected, rows, n_items):
    """Return by item the sum of its users' rows, and of the products of two entries, f <= g."""
    n_factors = len(rows[0])
    pairs = [(f, g) for f in range(n_factors) for g in range(f, n_factors)]
    sums, products = ([[0] * n for _ in range(n_items)] for n in (n_factors, len(pairs)))
    for items, row in zip(selected, rows, strict=True):
        for item in items:
            sums[item] = [a + b for a, b in zip(sums[item], row, strict=True)]
            products[item] = [a + row[f] * row[g] for a, (f, g) in zip(products[item], pairs, strict=True)]
    return sums, products


def weighted_sum_by_item(selected, weights, rows, n_items, scale):
    """Return these sums with an entry weighted as w x, and a product as w x / scale, rounded toward zero, times x."""
    n_factors = len(rows[0])
    pairs = [(f, g) for f in range(n_factors) for g in range(f, n_factors)]
    sums, products = ([[0] * n for _ in range(n_items)] for n in (n_factors, len(pairs)))
    for items, row_weights, row in zip(selected, weights, rows, strict=True):
        for item, w in zip(sorted(items), row_weights, strict=True):
            sums[item] = [a + w * b for a, b in zip(sums[item], row, strict=True)]
            # Integer division of the absolute value rounds toward zero.
            cut = [abs(w * b) // scale * (1 if b > 0 else -1) for b in row]
            products[item] = [a + cut[f] * row[g] for a, (f, g) in zip(products[item], pairs, strict=True)]
    return sums, products


def user_weights(levels, scale):
    """Return integers in proportion to a user's levels, of Euclidean norm at most the scale."""
    # The norm is in units of 2**-16 and rounded up.
    norm = math.isqrt(sum(level * level for level in levels) << 32) + 2
    return [(level * scale << 16) // norm for level in levels]
