"""The most likely matrix of item pairs by a linear system with an equation for each noisy number; items' weights."""

import itertools
import math

import numpy as np


def most_likely(pairs, noise, rounds, diagonal):
    """Return the symmetric A nearest to all releases, each in units of its noise.

    `rounds` are (directions, answer, noise) with answer = hollow(A) directions + noise.  The diagonal is taken as known
    if an answer lacks it, and as a noisy number with twice a pair's variance if pairs lack it.
    """
    n = len(pairs)
    position_of = {}
    for number, (i, j) in enumerate(itertools.combinations_with_replacement(range(n), 2)):
        position_of[i, j] = position_of[j, i] = number
    equations, numbers = [], []
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        # An entry of the diagonal has twice the variance of a pair.
        width = noise if i < j else noise * np.sqrt(2)
        equation = np.zeros(n * (n + 1) // 2)
        equation[position_of[i, j]] = 1 / width
        equations.append(equation)
        numbers.append((pairs[i, j] if i < j else diagonal[i]) / width)
    for directions, answer, width in rounds:
        for i, column in itertools.product(range(n), range(directions.shape[1])):
            equation = np.zeros(n * (n + 1) // 2)
            for j in range(n):
                equation[position_of[i, j]] = directions[j, column] / width
            equations.append(equation)
            numbers.append((answer[i, column] + diagonal[i] * directions[i, column]) / width)
    solution, *_ = np.linalg.lstsq(np.array(equations), np.array(numbers), rcond=None)
    return np.array([[solution[position_of[i, j]] for j in range(n)] for i in range(n)])


def wiener_weights(squares, largest):
    """Return for each item c / sqrt(c^2 + v^2), with c the bound of its square and v the mean excess over bounds."""
    bounds = [max(c, 0.0) for c in largest]
    noise = math.fsum(max(square - c, 0.0) for square, c in zip(squares, bounds, strict=True)) / len(bounds)
    return [1.0 if noise == 0 else c / math.sqrt(c * c + noise * noise) for c in bounds]
