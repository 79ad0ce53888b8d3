"""Readable twins of fastfedrec.evaluation, over dicts of user -> set of items."""

import math

from naive.compute.ranking import rank, subset


def as_sets(interactions):
    """{row: [items]} of an Interactions."""
    ends = interactions.indptr.tolist()
    return {u: interactions.indices[ends[u] : ends[u + 1]].tolist() for u in range(interactions.n_users)}


def leave_one_out(interactions, key, latest=False):
    """{row: item} of the held-out interactions."""
    held_out = {}
    for u, items in as_sets(interactions).items():
        if len(items) < 2:
            continue
        candidates = items
        if latest:
            times = interactions.timestamps[interactions.indptr[u] : interactions.indptr[u + 1]].tolist()
            candidates = [item for item, time in zip(items, times, strict=True) if time == max(times)]
        word = int(key.words("evaluation.leave_one_out", user=int(interactions.global_user_ids[u]), size=1)[0])
        held_out[u] = candidates[(word * len(candidates)) >> 64]
    return held_out


def random_split(interactions, test_fraction, key):
    """{row: [items]} of the held-out interactions."""
    held_out = {}
    for u, items in as_sets(interactions).items():
        user = int(interactions.global_user_ids[u])
        uniform = float(key.uniform("evaluation.random_split.counts", user=user, size=1)[0])
        size = min(math.floor(test_fraction * len(items) + uniform), max(len(items) - 1, 0))
        words = iter(key.words("evaluation.random_split", user=user, size=size))
        held_out[u] = [items[place] for place in subset(words, len(items), size)]
    return held_out


def evaluate(score, train, test, n_negatives, key, metrics):
    """Metrics of `score(row, column)`: {name: mean over test interactions}."""
    trained, tested = as_sets(train), as_sets(test)
    ranks = []
    for u in range(train.n_users):
        unseen = [i for i in range(train.n_items) if i not in trained[u] and i not in tested[u]]
        if not unseen:
            continue
        size = len(unseen) if n_negatives is None else min(n_negatives, len(unseen))
        words = iter(key.words("evaluation.negatives", user=int(train.global_user_ids[u]), size=size))
        others = [score(u, unseen[place]) for place in subset(words, len(unseen), size)]
        ranks += [rank(score(u, item), others) for item in tested[u]]
    return {name: sum(metric(name, r) for r in ranks) / len(ranks) for name in metrics}


def metric(name, rank):
    if name == "mrr":
        return 1 / rank
    kind, cutoff = name.split("@")
    if rank > int(cutoff):
        return 0.0
    return 1.0 if kind == "hr" else 1 / math.log2(1 + rank)


def hold_out_entries(interactions, user_fraction, n_entries, key):
    """{row: [items]} of the held-out interactions."""
    held_out = {}
    for u, items in as_sets(interactions).items():
        user = int(interactions.global_user_ids[u])
        tested = float(key.uniform("evaluation.hold_out_entries.users", user=user, size=1)[0]) < user_fraction
        size = min(n_entries, max(len(items) - 1, 0)) if tested else 0
        words = iter(key.words("evaluation.hold_out_entries", user=user, size=size))
        held_out[u] = [items[place] for place in subset(words, len(items), size)]
    return held_out


def mean_percentile_rank(score, test, seen):
    """sum(x rank) / sum(x) of `score(row, column)`; `seen` is None or interactions whose items are not ranked."""
    known = as_sets(seen) if seen is not None else {u: [] for u in range(test.n_users)}
    values = iter(test.values_or_ones().tolist())
    above = total = 0.0
    for u, items in as_sets(test).items():
        for item in items:
            ranked = [i for i in range(test.n_items) if (i not in known[u] or i in items) and i != item]
            higher = sum(score(u, i) > score(u, item) for i in ranked)
            same = sum(score(u, i) == score(u, item) for i in ranked)
            x = next(values)
            above += x * (higher + same / 2) / len(ranked)
            total += x
    return above / total
