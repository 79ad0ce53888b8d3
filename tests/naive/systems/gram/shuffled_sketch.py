"""A shuffled sketch in Python's integers, one report at a time."""

import math
from itertools import product

from naive.compute.hadamard import entry


def cell(position, n_rotations, n_sides, n_passes):
    """Return (rotation, row) or (rotation, row, column) of a position: its high bits, and its low ones."""
    low, last = position % 2 ** (n_sides * n_passes), 2**n_passes - 1
    # Positions have 32 bits.
    rotation = position * n_rotations >> 32
    return (rotation, low) if n_sides == 1 else (rotation, low >> n_passes, low & last)


def value(row, signs, cell_index):
    """Return a_j, or a_j b_l, of a user's items."""
    rotation, *columns = cell_index
    sides = [sum(int(signs[rotation][s][i]) * entry(j, i) for i in row) for s, j in enumerate(columns)]
    return sides[0] if len(sides) == 1 else sides[0] * sides[1]


def reports(row, signs, words, n_candidates, clones):
    """Return (position, bit) of each report, from words with two candidates each, and one word for the answer."""
    n_rotations, n_sides, length = signs.shape
    out, n_words = [], (n_candidates + 1) // 2 + 1
    for start in range(0, len(words), n_words):
        *draws, coin = (int(word) for word in words[start : start + n_words])
        positions = [half for draw in draws for half in (draw & 0xFFFFFFFF, draw >> 32)][:n_candidates]
        values = [
            value(row, signs, cell(position, n_rotations, n_sides, length.bit_length() - 1)) for position in positions
        ]
        largest = max(abs(v) for v in values)
        # A clone reports its first candidate with a fair bit, independent of the data.
        if coin < clones:
            out.append((positions[0], coin & 1))
            continue
        # Ties go to the first candidate.
        chosen = [abs(v) for v in values].index(largest)
        out.append((positions[chosen], int(values[chosen] > 0) if largest else coin & 1))
    return out


def sums(all_reports, shape):
    """Return the server's sums."""
    n_rotations, *sides = shape
    total = {}
    for position, bit in all_reports:
        cell_index = cell(position, n_rotations, len(sides), sides[0].bit_length() - 1)
        # Bits 0 and 1 stand for the answers -1 and 1.
        total[cell_index] = total.get(cell_index, 0) + 2 * bit - 1
    return total


def decode(total, signs, n_items):
    """Return D H C H D' summed over rotations, plus its transpose; or D H C for single items."""
    single = signs.shape[1] == 1
    out = {}
    for (rotation, *sides), answer in total.items():
        for items in product(range(n_items), repeat=len(sides)):
            turned = answer
            for side, (i, j) in enumerate(zip(items, sides, strict=True)):
                turned *= int(signs[rotation][side][i]) * entry(i, j)
            for order in [items] if single else [items, items[::-1]]:
                out[order] = out.get(order, 0) + turned
    return out


def item_means(rounds, decoder, largest):
    """Return popularity from rounds of (decoded sums, number of reports, has pairs); only single items count.

    Each report about items adds `largest` / `decoder` times the user's normalised row to the decoded sums, on average.
    """
    about_items = [(decoded, n_reports) for decoded, n_reports, has_pairs in rounds if not has_pairs]
    n_reports = sum(n for _, n in about_items)
    sums_of_items = [sum(int(decoded[item]) for decoded, _ in about_items) for item in range(len(about_items[0][0]))]
    return [total * decoder / (largest * n_reports) for total in sums_of_items]


def mean_largest(n_items, n_candidates, n_sides):
    """Return the mean of the largest of |products of n_sides sums of n_items fair signs|, by their distributions."""
    sums_of_signs = {n_items - 2 * i: math.comb(n_items, i) / 2**n_items for i in range(n_items + 1)}
    magnitudes = {}
    for parts in product(sums_of_signs.items(), repeat=n_sides):
        size = abs(math.prod(x for x, _ in parts))
        magnitudes[size] = magnitudes.get(size, 0.0) + math.prod(p for _, p in parts)
    below = mean = 0.0
    for size in sorted(magnitudes):
        # P(maximum = size) = F(size)^n - F(size-)^n.
        mean += size * ((below + magnitudes[size]) ** n_candidates - below**n_candidates)
        below += magnitudes[size]
    return mean
