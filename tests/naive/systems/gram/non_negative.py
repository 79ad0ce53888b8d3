"""The nearest matrix without negative sums over pairs, with the same sum of all pairs, entry by entry."""

import itertools

import numpy as np


def non_negative(matrix, shared, *, has_shift=True):
    """Return the positive part of the matrix with the pairs max(A_ij + s_i s_j - t, 0) - s_i s_j."""
    pairs = list(itertools.permutations(range(len(matrix)), 2))
    entries = {(i, j): matrix[i, j] + shared[i] * shared[j] for i, j in pairs}
    total = max(sum(entries.values()), 0.0)
    # The sum falls with the shift, so it is found by bisection.
    low, high = 0.0, max(entries.values()) if has_shift else 0.0
    for _ in range(100):
        shift = (low + high) / 2
        if sum(max(entry - shift, 0.0) for entry in entries.values()) > total:
            low = shift
        else:
            high = shift
    result = np.diag(np.diag(matrix)).astype(float)
    for i, j in pairs:
        result[i, j] = max(entries[i, j] - high, 0.0) - shared[i] * shared[j]
    values, vectors = np.linalg.eigh(result)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
