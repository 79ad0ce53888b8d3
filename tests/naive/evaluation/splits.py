"""Readable twins of fastfedrec.evaluation, over dicts of user -> set of items."""

import math

from naive.compute.ranking import subset


def as_sets(interactions):
    """Return {row: [items]} of an Interactions."""
    ends = interactions.indptr.tolist()
    return {u: interactions.indices[ends[u] : ends[u + 1]].tolist() for u in range(interactions.n_users)}


def leave_one_out(interactions, key, latest=False):
    """Return {row: item} of the held-out interactions."""
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
    """Return {row: [items]} of the held-out interactions."""
    held_out = {}
    for u, items in as_sets(interactions).items():
        user = int(interactions.global_user_ids[u])
        uniform = float(key.uniform("evaluation.random_split.counts", user=user, size=1)[0])
        size = min(math.floor(test_fraction * len(items) + uniform), max(len(items) - 1, 0))
        words = iter(key.words("evaluation.random_split", user=user, size=size))
        held_out[u] = [items[position] for position in subset(words, len(items), size)]
    return held_out


def hold_out_entries(interactions, user_fraction, n_entries, key):
    """Return {row: [items]} of the held-out interactions."""
    held_out = {}
    for u, items in as_sets(interactions).items():
        user = int(interactions.global_user_ids[u])
        tested = float(key.uniform("evaluation.hold_out_entries.users", user=user, size=1)[0]) < user_fraction
        size = min(n_entries, max(len(items) - 1, 0)) if tested else 0
        words = iter(key.words("evaluation.hold_out_entries", user=user, size=size))
        held_out[u] = [items[position] for position in subset(words, len(items), size)]
    return held_out


def hold_out_latest(interactions, share, n, user_share, key):
    """Return {row: [items]} of the latest interactions; give one of `share` and `n`."""
    ends, held_out = interactions.indptr.tolist(), {}
    for u, items in as_sets(interactions).items():
        user = int(interactions.global_user_ids[u])
        size, purpose = n, "evaluation.hold_out_entries"
        if share is not None:
            purpose = "evaluation.random_split"
            size = math.floor(share * len(items) + float(key.uniform(f"{purpose}.counts", user=user, size=1)[0]))
        if float(key.uniform("evaluation.hold_out_entries.users", user=user, size=1)[0]) >= user_share:
            size = 0
        times = interactions.timestamps[ends[u] : ends[u + 1]].tolist()
        words = key.words(f"{purpose}.ties", user=user, size=len(items)).tolist()
        from_newest = sorted(zip(times, words, items, strict=True), reverse=True)
        held_out[u] = sorted(item for _, _, item in from_newest[: min(size, max(len(items) - 1, 0))])
    return held_out


def mean_percentile_rank(score, test, seen):
    """Return sum(x rank) / sum(x) of `score(row, column)`; `seen` is None or interactions with items not to rank."""
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
