"""Readable twin of fastfedrec.sgd: the same steps in the same order, one rating at a time, in Python floats."""

import math

import numpy as np

FORMULAS = {
    "squared": (lambda s, r: (s - r) ** 2 / 2, lambda s, r: s - r),
    "absolute": (lambda s, r: abs(s - r), lambda s, r: np.sign(s - r)),
    "huber": (
        lambda s, r: (s - r) ** 2 / 2 if abs(s - r) <= 1 else abs(s - r) - 0.5,
        lambda s, r: s - r if abs(s - r) <= 1 else np.sign(s - r),
    ),
    "logistic": (
        lambda s, r: r * math.log(1 + math.exp(-s)) + (1 - r) * math.log(1 + math.exp(s)),
        lambda s, r: 1 / (1 + math.exp(-s)) - r,
    ),
}


def blocks_of(ids, n_ids, n_blocks):
    """Deal ids out to blocks in alternating directions, the most frequent id first."""
    # The alternating direction gives all blocks similar numbers of ratings.
    there_and_back = [*range(n_blocks), *reversed(range(n_blocks))]
    ids = list(ids)
    order = sorted(range(n_ids), key=lambda x: (-ids.count(x), x))
    return {x: there_and_back[rank % (2 * n_blocks)] for rank, x in enumerate(order)}


def morton(stratum, user_block):
    """Return a pair of blocks' position in Morton order: the interleaved bits of both numbers."""
    return sum((stratum >> bit & 1) << 2 * bit + 1 | (user_block >> bit & 1) << 2 * bit for bit in range(8))


def visiting_order(users, items, n_users, n_items, n_blocks, key):
    """Return positions of the ratings in the order of an epoch."""
    user_block, item_block = blocks_of(users, n_users, n_blocks), blocks_of(items, n_items, n_blocks)
    cells = {(j, k): [] for j in range(n_blocks) for k in range(n_blocks)}
    for position, (u, i) in enumerate(zip(users, items, strict=True)):
        cells[user_block[u], item_block[i]].append(position)
    words = iter(key.words("sgd.order", size=len(users)).tolist())
    for _, cell in sorted(cells.items(), key=lambda pair: morton(pair[0][0] ^ pair[0][1], pair[0][0])):
        # Inside-out shuffle by the high halves of words.
        for last in range(len(cell)):
            position_in_cell = (next(words) >> 32) * (last + 1) >> 32
            cell[position_in_cell], cell[last] = cell[last], cell[position_in_cell]
        part_neighbours(cell, users, items)
    # Blocks j, j ^ s of one stratum s share neither users nor items, so threads run in parallel.
    return [position for s in range(n_blocks) for j in range(n_blocks) for position in cells[j, j ^ s]]


def part_neighbours(cell, users, items):
    """Swap ratings so that none shares a user or item with the three before it, until none of the next 64 fits."""
    for k in range(len(cell)):
        before = cell[max(0, k - 3) : k]
        for j in range(k, min(len(cell), k + 64)):
            if all(users[x] != users[cell[j]] and items[x] != items[cell[j]] for x in before):
                cell[k], cell[j] = cell[j], cell[k]
                break
        else:
            return


def start_mean(ratings, weights, loss):
    mean = float(np.average(ratings, weights=weights))
    if loss != "logistic":
        return mean
    # The logistic loss starts at the logit of the mean, which must be finite.
    share = min(max(mean, 0.001), 0.999)
    return math.log(share / (1 - share))


def fit_factors(
    users,
    items,
    ratings,
    *,
    n_users,
    n_items,
    n_factors,
    # Learning rate of each epoch.
    rates,
    regularization,
    bias_regularization,
    biases,
    weights,
    loss,
    init_scale,
    key,
    n_blocks,
):
    """Return (mean, user biases, item biases, user factors, item factors, mean loss of each epoch)."""
    weights = [1.0] * len(users) if weights is None else list(weights)
    mean = start_mean(ratings, weights, loss) if biases else 0.0
    p = init_scale * key.normal("sgd.user_factors", size=n_users * n_factors).reshape(n_users, n_factors)
    q = init_scale * key.normal("sgd.item_factors", size=n_items * n_factors).reshape(n_items, n_factors)
    b, c = np.zeros(n_users), np.zeros(n_items)
    value, derivative = FORMULAS[loss]
    losses = []
    for rate in rates:
        total = 0.0
        for position in visiting_order(users, items, n_users, n_items, n_blocks, key):
            u, i, r, w = users[position], items[position], ratings[position], weights[position]
            prediction = mean + b[u] + c[i] + p[u] @ q[i]
            total += w * value(prediction, r)
            slope = w * derivative(prediction, r)
            if biases:
                b[u] -= rate * (slope + bias_regularization * b[u])
                c[i] -= rate * (slope + bias_regularization * c[i])
            # Both factors are updated from their previous values.
            p[u], q[i] = (
                p[u] - rate * (slope * q[i] + regularization * p[u]),
                q[i] - rate * (slope * p[u] + regularization * q[i]),
            )
        losses.append(total / sum(weights))
    return mean, b, c, p, q, losses
