"""A shuffled sketch in Python's integers, one report at a time."""

from itertools import product

from naive.compute.hadamard import entry

_MASK = 2**64 - 1


def cell(place, term, n_rotations, n_sides, n_passes):
    """(rotation, row) or (rotation, row, column) of one term of a place: SplitMix64 of (term, place)."""
    z = ((term << 32 | place) + 1) * 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    z ^= z >> 31
    last = 2**n_passes - 1
    low = z & (2 ** (n_sides * n_passes) - 1)
    rotation = (z >> 32) * n_rotations >> 32
    return (rotation, low) if n_sides == 1 else (rotation, low >> n_passes, low & last)


def value(row, signs, where):
    """a_j, or a_j b_l, of a user's items."""
    rotation, *places = where
    sides = [sum(int(signs[rotation][s][i]) * entry(j, i) for i in row) for s, j in enumerate(places)]
    return sides[0] if len(sides) == 1 else sides[0] * sides[1]


def reports(row, signs, words, n_terms, span):
    """(place, bit) of each report, from two words each."""
    n_rotations, n_sides, length = signs.shape
    out = []
    for draw, answer in zip(words[::2], words[1::2], strict=True):
        place = int(draw) & 0xFFFFFFFF
        cells = [cell(place, t, n_rotations, n_sides, length.bit_length() - 1) for t in range(n_terms)]
        total = sum(value(row, signs, where) for where in cells)
        sign = (total > 0) - (total < 0)
        out.append((place, int(int(answer) < 2**63 + sign * span)))
    return out


def sums(all_reports, shape, n_terms):
    """What the server adds up."""
    n_rotations, *places = shape
    total = {}
    for place, bit in all_reports:
        for t in range(n_terms):
            where = cell(place, t, n_rotations, len(places), places[0].bit_length() - 1)
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


def mean_magnitude(n_items, n_terms):
    """Mean of |sum of n_terms products of two sums of n_items fair signs|, by their distributions."""
    signs = {0: 1.0}
    for _ in range(n_items):
        signs = _convolve(signs, {1: 0.5, -1: 0.5})
    products = {}
    for (a, p), (b, q) in product(signs.items(), repeat=2):
        products[a * b] = products.get(a * b, 0.0) + p * q
    total = {0: 1.0}
    for _ in range(n_terms):
        total = _convolve(total, products)
    return sum(abs(x) * p for x, p in total.items())


def _convolve(a, b):
    out = {}
    for (x, p), (y, q) in product(a.items(), b.items()):
        out[x + y] = out.get(x + y, 0.0) + p * q
    return out
