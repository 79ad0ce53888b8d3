"""DPLCF, one user and one pair of items at a time."""

import math


def answers(items, n_items, user, key, purpose, threshold):
    words = key.words(purpose, user=int(user), size=n_items).tolist()
    return [1 if words[i] < (threshold if i in items else 2**64 - threshold) else -1 for i in range(n_items)]


def estimated_counts(rows, decoder):
    """Return the users of each item and of each pair, from rows of answers."""
    bits = [[(1 + decoder * a) / 2 for a in row] for row in rows]
    n_items = len(rows[0])
    single = [sum(row[i] for row in bits) for i in range(n_items)]
    pair = [[sum(row[i] * row[j] for row in bits) for j in range(n_items)] for i in range(n_items)]
    return single, pair


def neighbors(rows, decoder, n_kept):
    """Return (item, similarity) of the most similar other items of each item."""
    single, pair = estimated_counts(rows, decoder)
    floor = max(1.0, math.sqrt(len(rows) * (decoder**2 - 1)) / 2)
    lengths = [math.sqrt(max(count, floor)) for count in single]
    result = []
    for i in range(len(single)):
        similarity = [
            (min(max(pair[i][j] / (lengths[i] * lengths[j]), 0.0), 1.0), j) for j in range(len(single)) if j != i
        ]
        similarity.sort(key=lambda entry: (-entry[0], entry[1]))
        result.append([(j, s) for s, j in similarity[:n_kept]])
    return result


def score(user_items, neighbors_of_item):
    return sum(s for j, s in neighbors_of_item if j in user_items)
