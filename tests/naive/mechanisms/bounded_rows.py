"""Floyd's algorithm with a set for a user's entries, and rows times directions, shrunk into a ball."""

import math


def keep_entries(lengths, users, max_entries, key, round_number):
    """Return for each user the positions of its selected entries, from the words of its stream."""
    selected = []
    for n, user in zip(lengths, users, strict=True):
        mine = set(range(n)) if n <= max_entries else set()
        if n > max_entries:
            words = key.words("projection.entries", round=round_number, user=user, size=max_entries).tolist()
            for last, word in zip(range(n - max_entries, n), words, strict=True):
                rank = word * (last + 1) >> 64
                # Floyd's rule: a repeated draw is replaced by the last candidate.
                mine.add(last if rank in mine else rank)
        selected.append(sorted(mine))
    return selected


def project(rows, directions, radius):
    """Return each row's sums, in Python's floats."""
    out = []
    for row in rows:
        point = [sum(x * d for x, d in zip(row, column, strict=True)) for column in zip(*directions, strict=True)]
        norm = math.sqrt(sum(x * x for x in point))
        out.append([x * radius / norm for x in point] if norm > radius else point)
    return out
