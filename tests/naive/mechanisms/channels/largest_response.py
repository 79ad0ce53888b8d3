"""The law of largest response about few entries, by all draws of its candidates."""

import itertools
from fractions import Fraction


def law(values, n_candidates, clone_share):
    """The chance of each (entry, sign), sign 1 or -1."""
    n = len(values)
    chances = {(place, sign): clone_share / (2 * n) for place in range(n) for sign in (1, -1)}
    for places in itertools.product(range(n), repeat=n_candidates):
        chosen = max(places, key=lambda place: abs(values[place]))  # the first of those that are alike
        chance = (1 - clone_share) * Fraction(1, n**n_candidates)
        for sign in (1, -1):
            agrees = Fraction(1, 2) if values[chosen] == 0 else int(sign * values[chosen] > 0)
            chances[chosen, sign] += chance * agrees
    return chances


def report(values, words, clones):
    """What one vector's words say: (entry, sign)."""
    first, *others = words
    entries = [word * len(values) >> 64 for word in others]  # candidates, with replacement
    told = entries[0]
    for entry in entries:
        if abs(values[entry]) > abs(values[told]):
            told = entry
    if first < clones:
        told = entries[0]
    if first < clones or values[told] == 0:
        return told, 1 - 2 * (first % 2)
    return told, 1 if values[told] > 0 else -1
