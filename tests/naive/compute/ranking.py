"""Readable twins of fastfedrec.ranking: one user at a time, with Floyd's algorithm as the only optimization."""


def subset(words, population, size):
    """Return Floyd's subset of range(population) from an iterator of 64-bit words, ascending."""
    chosen = set()
    for last in range(population - size, population):
        rank = last if size == population else (int(next(words)) * (last + 1)) >> 64
        chosen.add(last if rank in chosen else rank)
    return sorted(chosen)


def sample_unseen(rows_seen, n_items, global_user_ids, n, key, purpose):
    """Return the sampled items of each user, as lists."""
    out = []
    for seen, user in zip(rows_seen, global_user_ids, strict=True):
        unseen = [item for item in range(n_items) if item not in set(seen)]
        words = iter(key.words(purpose, user=int(user), size=n))
        out.append([unseen[rank] for rank in subset(words, len(unseen), min(n, len(unseen)))])
    return out


def rank(score, candidates):
    greater = sum(other > score for other in candidates)
    ties = sum(other == score for other in candidates)
    # The mean rank over all orders of ties.
    return 1 + greater + ties / 2


def top_k(scores, n, seen):
    """Return (items, scores) of one row; a seen column counts as -inf."""
    masked = [float("-inf") if i in seen else float(score) for i, score in enumerate(scores)]
    items = sorted(range(len(masked)), key=lambda i: (-masked[i], i))[:n]
    return items, [masked[i] for i in items]


def inner_products(user, item_factors):
    out = []
    for item in item_factors:
        total = 0.0
        for x, v in zip(user, item, strict=True):
            total += float(x) * float(v)
        out.append(total)
    return out


def held_out_ranks_factors(user, item_factors, held_out, candidates):
    """Return ranks of the held-out items of one user among the candidates."""
    scores = inner_products(user, item_factors)
    return [rank(scores[item], [scores[other] for other in candidates]) for item in held_out]


def held_out_rank_counts_factors(user, item_factors, held_out, candidates):
    """Return the numbers of candidates greater than and equal to each held-out item of one user, itself included."""
    scores = inner_products(user, item_factors)
    above = [sum(scores[other] > scores[item] for other in candidates) for item in held_out]
    same = [sum(scores[other] == scores[item] for other in candidates) for item in held_out]
    return [(greater, 1 + equal) for greater, equal in zip(above, same, strict=True)]
