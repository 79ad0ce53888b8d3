"""The scale of noisy projections of the matrix of item pairs, from their trace."""

import math

import numpy as np

_LEAST_REST = 0.1  # of the trace of the diagonal, which only much noise brings near 0
_ROWS = 4096  # of a block, whose products are made in double precision


def strength_of(sums: np.ndarray, encoder: np.ndarray, diagonal: np.ndarray, n_users: int) -> float:
    """kappa, by which the sums of a round are longer than hollow(A) E.

    A user's part is w z p' for p = E'z, less its diagonal, and w is 1 / (|z| |p|).  Were |p| / |z| = c for everybody,
    then kappa = 1 / c, and trace(E'(C + kappa diag(A) E)) = c n_users.  So kappa^2 q + kappa trace(E'C) = n_users, with
    q = sum_i A_ii |E_i|^2.

    Parameters
    ----------
    sums : ndarray of shape (n_items, n_columns), float64
        C, in units of a user's norm.
    encoder : ndarray of shape (n_items, n_columns), int16
        E, not 0.
    diagonal : ndarray of shape (n_items,), float64
        Of A.
    n_users : int
        The public number.

    Returns
    -------
    float
        Above 0.
    """
    trace, own, squared = 0.0, 0.0, 0.0
    for start in range(0, len(sums), _ROWS):
        part = slice(start, start + _ROWS)
        asked = encoder[part].astype(np.float64)
        lengths = np.square(asked).sum(axis=1)
        trace += float(np.vdot(asked, sums[part]))
        own += float(lengths @ diagonal[part])
        squared += float(lengths.sum())
    # A mean whose norm noise has brought to 1 leaves no diagonal; trace(A) is n_users nevertheless.
    own = max(own, _LEAST_REST * n_users * squared / len(sums))
    root = math.sqrt(trace**2 + 4 * own * n_users)
    return 2 * n_users / (trace + root) if trace > 0 else (root - trace) / (2 * own)
