"""DP-ALS's sums by item in Python's integers, one user at a time."""

import math


def sum_by_item(kept, rows, n_items):
    """Of the users who keep an item, the sum of their rows, and that of the products of two entries, f <= g."""
    n_factors = len(rows[0])
    pairs = [(f, g) for f in range(n_factors) for g in range(f, n_factors)]
    sums, products = ([[0] * n for _ in range(n_items)] for n in (n_factors, len(pairs)))
    for items, row in zip(kept, rows, strict=True):
        for item in items:
            sums[item] = [a + b for a, b in zip(sums[item], row, strict=True)]
            products[item] = [a + row[f] * row[g] for a, (f, g) in zip(products[item], pairs, strict=True)]
    return sums, products


def weighted_sum_by_item(kept, weights, rows, n_items, scale):
    """The same where a user's entry counts as w x, and its product as w x / scale, cut towards zero, times x."""
    n_factors = len(rows[0])
    pairs = [(f, g) for f in range(n_factors) for g in range(f, n_factors)]
    sums, products = ([[0] * n for _ in range(n_items)] for n in (n_factors, len(pairs)))
    for items, own, row in zip(kept, weights, rows, strict=True):
        for item, w in zip(sorted(items), own, strict=True):
            sums[item] = [a + w * b for a, b in zip(sums[item], row, strict=True)]
            cut = [abs(w * b) // scale * (1 if b > 0 else -1) for b in row]
            products[item] = [a + cut[f] * row[g] for a, (f, g) in zip(products[item], pairs, strict=True)]
    return sums, products


def user_weights(levels, scale):
    """Whole numbers in proportion to a user's levels, of Euclidean norm at most the scale."""
    norm = math.isqrt(sum(level * level for level in levels) << 32) + 2  # in 2**-16, and too large
    return [(level * scale << 16) // norm for level in levels]
