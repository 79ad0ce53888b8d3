"""Readable twin of the protocol with sampled items: Floyd's subset of each user's unseen ones, and lists of them."""

import math

from naive.compute.ranking import rank, subset
from naive.evaluation.metrics import set_metrics
from naive.evaluation.splits import as_sets


def drawn_lists(train, test, n, key):
    """(row, test items, drawn items) of each user who has both."""
    trained, tested = as_sets(train), as_sets(test)
    for u in range(train.n_users):
        unseen = [i for i in range(train.n_items) if i not in trained[u] and i not in tested[u]]
        if unseen and tested[u]:
            size = min(n, len(unseen))
            words = iter(key.words("evaluation.negatives", user=int(train.global_user_ids[u]), size=size))
            yield u, tested[u], [unseen[place] for place in subset(words, len(unseen), size)]


def by_interaction(score, train, test, n, key, metrics):
    """Metrics of `score(row, column)`, each test item in a list of its own: {name: mean over test interactions}."""
    ranks = [
        rank(score(u, item), [score(u, other) for other in others])
        for u, items, others in drawn_lists(train, test, n, key)
        for item in items
    ]
    return {name: sum(metric(name, r) for r in ranks) / len(ranks) for name in metrics}


def by_user(score, train, test, n, key, metrics):
    """The same, all test items of a user in one list, over all orders of ties: {name: mean over users}."""
    found = {name: [] for name in metrics}
    for u, items, others in drawn_lists(train, test, n, key):
        scores = {item: score(u, item) for item in [*items, *others]}
        for name in metrics:
            kind, _, cutoff = name.partition("@")
            kind = "hit" if kind == "hr" else kind
            value = set_metrics.expectation(kind, int(cutoff) if cutoff else None, scores, set(items))
            found[name].append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def metric(name, rank):
    if name == "mrr":
        return 1 / rank
    kind, cutoff = name.split("@")
    if rank > int(cutoff):
        return 0.0
    return 1.0 if kind == "hr" else 1 / math.log2(1 + rank)
