"""The piecewise and hybrid mechanisms in exact fractions, with the paper's formula of their variance."""

import math
from fractions import Fraction


def window_start(t, n_cells, window, extra):
    """Return (cell, words into it) of the start of an exact t's window, before any rounding."""
    start = (Fraction(t) + 1) / 2 * (n_cells - window)
    cell = math.floor(start)
    return cell, (start - cell) * extra


def report(start, shift, positive, word, mechanism):
    """Return the report for one word by a walk over all cells; `mechanism` is a dictionary of its integers."""
    m = mechanism
    for cell in range(m["n_cells"]):
        if word < m["low"]:
            return cell
        word -= m["low"]
    for cell in range(start, start + m["window"] + 1):
        # The first cell lacks the words of the last one.
        words = m["extra"] - shift if cell == start else shift if cell == start + m["window"] else m["extra"]
        # Within the window, words are dealt out in steps of `extra` from its start.
        if word < words:
            return cell
        word -= words
    return m["plus"] if word < positive else m["minus"]


def piecewise_variance(t, epsilon):
    """Return the variance by the formula of Wang et al. 2019."""
    half = math.exp(epsilon / 2)
    return t**2 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)


def hybrid_variance(t, epsilon):
    """Return the variance of a mixture with shares 1 - e^(-eps/2), e^(-eps/2) above 0.61, else of binary response."""
    answer = ((math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)) ** 2 - t**2
    share = 1 - math.exp(-epsilon / 2) if epsilon > 0.61 else 0.0
    return share * piecewise_variance(t, epsilon) + (1 - share) * answer
