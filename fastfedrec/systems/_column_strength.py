"""The scale of noisy projections of the matrix of item pairs, from their trace."""

import math

import numpy as np

_MIN_DIAGONAL_SHARE = 0.1  # of n_users; only much noise brings the diagonal's trace near 0
_ROWS = 4096  # rows of a block that is converted to float64


def strength_of(sums: np.ndarray, encoder: np.ndarray, diagonal: np.ndarray, n_users: int) -> float:
    """Return kappa > 0, the factor by which the sums C of a round exceed hollow(A) E.

    `sums` is C in units of the L2 bound, `encoder` is E (not 0), `diagonal` is A's diagonal, `n_users` is public.
    """
    # A user contributes w z p' less its diagonal, with p = E'z and w = 1 / (|z| |p|).  If |p| / |z| = c for all users,
    # then kappa = 1 / c, and trace(E'(C + kappa diag(A) E)) = c n_users.  With q = sum_i A_ii |E_i|^2 this becomes
    # kappa^2 q + kappa trace(E'C) = n_users.
    trace, diagonal_trace, squared = 0.0, 0.0, 0.0
    for start in range(0, len(sums), _ROWS):
        part = slice(start, start + _ROWS)
        encoder_rows = encoder[part].astype(np.float64)
        lengths = np.square(encoder_rows).sum(axis=1)
        trace += float(np.vdot(encoder_rows, sums[part]))
        diagonal_trace += float(lengths @ diagonal[part])
        squared += float(lengths.sum())
    # Noise may bring the mean's norm to 1, which leaves no diagonal, although trace(A) is n_users.
    diagonal_trace = max(diagonal_trace, _MIN_DIAGONAL_SHARE * n_users * squared / len(sums))
    root = math.sqrt(trace**2 + 4 * diagonal_trace * n_users)
    return 2 * n_users / (trace + root) if trace > 0 else (root - trace) / (2 * diagonal_trace)
