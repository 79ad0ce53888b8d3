"""The explainable share of a prior's variance by brute force: every set, on a fine lattice of values."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog


def bayes_error(table, x, prior):
    """Return the mean squared error of E[x | report], by its definition."""
    error = 0.0
    for column in zip(*table, strict=True):
        joint = [p * c for p, c in zip(prior, column, strict=True)]
        estimate = sum(j * v for j, v in zip(joint, x, strict=True)) / sum(joint)
        error += sum(j * (v - estimate) ** 2 for j, v in zip(joint, x, strict=True))
    return error


def largest_share(x, epsilon, prior, largest_variance, n_lattice):
    """Return a lower bound of the optimum that rises to it with a finer lattice."""
    n, x, prior = len(x), np.asarray(x, dtype=float), np.asarray(prior)
    farthest = 4 * (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1) * max(abs(x))
    # Extreme rows of an epsilon-LDP channel have likelihoods 1 or e^epsilon; constant rows carry no information.
    sets = np.array(list(itertools.product([1.0, math.exp(epsilon)], repeat=n))[1:-1])
    mean = prior @ x
    gains = (sets @ (prior * (x - mean))) ** 2 / (sets @ prior) / (prior @ (x - mean) ** 2)
    factors = np.repeat(sets, n_lattice, axis=0).T
    values = np.tile(np.linspace(-farthest, farthest, n_lattice), len(sets))
    result = linprog(
        -np.repeat(gains, n_lattice),
        A_ub=factors * values**2,
        b_ub=x**2 + largest_variance,
        A_eq=np.vstack([factors, factors * values]),
        b_eq=np.concatenate([np.ones(n), x]),
    )
    assert result.status == 0
    return -result.fun
