"""Popularity baselines, one user and one item at a time."""

from fractions import Fraction


def random_subset(items, size, words):
    """Select by Algorithm S: take each item with probability (still required) / (still available)."""
    taken = []
    for position, item in enumerate(items):
        to_come, still_wanted = len(items) - position, size - len(taken)
        if still_wanted == 0:
            break
        # The high half of word * n is a uniform integer below n from a 64-bit word.
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
    """Return sums of +-1 answers and their numbers by item; bit 1 gives + with probability threshold / 2^64."""
    sums, n_answers = [0] * n_items, [0] * n_items
    for items, user in zip(rows, global_ids, strict=True):
        words = iter(key.words(purpose, user=int(user), size=2 * n_reports).tolist())
        for _ in range(n_reports):
            item = next(words) * n_items >> 64
            n_answers[item] += 1
            sums[item] += 1 if next(words) < (threshold if item in items else 2**64 - threshold) else -1
    return sums, n_answers


def estimated_users(sums, n_answers, n_users, decoder):
    return [
        float(n_users * (1 + Fraction(decoder) * s / a) / 2) if a else 0.0 for s, a in zip(sums, n_answers, strict=True)
    ]


def random_score(key, purpose, user, item):
    return (int(key.words(purpose, user=int(user), size=item + 1)[item]) >> 11) / 2**53
