"""Readable twin of fastfedrec.compute.ranks: ranks one held-out item at a time."""


def rank_counts(scores, held_out, seen):
    """Return (above, same) of each held-out item of one row of scores, among the unseen items."""
    unseen = [item for item in range(len(scores)) if item not in seen]
    return [(sum(scores[j] > scores[i] for j in unseen), sum(scores[j] == scores[i] for j in unseen)) for i in held_out]
