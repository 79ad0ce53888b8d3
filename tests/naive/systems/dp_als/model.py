"""DP-ALS's sums by item in Python's integers, one user at a time."""


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
