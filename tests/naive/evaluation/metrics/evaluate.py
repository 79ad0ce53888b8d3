"""Readable twin of fastfedrec.evaluation.evaluate: one user at a time, all unseen items, every order of ties."""

from naive.evaluation.metrics import set_metrics


def evaluate(score, train, test, given, items, kind, cutoff):
    """Return (mean over users, dropped), given {user: set of items}, `score(user, item)` and the catalogue `items`."""
    values, dropped = [], {"unknown_users": 0, "unknown_items": 0, "seen_again": 0, "users": 0}
    for user, test_items in test.items():
        dropped_users = set()
        seen = train.get(user, set()) | given.get(user, set())
        for item in test_items:
            if user not in train and user not in given:
                dropped["unknown_users"] += 1
            elif item not in items:
                dropped["unknown_items"] += 1
            elif item in seen:
                dropped["seen_again"] += 1
            else:
                dropped_users.add(item)
        if not dropped_users:
            dropped["users"] += bool(test_items)
            continue
        scores = {item: score(user, item) for item in items if item not in seen}
        if kind != "auc" or len(scores) > len(dropped_users):
            values.append(set_metrics.expectation(kind, cutoff, scores, dropped_users))
    return sum(values) / len(values) if values else None, dropped
