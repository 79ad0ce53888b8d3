"""Cohorts from the words of the streams, on Python's integers."""

BLOCK = 65_536


def poisson(n_clients, probability, key, round_number):
    """Return ids with words below probability x 2^64; `probability` is a fraction."""
    cohort = []
    for start in range(0, n_clients, BLOCK):
        size = min(BLOCK, n_clients - start)
        words = key.words("client_sampling.poisson", round=round_number, user=start // BLOCK, size=size).tolist()
        cohort += [start + i for i, word in enumerate(words) if word < probability * 2**64]
    return cohort


def below(bound, words):
    """Return a uniform integer: 2^64 // bound words map to each value, and the others are rejected."""
    while True:
        product = next(words) * bound
        # Lemire 2019: rejection of the lowest products makes all integers equally likely.
        if product % 2**64 >= 2**64 % bound:
            return product >> 64


def fixed_size(n_clients, cohort_size, words):
    """Sample by Floyd's algorithm with a set."""
    cohort = set()
    for last in range(n_clients - cohort_size, n_clients):
        rank = below(last + 1, words)
        # Floyd's rule: a repeated draw is replaced by the last candidate.
        cohort.add(last if rank in cohort else rank)
    return sorted(cohort)
