"""Twin of the protocol of new users: one positive at a time."""

import math


def metrics_by_user(scores, visited, known, held_out, k):
    """Return {"all" or "new": (hit ratio, ndcg)}: means over users of means over positives.

    `scores(user, item, context)`; `visited` and `known` are sets of (user, item); `held_out` is a list of (user, item,
    context); items are numbered from 0 to the greatest in `visited`.
    """
    n_items = 1 + max(item for _, item in visited)
    metrics = {"all": {}, "new": {}}
    for user, item, context in held_out:
        score = scores(user, item, context)
        candidate_scores = [scores(user, j, context) for j in range(n_items) if (user, j) not in visited]
        rank = 1 + sum(s > score for s in candidate_scores) + sum(s == score for s in candidate_scores) / 2
        hit = float(rank <= k)
        gain = hit / math.log2(1 + rank)
        for kind in ("all", "new"):
            if kind == "all" or (user, item) not in known:
                metrics[kind].setdefault(user, []).append((hit, gain))
    return {
        kind: [
            sum(sum(part[j] for part in parts) / len(parts) for parts in users.values()) / len(users) for j in (0, 1)
        ]
        for kind, users in metrics.items()
        if users
    }
