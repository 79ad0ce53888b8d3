"""DMF, one user, one example and one number at a time."""

import numpy as np
from naive.systems.fedrec.model import words


def examples(user_items, n_items, n_negatives, user, key, round_number):
    """Return [(item, label)]: the user's items, each followed by negatives, shuffled."""
    other_items = [item for item in range(n_items) if item not in user_items]
    stream = words(key, "dmf.examples", user, round_number)
    labelled = []
    for item in sorted(user_items):
        labelled.append((item, 1))
        if other_items:
            labelled += [(other_items[next(stream) * len(other_items) >> 64], 0) for _ in range(n_negatives)]
    for k in range(len(labelled) - 1, 0, -1):
        # The high half of word * n is an integer below n.
        other = next(stream) * (k + 1) >> 64
        labelled[k], labelled[other] = labelled[other], labelled[k]
    return labelled


def learn(x, p, q, drawn, n_negatives, rate, of_users, of_global, of_local):
    """Update one user's factors, and return its messages [(item, gradient)]."""
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
    """Return the probabilities after each number of steps, times the number of reachable users."""
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
            reached = [user for user in range(n) if user != start and chances[user] > 0]
            total[start, reached] += len(reached) * chances[reached]
    return total


def train(rows, n_items, x, p, graph, n_rounds, key, *, n_negatives, rate, of_users, of_global, of_local, walk_length):
    """Return all users' x (n, d) and p, q (n, n_items, d) after the rounds; `rows` are sets of items."""
    x, p = x.astype(float), p.astype(float)
    q, weights = np.zeros_like(p), walks(graph, walk_length)
    for number in range(n_rounds):
        sent = [
            learn(
                x[user], p[user], q[user], examples(user_items, n_items, n_negatives, user, key, number), n_negatives,
                rate, of_users, of_global, of_local,
            )
            for user, user_items in enumerate(rows)
        ]  # fmt: skip
        for receiver in range(len(rows)):
            for sender in range(len(rows)):
                for item, gradient in sent[sender]:
                    # Receivers apply the gradient with the weight of the walks from its sender.
                    p[receiver, item] -= rate * weights[sender, receiver] * gradient
    return x, p, q
