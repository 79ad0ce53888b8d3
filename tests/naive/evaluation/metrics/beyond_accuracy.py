"""Readable twin of fastfedrec.evaluation.metrics.beyond_accuracy: one list at a time, over sets of users."""

import itertools
import math


def users_of_items(train):
    """Return {column: set of rows} of interactions."""
    users = {item: set() for item in range(train.n_items)}
    for u in range(train.n_users):
        for item in train.indices[train.indptr[u] : train.indptr[u + 1]].tolist():
            users[item].add(u)
    return users


def novelty(items, train):
    """Return the mean of -log2(share of users with the item), or NaN for an empty list."""
    users = users_of_items(train)
    n_users = len(set().union(*users.values()))
    values = [-math.log2(max(len(users[item]), 1) / n_users) for item in items]
    return sum(values) / len(values) if values else math.nan


def diversity(items, train):
    """Return the mean of 1 - cosine over pairs, with 0 as the cosine of an item without users; NaN without a pair."""
    users = users_of_items(train)

    def cosine(a, b):
        common = len(users[a] & users[b])
        return common / math.sqrt(len(users[a]) * len(users[b])) if common else 0.0

    return mean_distance(items, cosine)


def feature_diversity(items, features):
    """Return the mean of 1 - cosine over pairs of items, by rows of numbers."""

    def cosine(a, b):
        product = sum(x * y for x, y in zip(features[a], features[b], strict=True))
        norms = [math.sqrt(sum(x * x for x in features[i])) for i in (a, b)]
        return product / (norms[0] * norms[1]) if all(norms) else 0.0

    return mean_distance(items, cosine)


def mean_distance(items, cosine):
    distances = [1 - cosine(a, b) for a, b in itertools.combinations(items, 2)]
    return sum(distances) / len(distances) if distances else math.nan
