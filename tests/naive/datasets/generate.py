"""Twin of the generator: one user's items from the shared tables, in plain Python."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np

STANDARD_NORMAL = NormalDist()
TWO_32 = 2**32


def stream(key, purpose, user, size):
    return [int(word) for word in key.words(f"datasets.generate.{purpose}", user=user, size=size)]


def normals(key, purpose, user, size):
    return [STANDARD_NORMAL.inv_cdf(((word >> 12) + 0.5) * 2.0**-52) for word in stream(key, purpose, user, size)]


def alias_weights(cells):
    """Return each item's integer weight from an alias table of (chance << 32 | other item) cells."""
    weights = [0] * len(cells)
    for item, cell in enumerate(cells):
        weights[item] += cell >> 32
        # The cell's remaining chance belongs to its alias.
        weights[cell % TWO_32] += TWO_32 - (cell >> 32)
    return weights


def user_length(key, thresholds, shortest, user):
    coin = stream(key, "activity", user, 1)[0] >> 32
    return shortest + sum(int(threshold) <= coin for threshold in thresholds)


def topic_shares(key, anchors, median, topic_noise, tilt, gamma, user, length):
    """Return the shares of topics, as integers that add up to 2**32."""
    n_topics, n_dims = len(anchors), len(anchors[0])
    z = normals(key, "taste", user, n_dims + n_topics)
    z[0] -= tilt * math.log(length / median)
    sharpness = math.pow(length / median, -gamma)
    logits = []
    for k in range(n_topics):
        logit = topic_noise * z[n_dims + k]
        for j in range(n_dims):
            logit += anchors[k][j] * z[j]
        logits.append(sharpness * logit)
    # Softmax with the maximum subtracted, which avoids overflow.
    weights = [math.exp(logit - max(logits)) for logit in logits]
    total = 0.0
    for weight in weights:
        total += weight
    running, edges = 0.0, [0]
    for weight in weights:
        running += weight
        edges.append(int(running / total * TWO_32))
    # Rounding may leave the last edge below 2^32.
    edges[-1] = TWO_32
    return [high - low for low, high in pairwise(edges)]


def draw_items(key, alias, shares, budget, user, length):
    """Return the user's items in the order of the draws, and the number of draws."""
    n_items = len(alias[0])
    limit = budget * length + 64
    words = stream(key, "draw", user, 2 * limit)
    items, draws = [], 0
    while len(items) < length and draws < limit:
        coin, word = words[2 * draws] >> 32, words[2 * draws + 1]
        draws += 1
        topic = 0
        # Inverse distribution function of the topic.
        while coin >= shares[topic]:
            coin -= shares[topic]
            topic += 1
        cell, remainder = divmod(word * n_items, 2**64)
        chance, other = divmod(int(alias[topic][cell]), TWO_32)
        item = cell if remainder >> 32 < chance else other
        if item not in items:
            items.append(item)
    if len(items) < length:
        # After too many repeated items, the remaining ones come from an exponential race.
        items += race(key, alias, shares, user, set(items), length - len(items))
    return items, draws


def race(key, alias, shares, user, seen, n):
    n_items = len(alias[0])
    weights = [0.0] * n_items
    for share, cells in zip(shares, alias, strict=True):
        for item in range(n_items):
            chance, other = divmod(int(cells[item]), TWO_32)
            weights[item] += float(share) * chance
            weights[other] += float(share) * (TWO_32 - chance)
    unseen = [item for item in range(n_items) if item not in seen]
    words = stream(key, "race", user, len(unseen))
    arrivals = [
        (-math.log(((word >> 12) + 0.5) * 2.0**-52) / weights[item], item)
        for word, item in zip(words, unseen, strict=True)
    ]
    return [item for _, item in sorted(arrivals)[:n]]


def rate_items(key, tables, shares, user, items):
    """Return ratings 1 to 5 of `items`, which are in ascending order."""
    user_scale, taste_scale, affinity_mean, affinity_scale, noise_scale, *cuts = tables.scales.tolist()
    n_tastes = tables.item_tastes.shape[1]
    z = normals(key, "rating", user, 1 + n_tastes + len(items))
    ratings = []
    for j, item in enumerate(items):
        dot = 0.0
        for f in range(n_tastes):
            dot += taste_scale * z[1 + f] * float(tables.item_tastes[item, f])
        weight = 0.0
        for k, share in enumerate(shares):
            weight += share * float(tables.item_topics[item, k])
        y = user_scale * z[0] + float(tables.item_effects[item]) + dot
        affinity = math.log(weight / TWO_32) - float(tables.log_mean_weights[item]) - affinity_mean
        y += affinity_scale * affinity
        y += noise_scale * z[1 + n_tastes + j]
        ratings.append(1 + sum(y > cut for cut in cuts))
    return ratings


def expected_shares(shares, topics, lengths):
    """Return the mean over users of 1 - exp(-t_u w_ui), with t_u by bisection."""
    total = np.zeros(topics.shape[1])
    for share, length in zip(shares, lengths, strict=True):
        weights = share @ topics
        low, high = 0.0, 1e12
        for _ in range(200):
            middle = (low + high) / 2
            # The expected number of items rises with t, so bisection finds t with the given length.
            low, high = (middle, high) if -np.expm1(-middle * weights).sum() < length else (low, middle)
        total += -np.expm1(-low * weights)
    return total / len(lengths)
