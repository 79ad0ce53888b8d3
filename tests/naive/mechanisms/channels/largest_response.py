"""The distribution of largest response about few entries, by enumeration of its candidates."""

import itertools
from fractions import Fraction


def distribution_of_reports(values, n_candidates, clone_share):
    """Return the probability of each (entry, sign), with sign 1 or -1."""
    n = len(values)
    chances = {(position, sign): clone_share / (2 * n) for position in range(n) for sign in (1, -1)}
    for positions in itertools.product(range(n), repeat=n_candidates):
        # Ties go to the first candidate.
        chosen = max(positions, key=lambda position: abs(values[position]))
        chance = (1 - clone_share) * Fraction(1, n**n_candidates)
        for sign in (1, -1):
            # An entry of 0 gets a fair sign.
            agrees = Fraction(1, 2) if values[chosen] == 0 else int(sign * values[chosen] > 0)
            chances[chosen, sign] += chance * agrees
    return chances


def report(values, words, clones):
    """Return the report (entry, sign) for the words of one vector."""
    first, *candidate_words = words
    # Candidates are drawn with replacement.
    entries = [word * len(values) >> 64 for word in candidate_words]
    reported = entries[0]
    for entry in entries:
        if abs(values[entry]) > abs(values[reported]):
            reported = entry
    if first < clones:
        reported = entries[0]
    # The sign is the low bit of the first word for clones and for entries of 0.
    if first < clones or values[reported] == 0:
        return reported, 1 - 2 * (first % 2)
    return reported, 1 if values[reported] > 0 else -1
