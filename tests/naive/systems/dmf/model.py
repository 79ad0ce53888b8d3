"""DMF, one user, one example and one number at a time."""

import numpy as np
from naive.systems.fedrec.model import words


def examples(own, n_items, n_negatives, user, key, round_number):
    """[(item, label)]: what the user has, with others behind each, shuffled."""
    others = [item for item in range(n_items) if item not in own]
    stream = words(key, "dmf.examples", user, round_number)
    found = []
    for item in sorted(own):
        found.append((item, 1))
        if others:
            found += [(others[next(stream) * len(others) >> 64], 0) for _ in range(n_negatives)]
    for k in range(len(found) - 1, 0, -1):
        other = next(stream) * (k + 1) >> 64
        found[k], found[other] = found[other], found[k]
    return found


def learn(x, p, q, drawn, n_negatives, rate, of_users, of_global, of_local):
    """Moves one user's factors; what it sends: [(item, gradient)]."""
    sent = []
    for item, label in drawn:
        v = p[item] + q[item]
        error = (x @ v - label) * (1 if label else 1 / n_negatives)
        gradients = error * v + of_users * x, error * x + of_global * p[item], error * x + of_local * q[item]
        sent.append((item, gradients[1]))
        x -= rate * gradients[0]
        p[item] -= rate * gradients[1]
        q[item] -= rate * gradients[2]
    return sent


def walks(graph, walk_length):
    """By walking: the chances after each number of steps, times how many may be reached then."""
    n = len(graph)
    total = np.zeros((n, n))
    for start in range(n):
        chances = np.eye(n)[start]
        for _ in range(walk_length):
            after = np.zeros(n)
            for user in range(n):
                if graph[user].sum():
                    after += chances[user] * graph[user] / graph[user].sum()
            chances = after
            others = [user for user in range(n) if user != start and chances[user] > 0]
            total[start, others] += len(others) * chances[others]
    return total


def train(rows, n_items, x, p, graph, n_rounds, key, *, n_negatives, rate, of_users, of_global, of_local, walk_length):
    """`rows` are sets of items; all users' x (n, d) and p, q (n, n_items, d), after so many rounds."""
    x, p = x.astype(float), p.astype(float)
    q, weights = np.zeros_like(p), walks(graph, walk_length)
    for number in range(n_rounds):
        sent = [
            learn(
                x[user], p[user], q[user], examples(own, n_items, n_negatives, user, key, number), n_negatives, rate,
                of_users, of_global, of_local,
            )
            for user, own in enumerate(rows)
        ]  # fmt: skip
        for receiver in range(len(rows)):
            for sender in range(len(rows)):
                for item, gradient in sent[sender]:
                    p[receiver, item] -= rate * weights[sender, receiver] * gradient
    return x, p, q
