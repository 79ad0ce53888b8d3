"""The encoder of DPGram's rounds of columns: the directions of the matrix of item pairs that users project on.

The release is C = kappa hollow(A) E + noise.  Here A is the matrix of item pairs, hollow(A) is A without its diagonal,
and E is the public encoder, made of the strongest eigenvectors of an estimate of A.  `pooled.py` combines C with the
pairs.  See docs/explanation/systems/gram/dp-gram.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_COLUMNS", "next_encoder"]

N_COLUMNS = 40  # largest number of columns of an encoder
# The number of columns; tuned, see "Settings" on the page.
_MIN_COLUMNS = 10
_COLUMNS_PER_DIRECTION = 2
_MIN_EIGENVALUE = 0.4  # smallest eigenvalue of a counted direction, in radii of the spectrum of the pairs' noise
_MAX_LENGTH = 2.0**12  # norm of the longest column, so that its entries are far below an encoder's bound
_MIN_LENGTH = 0.01  # smallest norm of a factor over the strongest one's, so that rounding keeps the shortest column


def next_encoder(factors: np.ndarray, n_columns: int, noise: float) -> NDArray[np.int16]:
    """Return the strongest eigenvectors of L L' as an encoder in whole numbers; columns that are not used are 0.

    `factors` is L with orthogonal columns, the strongest first, and `noise` is the standard deviation of the noise of
    an entry of L L' before it was denoised.
    """
    # A contribution has norm 1 for any encoder, so fewer columns leave more of it to each.  The number of columns
    # is twice the number of eigenvalues above the noise, and at least 10.
    radius = 2 * noise * math.sqrt(len(factors))
    n_strong = int(np.count_nonzero(np.square(factors).sum(axis=0) > _MIN_EIGENVALUE * radius))
    leading = factors[:, : min(max(_COLUMNS_PER_DIRECTION * n_strong, _MIN_COLUMNS), n_columns)]
    encoder = np.zeros((len(factors), n_columns), dtype=np.int16)
    if leading.shape[1]:
        encoder[:, : leading.shape[1]] = np.rint(leading * (_scales(leading) / np.linalg.norm(leading, axis=0)))
    return encoder


def _scales(factors: np.ndarray) -> np.ndarray:
    """Return norms of the encoder's columns, proportional to eigenvalues to the power of -1/4."""
    # The norms of the factors are roots of the eigenvalues.  With equal columns the strongest direction would take most
    # of a contribution's norm; with equal contributions the weakest would be mostly noise.
    lengths = np.linalg.norm(factors, axis=0)
    lengths = np.maximum(lengths, _MIN_LENGTH * lengths[0])
    return _MAX_LENGTH * np.sqrt(lengths[-1] / lengths)
