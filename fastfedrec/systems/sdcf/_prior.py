"""The prior of factors: normal, with a precision that is drawn in each round given the item factors."""

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

PRIORS = ("gamma", "wishart")
_PRECISION = "sdcf.precision"
_OFF_DIAGONAL = "sdcf.precision_off_diagonal"


def draw_precision(
    prior: str, factors: np.ndarray, shape: float, rate: float, key: Key, round_number: int
) -> np.ndarray:
    """Draw Lambda (d, d) given rows from N(0, 1 / Lambda): diagonal with gamma entries, or Wishart distributed.

    The Wishart distribution has 2 shape + d - 1 degrees of freedom and scale I / (2 rate); for d = 1 it is the gamma
    distribution.  For factors that are not finite the result is 0, and the model reports that training has diverged.
    """
    from scipy.linalg import solve_triangular
    from scipy.special import gammaincinv

    n, d = factors.shape
    uniform = key.uniform(_PRECISION, round=round_number, size=d)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nf,nf->f", factors, factors)
        if not np.isfinite(squares.sum()):
            return np.zeros((d, d))
        if prior == "gamma":
            return np.diag(gammaincinv(shape + n / 2, uniform) / (rate + squares / 2))
    # Bartlett decomposition: L A A' L' with L L' the inverse of `products`, and A lower triangular.
    degrees = 2 * shape + d - 1 + n
    lower = np.zeros((d, d))
    lower[np.tril_indices(d, -1)] = key.normal(_OFF_DIAGONAL, round=round_number, size=d * (d - 1) // 2)
    lower[np.diag_indices(d)] = np.sqrt(2 * gammaincinv((degrees - np.arange(d)) / 2, uniform))
    with one_blas_thread():
        products = 2 * rate * np.eye(d) + factors.T @ factors
        root = solve_triangular(np.linalg.cholesky(products), lower, trans="T", lower=True)
        return root @ root.T


def shrink(factors: np.ndarray, weights: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return rows (1 + weight Lambda)^-1 x: an implicit step along the prior's gradient, stable for any weight."""
    if not precision[~np.eye(len(precision), dtype=bool)].any():
        return factors / (1 + weights[:, None] * precision.diagonal())
    with one_blas_thread():
        values, axes = np.linalg.eigh(precision)
    # einsum sums each row separately, so that a user's bits do not depend on the other users of the shard.
    turned = np.einsum("nf,fg->ng", factors, axes) / (1 + weights[:, None] * np.maximum(values, 0.0))
    return np.einsum("ng,fg->nf", turned, axes)
