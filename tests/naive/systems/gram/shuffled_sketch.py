"""A shuffled sketch in Python's integers, one report at a time."""

import math
from itertools import product

from naive.compute.hadamard import entry


def cell(place, n_rotations, n_sides, n_passes):
    """(rotation, row) or (rotation, row, column) of a place: its high bits, and its low ones."""
    low, last = place % 2 ** (n_sides * n_passes), 2**n_passes - 1
    rotation = place * n_rotations >> 32
    return (rotation, low) if n_sides == 1 else (rotation, low >> n_passes, low & last)


def value(row, signs, where):
    """a_j, or a_j b_l, of a user's items."""
    rotation, *places = where
    sides = [sum(int(signs[rotation][s][i]) * entry(j, i) for i in row) for s, j in enumerate(places)]
    return sides[0] if len(sides) == 1 else sides[0] * sides[1]


def reports(row, signs, words, n_candidates, clones):
    """(place, bit) of each report, from words for its candidates, two in one, and one for the answer."""
    n_rotations, n_sides, length = signs.shape
    out, n_words = [], (n_candidates + 1) // 2 + 1
    for start in range(0, len(words), n_words):
        *draws, coin = (int(word) for word in words[start : start + n_words])
        places = [half for draw in draws for half in (draw & 0xFFFFFFFF, draw >> 32)][:n_candidates]
        values = [value(row, signs, cell(place, n_rotations, n_sides, length.bit_length() - 1)) for place in places]
        largest = max(abs(v) for v in values)
        if coin < clones:
            out.append((places[0], coin & 1))
            continue
        chosen = [abs(v) for v in values].index(largest)
        out.append((places[chosen], int(values[chosen] > 0) if largest else coin & 1))
    return out


def sums(all_reports, shape):
    """What the server adds up."""
    n_rotations, *places = shape
    total = {}
    for place, bit in all_reports:
        where = cell(place, n_rotations, len(places), places[0].bit_length() - 1)
        total[where] = total.get(where, 0) + 2 * bit - 1
    return total


def decode(total, signs, n_items):
    """D H C H D' of each rotation, added up, and its transpose; or D H C of single items."""
    single = signs.shape[1] == 1
    out = {}
    for (rotation, *places), answer in total.items():
        for items in product(range(n_items), repeat=len(places)):
            turned = answer
            for side, (i, j) in enumerate(zip(items, places, strict=True)):
                turned *= int(signs[rotation][side][i]) * entry(i, j)
            for where in [items] if single else [items, items[::-1]]:
                out[where] = out.get(where, 0) + turned
    return out


def mean_largest(n_items, n_candidates, n_sides):
    """Mean of the largest of |products of n_sides sums of n_items fair signs|, by their distributions."""
    sums_of_signs = {n_items - 2 * i: math.comb(n_items, i) / 2**n_items for i in range(n_items + 1)}
    magnitudes = {}
    for parts in product(sums_of_signs.items(), repeat=n_sides):
        size = abs(math.prod(x for x, _ in parts))
        magnitudes[size] = magnitudes.get(size, 0.0) + math.prod(p for _, p in parts)
    below = mean = 0.0
    for size in sorted(magnitudes):
        mean += size * ((below + magnitudes[size]) ** n_candidates - below**n_candidates)
        below += magnitudes[size]
    return mean
