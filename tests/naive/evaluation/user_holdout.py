"""Readable twin of fastfedrec.evaluation.user_holdout, over dicts of user -> list of items."""

import math

from naive.compute.ranking import subset
from naive.evaluation.splits import as_sets


def split(interactions, share, given, latest, key):
    """Return (rows of train, {row: test items}, {row: given items}); None if no user can be tested."""
    rows, users = as_sets(interactions), [int(user) for user in interactions.global_user_ids]
    able = [u for u, items in rows.items() if len(items) >= (given + 1 if isinstance(given, int) else 2)]
    present = [u for u, items in rows.items() if items]
    if not able or len(present) < 2:
        return None
    n_tested = min(max(round(share * len(able)), 1), len(present) - 1)
    word = {u: int(key.words("evaluation.user_holdout.users", user=users[u], size=1)[0]) for u in able}
    tested = sorted(sorted(able, key=word.get)[:n_tested])
    test, known = {}, {}
    for u in tested:
        items = rows[u]
        if isinstance(given, int):
            size = len(items) - given
        else:
            uniform = float(key.uniform("evaluation.user_holdout.counts", user=users[u], size=1)[0])
            size = max(min(math.floor((1 - given) * len(items) + uniform), len(items) - 1), 1)
        if latest:
            times = interactions.timestamps[interactions.indptr[u] : interactions.indptr[u + 1]].tolist()
            words = key.words("evaluation.user_holdout.ties", user=users[u], size=len(items)).tolist()
            test[u] = [item for _, _, item in sorted(zip(times, words, items, strict=True))[-size:]]
        else:
            words = iter(key.words("evaluation.user_holdout", user=users[u], size=size))
            test[u] = [items[position] for position in subset(words, len(items), size)]
        known[u] = [item for item in items if item not in test[u]]
    return [u for u in rows if u not in test], test, known
