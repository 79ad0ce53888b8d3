"""FedRec, one user at a time: lists of (item, kind, rating), equations (1), (3) and (7), and integers of Python."""

import itertools
import math

import numpy as np

RATED, VIRTUAL, WITHHELD = "rated", "virtual", "withheld"


def words(key, purpose, user, round_number=0, size=4096):
    return iter(map(int, key.words(purpose, round=round_number, user=int(user), size=size)))


def uniform_subset(population, size, stream):
    """Return a uniform subset by Bentley and Floyd; the complete set needs no draw."""
    drawn = set()
    for last in range(population - size, population):
        rank = last
        if size < population:
            # The high half of word * n is an integer below n.
            rank = next(stream) * (last + 1) >> 64
            if rank in drawn:
                rank = last
        drawn.add(rank)
    return drawn


def spoken_hybrid(rated, n_items, rho, user, key, round_number=0):
    """Return reported items; `rated` is {item: rating}."""
    unrated = [item for item in range(n_items) if item not in rated]
    size = min(rho * len(rated), len(unrated))
    drawn = uniform_subset(len(unrated), size, words(key, "fedrec.virtual_items", user, round_number))
    virtual = {unrated[rank] for rank in drawn}
    return [
        (item, RATED, rated[item]) if item in rated else (item, VIRTUAL, 0.0)
        for item in range(n_items)
        if item in rated or item in virtual
    ]


def spoken_by_weight(rated, n_items, rho, weights, user, key, round_number=0):
    unrated = [item for item in range(n_items) if item not in rated]
    stream = words(key, "fedrec.virtual_items", user, round_number)
    races = {}
    for item in unrated:
        # Exponential race: the smallest -log(u) / weight win, which samples by weight without replacement.
        uniform = ((next(stream) >> 12) + 0.5) * 2.0**-52
        races[item] = -math.log(uniform) / weights[item] if weights[item] else math.inf
    virtual = set(sorted(unrated, key=races.get)[: rho * len(rated)])
    return [
        (item, RATED, rated[item]) if item in rated else (item, VIRTUAL, 0.0)
        for item in range(n_items)
        if item in rated or item in virtual
    ]


def spoken_by_response(rated, n_items, keep, add, user, key):
    """Return reported items; `keep` and `add` are out of 2^64."""
    stream = words(key, "fedrec.item_responses", user)
    spoken = []
    for item in range(n_items):
        word = next(stream)
        if item in rated:
            spoken.append((item, RATED if word < keep else WITHHELD, rated[item]))
        elif word < add:
            spoken.append((item, VIRTUAL, 0.0))
    return spoken


def descend(x, ratings, item_factors, rate, regularization):
    """Take one step along equation (7)."""
    gradient = sum((x @ item_factors[i] - r) * item_factors[i] for i, r in ratings) / len(ratings) + regularization * x
    return x - rate * gradient


def user_round(x, spoken, item_factors, rate, regularization, n_local):
    """Return the user's new factors, and {item: gradient} of its reported items."""
    ratings = [(i, r) for i, kind, r in spoken if kind != VIRTUAL]
    new = descend(x, ratings, item_factors, rate, regularization) if ratings else x
    copy = x
    for _ in range(n_local if ratings else 0):
        copy = descend(copy, ratings, item_factors, rate, regularization)
    mean = sum(r for _, r in ratings) / len(ratings) if ratings else 0.0
    gradients = {}
    for i, kind, rating in spoken:
        if kind == VIRTUAL:
            # Virtual ratings are predictions of the local model, or the user's mean rating without one.
            rating = copy @ item_factors[i] if n_local else mean
        if kind != WITHHELD:
            gradients[i] = (x @ item_factors[i] - rating) * x + regularization * item_factors[i]
    return new, gradients


def to_integers(gradient, scale, limit):
    return [max(-limit, min(limit, round(float(g) * scale))) for g in gradient]


def total_of(messages, n_items, n_factors):
    """Return sums of {item: integers} and counts, modulo 2^64."""
    total = np.zeros((n_items, n_factors + 1), dtype=object)
    for message in messages:
        for item, integers in message.items():
            total[item] = [(a + b) % 2**64 for a, b in zip(total[item], [*integers, 1], strict=True)]
    return total.astype(np.uint64)


def shares(integers, is_virtual, masks):
    """Return the shares of the server and of the denoiser for one vector."""
    # The last entry counts the item's messages.
    value = [*integers, 1]
    both = [(v + m) % 2**64 for v, m in zip(value, masks, strict=True)]
    # The denoiser's share of a virtual vector equals the server's, so that their difference is 0.
    return both, both if is_virtual else list(masks)


def masks_of(key, user, round_number, n_vectors, width):
    stream = words(key, "fedrec.masks", user, round_number, size=n_vectors * width)
    return [list(itertools.islice(stream, width)) for _ in range(n_vectors)]
