"""The smallest worst-case variance by brute force: every set of inputs, on a fine lattice of output values."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog


def least_variance(x, epsilon, n_lattice):
    """Return an upper bound of the optimum that falls to it with a finer lattice."""
    n, x = len(x), np.asarray(x, dtype=float)
    largest = 1.5 * (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1) * max(abs(x))
    # Extreme rows of an epsilon-LDP channel have likelihoods 1 or e^epsilon; constant rows carry no information.
    sets = np.array(list(itertools.product([1.0, math.exp(epsilon)], repeat=n))[1:-1])
    factors = np.repeat(sets, n_lattice, axis=0).T
    values = np.tile(np.linspace(-largest, largest, n_lattice), len(sets))
    result = linprog(
        [0.0] * len(values) + [1.0],
        A_ub=np.hstack([factors * values**2, -np.ones((n, 1))]),
        b_ub=x**2,
        A_eq=np.hstack([np.vstack([factors, factors * values]), np.zeros((2 * n, 1))]),
        b_eq=np.concatenate([np.ones(n), x]),
    )
    assert result.status == 0
    return result.fun
