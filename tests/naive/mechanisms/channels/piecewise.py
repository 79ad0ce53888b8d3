"""The piecewise and hybrid mechanisms in exact fractions, and their variance as the paper states it."""

import math
from fractions import Fraction


def place(t, n_cells, window, extra):
    """(cell, words into it) where the window of an exact t begins, before any rounding."""
    where = (Fraction(t) + 1) / 2 * (n_cells - window)
    cell = math.floor(where)
    return cell, (where - cell) * extra


def report(start, shift, positive, word, mechanism):
    """One word to one report, by walking over all cells; `mechanism` is a dictionary of its integers."""
    m = mechanism
    for cell in range(m["n_cells"]):
        if word < m["low"]:
            return cell
        word -= m["low"]
    for cell in range(start, start + m["window"] + 1):
        # The first cell lacks the words that the last one has.
        words = m["extra"] - shift if cell == start else shift if cell == start + m["window"] else m["extra"]
        # Within the window, words are dealt out in steps of `extra` from the beginning of the window.
        if word < words:
            return cell
        word -= words
    return m["plus"] if word < positive else m["minus"]


def piecewise_variance(t, epsilon):
    """As Wang et al. 2019 state it."""
    half = math.exp(epsilon / 2)
    return t**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)


def hybrid_variance(t, epsilon):
    """A mixture with shares 1 - e^(-eps/2) and e^(-eps/2) above 0.61, binary response alone below."""
    answer = ((math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)) ** 2 - t**2
    share = 1 - math.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    return share * piecewise_variance(t, epsilon) + (1 - share) * answer
