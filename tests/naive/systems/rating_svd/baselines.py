"""Nearest items for ratings, one pair at a time."""

import math


def similarity(a, b, shrinkage):
    """Return the shrunk cosine of two {user: centred rating}, at least 0."""
    common = sorted(set(a) & set(b))
    power = sum(a[u] ** 2 for u in common) * sum(b[u] ** 2 for u in common)
    if not power:
        return 0.0
    cosine = sum(a[u] * b[u] for u in common) / math.sqrt(power)
    return min(max(cosine * len(common) / (len(common) + shrinkage), 0.0), 1.0)


def deviation(user_ratings, neighbors):
    """Return a user's mean centred rating of an item's [(neighbour, similarity)], and of one 0 with weight 0.5."""
    known = [(user_ratings[j], s) for j, s in neighbors if j in user_ratings]
    return sum(v * s for v, s in known) / (sum(s for _, s in known) + 0.5)
