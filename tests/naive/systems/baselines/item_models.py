"""Baselines without privacy, one user and one item at a time."""

import math

import numpy as np


def own_history(rows, n_items):
    """Return scores of every user: the user's values first, then popularity, below 1."""
    counts = [sum(item in row for row in rows) for item in range(n_items)]
    largest = max(counts)
    return [[row.get(item, 0) + counts[item] / (largest + 1) for item in range(n_items)] for row in rows]


def item_knn(rows, n_items, n_neighbors, shrinkage):
    """Return scores of every user: similarities of each item's nearest neighbours that the user has, or counts."""
    having = [{user for user, row in enumerate(rows) if item in row} for item in range(n_items)]

    def similarity(a, b):
        below = math.sqrt(len(having[a]) * len(having[b])) + shrinkage
        return len(having[a] & having[b]) / below if below else 0.0

    scores = []
    for row in rows:
        if not row:
            scores.append([len(users) for users in having])
            continue
        line = []
        for item in range(n_items):
            other_items = sorted((-similarity(item, other), other) for other in range(n_items) if other != item)
            line.append(sum(-negative for negative, other in other_items[:n_neighbors] if other in row))
        scores.append(line)
    return scores


def ease(rows, n_items, regularization):
    """Return scores of every user, from one ridge regression for each item on all others, EASE's definition.

    A user without items is scored by the number of users of each item.
    """
    X = np.array([[float(item in row) for item in range(n_items)] for row in rows])
    weights = np.zeros((n_items, n_items))
    for item in range(n_items):
        other_items = [other for other in range(n_items) if other != item]
        A = X[:, other_items].T @ X[:, other_items] + regularization * np.eye(n_items - 1)
        weights[other_items, item] = np.linalg.solve(A, X[:, other_items].T @ X[:, item])
    return np.where(X.any(axis=1, keepdims=True), X @ weights, X.sum(axis=0))
