"""Readable twin of fastfedrec.evaluation.evaluate: one user at a time, all unseen items, every order of ties."""

from naive.evaluation.metrics import set_metrics


def evaluate(score, train, test, given, items, kind, cutoff):
    """(mean over users, dropped) of dicts {user: set of items} and `score(user, item)`, over the catalogue `items`."""
    values, dropped = [], {"unknown_users": 0, "unknown_items": 0, "seen_again": 0, "users": 0}
    for user, wanted in test.items():
        left = set()
        seen = train.get(user, set()) | given.get(user, set())
        for item in wanted:
            if user not in train and user not in given:
                dropped["unknown_users"] += 1
            elif item not in items:
                dropped["unknown_items"] += 1
            elif item in seen:
                dropped["seen_again"] += 1
            else:
                left.add(item)
        if not left:
            dropped["users"] += bool(wanted)
            continue
        scores = {item: score(user, item) for item in items if item not in seen}
        if kind != "auc" or len(scores) > len(left):
            values.append(set_metrics.expectation(kind, cutoff, scores, left))
    return sum(values) / len(values) if values else None, dropped
