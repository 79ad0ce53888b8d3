"""Readable twin of mechanisms.item_choice: dicts of counts, and a linear search for the threshold."""

import math


def threshold(scale, delta):
    """Return the smallest T >= 2 with P(1 + Z >= T) <= delta; P(Z >= k) = sum of (1-q)/(1+q) q^j, j >= k."""
    q = math.exp(-1 / scale)
    k = 1
    while q**k / (1 + q) > delta:
        k += 1
    return 1 + k


def above_threshold(counts, noise, lowest, n):
    """Return the n best items above the threshold, ascending, from {item: count} and {item: noise}."""
    noisy = {item: counts[item] + noise[item] for item in counts if counts[item] + noise[item] >= lowest}
    best = sorted(noisy, key=lambda item: (-noisy[item], item))[:n]
    return sorted(best)


def chance(count, scale, lowest):
    """Return the probability that an item with this count is at or above the threshold."""
    q = math.exp(-1 / scale)
    k = lowest - count
    # P(Z >= k) = q^k / (1 + q) for k >= 1, and by symmetry otherwise.
    return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)
