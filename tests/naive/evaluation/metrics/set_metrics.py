"""Readable twin of fastfedrec.evaluation.metrics.set_metrics: metrics of one list, and their mean over all orders."""

import itertools
import math


def of_list(kind, cutoff, ranked, relevant):
    """Return a metric of one list of all ranked items, best first."""
    k = len(ranked) if cutoff is None else cutoff
    hits = [rank for rank, item in enumerate(ranked[:k], 1) if item in relevant]
    if kind == "recall":
        return len(hits) / len(relevant)
    if kind == "precision":
        return len(hits) / k
    if kind == "hit":
        return float(bool(hits))
    if kind == "ndcg":
        # The ideal list has the relevant items first.
        ideal = sum(1 / math.log2(1 + rank) for rank in range(1, min(k, len(relevant)) + 1))
        return sum(1 / math.log2(1 + rank) for rank in hits) / ideal
    if kind == "map":
        return sum(n / rank for n, rank in enumerate(hits, 1)) / min(k, len(relevant))
    if kind == "mrr":
        return 1 / hits[0] if hits else 0.0
    ranks = [rank for rank, item in enumerate(ranked, 1) if item in relevant]
    if kind == "mpr":
        return sum((rank - 1) / (len(ranked) - 1) for rank in ranks) / len(ranks)
    if kind == "auc":
        ranks_of_others = [rank for rank, item in enumerate(ranked, 1) if item not in relevant]
        # AUC is the share of (relevant, other) pairs in the right order.
        return sum(p < q for p in ranks for q in ranks_of_others) / (len(ranks) * len(ranks_of_others))
    raise ValueError(kind)


def all_orders(scores):
    """Yield every order of the items of a dict {item: score}, best first, that is consistent with the scores."""
    groups = [
        [item for item in scores if scores[item] == score] for score in sorted(set(scores.values()), reverse=True)
    ]
    for parts in itertools.product(*(list(itertools.permutations(group)) for group in groups)):
        yield [item for part in parts for item in part]


def expectation(kind, cutoff, scores, relevant):
    """Return the mean of a metric over all orders of items with equal scores."""
    values = [of_list(kind, cutoff, ranked, relevant) for ranked in all_orders(scores)]
    return sum(values) / len(values)
