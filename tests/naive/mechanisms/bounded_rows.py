"""Entries that a user keeps by Floyd's algorithm with a set, and rows times directions, shrunk into a ball."""

import math


def keep_entries(lengths, users, max_entries, key, round_number):
    """For each user the places of the entries that it keeps, from the words of its own stream."""
    kept = []
    for n, user in zip(lengths, users, strict=True):
        mine = set(range(n)) if n <= max_entries else set()
        if n > max_entries:
            words = key.words("projection.entries", round=round_number, user=user, size=max_entries).tolist()
            for last, word in zip(range(n - max_entries, n), words, strict=True):
                rank = word * (last + 1) >> 64
                mine.add(last if rank in mine else rank)
        kept.append(sorted(mine))
    return kept


def project(rows, directions, radius):
    """Each row's sums, of Python's floats."""
    out = []
    for row in rows:
        point = [sum(x * d for x, d in zip(row, column, strict=True)) for column in zip(*directions, strict=True)]
        norm = math.sqrt(sum(x * x for x in point))
        out.append([x * radius / norm for x in point] if norm > radius else point)
    return out
