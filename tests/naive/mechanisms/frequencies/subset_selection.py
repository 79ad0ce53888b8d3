"""Subset selection, one word at a time, and the probability of each subset."""

import math

from naive.mechanisms import client_sampling


def report(value, n_values, subset_size, p_count, words):
    """Return a subset; the first word decides on the true value, and its rank among the others means the last value."""
    with_own = next(words) < p_count
    ranks = client_sampling.fixed_size(n_values - 1, subset_size - with_own, words)
    # The last value takes the rank of the true value, which is not among the others.
    other_values = [n_values - 1 if rank == value else rank for rank in ranks]
    return sorted(other_values + [value] * with_own)


def probability(subset, value, n_values, p):
    """Return the probability of one report: subsets with the true value share `p`, those without it 1 - p."""
    if value in subset:
        return p / math.comb(n_values - 1, len(subset) - 1)
    return (1 - p) / math.comb(n_values - 1, len(subset))
