"""Readable twin of the protocol with sampled items: Floyd's subset of each user's unseen items, and lists."""

import math

from naive.compute.ranking import rank, subset
from naive.evaluation.metrics import set_metrics
from naive.evaluation.splits import as_sets


def drawn_lists(train, test, n, key):
    """Yield (row, test items, sampled items) of each user who has both."""
    trained, tested = as_sets(train), as_sets(test)
    for u in range(train.n_users):
        unseen = [i for i in range(train.n_items) if i not in trained[u] and i not in tested[u]]
        if unseen and tested[u]:
            size = min(n, len(unseen))
            words = iter(key.words("evaluation.negatives", user=int(train.global_user_ids[u]), size=size))
            yield u, tested[u], [unseen[position] for position in subset(words, len(unseen), size)]


def by_interaction(score, train, test, n, key, metrics):
    """Return {name: mean over test interactions} of `score(row, column)`, with each test item in a separate list."""
    ranks = [
        rank(score(u, item), [score(u, other) for other in sampled_items])
        for u, items, sampled_items in drawn_lists(train, test, n, key)
        for item in items
    ]
    return {name: sum(metric(name, r) for r in ranks) / len(ranks) for name in metrics}


def by_user(score, train, test, n, key, metrics):
    """Return {name: mean over users}, all test items of a user in one list, over all orders of ties."""
    sums = {name: [] for name in metrics}
    for u, items, sampled_items in drawn_lists(train, test, n, key):
        scores = {item: score(u, item) for item in [*items, *sampled_items]}
        for name in metrics:
            kind, _, cutoff = name.partition("@")
            kind = "hit" if kind == "hr" else kind
            value = set_metrics.expectation(kind, int(cutoff) if cutoff else None, scores, set(items))
            sums[name].append(value)
    return {name: sum(values) / len(values) for name, values in sums.items()}


def metric(name, rank):
    if name == "mrr":
        return 1 / rank
    kind, cutoff = name.split("@")
    if rank > int(cutoff):
        return 0.0
    return 1.0 if kind == "hr" else 1 / math.log2(1 + rank)
