"""Rounds of few columns: which directions of the matrix of item pairs users are asked about.

The release is C = kappa hollow(A) E + noise, with A the matrix of item pairs of which an estimate R is known, E the
public encoder made of R's strongest eigenvectors, and hollow(A) the matrix without its diagonal.  `pooled.py` joins it
with the pairs.  See docs/explanation/systems/gram/dp-gram.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_COLUMNS", "next_encoder"]

N_COLUMNS = 40  # of an encoder
# The number of columns; tuned, see "Settings" on the page.
_MIN_COLUMNS = 10
_COLUMNS_PER_DIRECTION = 2
_MIN_EIGENVALUE = 0.4  # of the radius of the spectrum of the pairs' noise, from which on a direction is counted
_MAX_LENGTH = 2.0**12  # of a column in whole numbers: its entries are far below the bound of an encoder's
_MIN_LENGTH = 0.01  # of the strongest factor's: whole numbers still resolve the shortest column


def next_encoder(factors: np.ndarray, n_columns: int, noise: float) -> NDArray[np.int16]:
    """Return the strongest eigenvectors of L L' in whole numbers, the weaker ones longer.

    The answer of a user has norm 1 for any encoder, so fewer columns leave more of it for each.  Twice as many columns
    are used as eigenvalues stand out of the pairs' noise, from 10 on.  Columns are scaled by the fourth
    root of the eigenvalues: with equal columns the strongest one would take most of the norm, and with equal answers
    the weakest would be mostly noise.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L, with orthogonal columns, strongest first.
    n_columns : int
        Of the encoder.
    noise : float
        Standard deviation of the noise of an entry of L L' before it was denoised.

    Returns
    -------
    ndarray of shape (n_items, n_columns), int16
        Columns that are not used are 0.
    """
    radius = 2 * noise * math.sqrt(len(factors))
    n_strong = int(np.count_nonzero(np.square(factors).sum(axis=0) > _MIN_EIGENVALUE * radius))
    asked = factors[:, : min(max(_COLUMNS_PER_DIRECTION * n_strong, _MIN_COLUMNS), n_columns)]
    encoder = np.zeros((len(factors), n_columns), dtype=np.int16)
    if asked.shape[1]:
        encoder[:, : asked.shape[1]] = np.rint(asked * (_scales(asked) / np.linalg.norm(asked, axis=0)))
    return encoder


def _scales(asked: np.ndarray) -> np.ndarray:
    """Lengths of the encoder's columns: 1 / sqrt of those of the factors, which are roots of eigenvalues."""
    lengths = np.linalg.norm(asked, axis=0)
    lengths = np.maximum(lengths, _MIN_LENGTH * lengths[0])
    return _MAX_LENGTH * np.sqrt(lengths[-1] / lengths)
