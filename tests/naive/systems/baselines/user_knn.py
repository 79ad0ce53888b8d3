"""UserKNN, one user and one item at a time."""

import math


def user_knn(rows, n_items, n_neighbors, shrinkage):
    """Return scores of every user: summed similarities of its nearest users with the item, or popularity."""

    def similarity(a, b):
        below = math.sqrt(len(rows[a]) * len(rows[b])) + shrinkage
        return len(rows[a] & rows[b]) / below if below else 0.0

    scores = []
    for user, row in enumerate(rows):
        nearest = sorted((-similarity(user, other), other) for other in range(len(rows)) if other != user)[:n_neighbors]
        weights = [(-negative, rows[other]) for negative, other in nearest] if row else [(1.0, other) for other in rows]
        scores.append(
            [sum(weight for weight, neighbor_items in weights if item in neighbor_items) for item in range(n_items)]
        )
    return scores
