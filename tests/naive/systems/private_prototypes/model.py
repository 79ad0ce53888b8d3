"""Twin of an entity's sums in private prototypes, one value at a time, without noise."""

from fractions import Fraction


def sums(rows, labels, n_groups, value_range, masked, steps):
    """Return counts and sums of each group in grid steps; entries of 0 in `rows` are missing."""
    low, high = value_range
    center = Fraction(round((Fraction(low) + Fraction(high)) / 2 * steps), steps) if masked else 0
    largest = max(round((center - Fraction(low)) * steps), round((Fraction(high) - center) * steps))
    n_items = len(rows[0])
    totals = [[0] * n_items for _ in range(n_groups)]
    counts = [[0] * (n_items if masked else 1) for _ in range(n_groups)]
    for row, label in zip(rows, labels, strict=True):
        if not masked:
            counts[label][0] += steps
        for item, value in enumerate(row):
            if value:
                value = min(max(float(value), low), high)
                totals[label][item] += min(max(round((Fraction(value) - center) * steps), -largest), largest)
                if masked:
                    counts[label][item] += steps
    return counts, totals
