"""The most likely matrix of item pairs by a linear system with an equation for each noisy number."""

import itertools

import numpy as np


def most_likely(pairs, noise, rounds, diagonal):
    """The symmetric A that is nearest to all releases, each in units of its own noise.

    `rounds` are (asked, answer, noise) with answer = hollow(A) asked + noise.  The diagonal is taken to be known where
    an answer lacks it, and to be a noisy number with twice the variance of a pair where pairs lack it.
    """
    n = len(pairs)
    places = {}
    for number, (i, j) in enumerate(itertools.combinations_with_replacement(range(n), 2)):
        places[i, j] = places[j, i] = number
    equations, numbers = [], []
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        width = noise if i < j else noise * np.sqrt(2)
        equation = np.zeros(n * (n + 1) // 2)
        equation[places[i, j]] = 1 / width
        equations.append(equation)
        numbers.append((pairs[i, j] if i < j else diagonal[i]) / width)
    for asked, answer, width in rounds:
        for i, column in itertools.product(range(n), range(asked.shape[1])):
            equation = np.zeros(n * (n + 1) // 2)
            for j in range(n):
                equation[places[i, j]] = asked[j, column] / width
            equations.append(equation)
            numbers.append((answer[i, column] + diagonal[i] * asked[i, column]) / width)
    solution, *_ = np.linalg.lstsq(np.array(equations), np.array(numbers), rcond=None)
    return np.array([[solution[places[i, j]] for j in range(n)] for i in range(n)])
