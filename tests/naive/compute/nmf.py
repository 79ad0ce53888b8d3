"""A row's non-negative least squares by SciPy's active set method, and both descents step by step."""

import numpy as np
from scipy.optimize import nnls


def solve_row(x, weights, item_factors, regularization):
    """Return argmin_{u >= 0} sum w (x - u'v)^2 + reg |u|^2, by least squares with extra rows for the regularisation."""
    n_factors = item_factors.shape[1]
    roots = np.sqrt(np.asarray(weights, dtype=float))
    a = np.vstack([roots[:, None] * item_factors, np.sqrt(regularization) * np.eye(n_factors)])
    return nnls(a, np.concatenate([roots * x, np.zeros(n_factors)]))[0]


def descend_row(x, weights, item_factors, regularization, start, n_sweeps):
    """Minimize the loss by one coordinate after another, with the others fixed; 0 if the loss does not depend on it."""
    u = np.array(start, dtype=float)
    for _ in range(n_sweeps):
        for f in range(len(u)):
            v = item_factors[:, f].astype(float)
            without = x - item_factors @ u + u[f] * v
            curvature = (weights * v * v).sum() + regularization
            u[f] = max(0.0, (weights * without * v).sum() / curvature) if curvature else 0.0
    return u


def multiply_rows(x, weights, row_factors, item_factors, regularization):
    """Apply one multiplicative step to every row: u times the negative part of its gradient over the positive part."""
    u, v = row_factors.astype(float), item_factors.astype(float)
    above = u * ((weights * x) @ v)
    below = (weights * (u @ v.T)) @ v + regularization * u
    return np.divide(above, below, out=np.zeros_like(u), where=below > 0)


def loss(x, weights, row_factors, item_factors, regularization):
    errors = x.astype(float) - row_factors.astype(float) @ item_factors.astype(float).T
    return (weights * errors**2).sum() + regularization * ((row_factors**2).sum() + (item_factors**2).sum())
