"""Readable twin of fastfedrec.evaluation.metrics.set_metrics: metrics of one list, and their mean over all orders."""

import itertools
import math


def of_list(kind, cutoff, ranked, relevant):
    """A metric of one list of all items that are ranked, best first."""
    k = len(ranked) if cutoff is None else cutoff
    found = [place for place, item in enumerate(ranked[:k], 1) if item in relevant]
    if kind == "recall":
        return len(found) / len(relevant)
    if kind == "precision":
        return len(found) / k
    if kind == "hit":
        return float(bool(found))
    if kind == "ndcg":
        ideal = sum(1 / math.log2(1 + place) for place in range(1, min(k, len(relevant)) + 1))
        return sum(1 / math.log2(1 + place) for place in found) / ideal
    if kind == "map":
        return sum(n / place for n, place in enumerate(found, 1)) / min(k, len(relevant))
    if kind == "mrr":
        return 1 / found[0] if found else 0.0
    places = [place for place, item in enumerate(ranked, 1) if item in relevant]
    if kind == "mpr":
        return sum((place - 1) / (len(ranked) - 1) for place in places) / len(places)
    if kind == "auc":
        others = [place for place, item in enumerate(ranked, 1) if item not in relevant]
        return sum(p < q for p in places for q in others) / (len(places) * len(others))
    raise ValueError(kind)


def all_orders(scores):
    """Every order of the items of a dict {item: score}, best first, in which a higher score comes before a lower."""
    groups = [
        [item for item in scores if scores[item] == score] for score in sorted(set(scores.values()), reverse=True)
    ]
    for parts in itertools.product(*(list(itertools.permutations(group)) for group in groups)):
        yield [item for part in parts for item in part]


def expectation(kind, cutoff, scores, relevant):
    """The mean of a metric over all orders of items with the same score."""
    values = [of_list(kind, cutoff, ranked, relevant) for ranked in all_orders(scores)]
    return sum(values) / len(values)
