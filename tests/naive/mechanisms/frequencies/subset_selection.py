"""Subset selection, one word at a time, and the probability of each subset."""

import math

from naive.mechanisms import client_sampling


def report(value, n_values, subset_size, p_count, words):
    """The first word decides on the own value; of the ranks of the others, the own value's stands for the last."""
    with_own = next(words) < p_count
    ranks = client_sampling.fixed_size(n_values - 1, subset_size - with_own, words)
    others = [n_values - 1 if rank == value else rank for rank in ranks]
    return sorted(others + [value] * with_own)


def probability(subset, value, n_values, p):
    """Of one report: `p` is shared by all subsets with the own value, 1 - p by all without it."""
    if value in subset:
        return p / math.comb(n_values - 1, len(subset) - 1)
    return (1 - p) / math.comb(n_values - 1, len(subset))
