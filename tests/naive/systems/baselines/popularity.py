"""The baselines, one user and one item at a time."""

from fractions import Fraction


def random_subset(items, wanted, words):
    """Algorithm S: go through the items, take each with probability (still wanted) / (still to come)."""
    taken = []
    for position, item in enumerate(items):
        to_come, still_wanted = len(items) - position, wanted - len(taken)
        if still_wanted == 0:
            break
        # A uniform integer below n from a 64-bit word: the high half of word * n.
        if to_come <= still_wanted or next(words) * to_come >> 64 < still_wanted:
            taken.append(item)
    return taken


def contributed_counts(rows, n_items, global_ids, key, purpose, max_items):
    counts = [0] * n_items
    for items, user in zip(rows, global_ids, strict=True):
        words = iter(key.words(purpose, user=int(user), size=len(items)).tolist())
        for item in random_subset(items, max_items, words):
            counts[item] += 1
    return counts


def sampled_answers(rows, n_items, global_ids, key, purpose, threshold, n_reports):
    """Sums of +-1 answers and numbers of answers by item; + is said with probability threshold / 2^64 of a bit 1."""
    sums, asked = [0] * n_items, [0] * n_items
    for items, user in zip(rows, global_ids, strict=True):
        words = iter(key.words(purpose, user=int(user), size=2 * n_reports).tolist())
        for _ in range(n_reports):
            item = next(words) * n_items >> 64
            asked[item] += 1
            sums[item] += 1 if next(words) < (threshold if item in items else 2**64 - threshold) else -1
    return sums, asked


def estimated_users(sums, asked, n_users, decoder):
    return [
        float(n_users * (1 + Fraction(decoder) * s / a) / 2) if a else 0.0 for s, a in zip(sums, asked, strict=True)
    ]


def random_score(key, purpose, user, item):
    return (int(key.words(purpose, user=int(user), size=item + 1)[item]) >> 11) / 2**53
