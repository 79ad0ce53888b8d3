"""Clipping of rows to a norm that they never exceed, not even by a rounding error."""

import numpy as np

from fastfedrec._kernels.mechanisms import clipping as _kernel
from fastfedrec.core.arrays import FloatArray, check_out
from fastfedrec.core.check import check_real, plain_array
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.threads import resolve_n_threads

__all__ = ["clip_rows_l1", "clip_rows_l2"]

_LOWEST, _HIGHEST = 1e-100, 1e100  # the kernel's products keep all their digits in this range


#: Parameters that both functions share.
_clips_rows = shares_docstring("""\
rows : ndarray of shape (n_rows, n), float32 or float64
    One row for each client.  A row with a NaN or an infinity becomes zeros, so that this update is not used.
clip_norm : float
    Upper bound on the norm, from 1e-100 to 1e100; a public number, never taken from the data.
out : ndarray or None
    Output array with the shape and type of `rows`.  `rows` itself clips in place; None makes a new array.
rejected : ndarray of shape (n_rows,), bool, or None
    Output mask of the rows that were not finite, for logs.  It depends on the data and is not covered by any
    guarantee: do not release it.
n_threads : int
    Number of threads, 0 for all; the result does not depend on it.""")


@_clips_rows
def clip_rows_l2(
    rows: np.ndarray,
    clip_norm: float,
    *,
    out: np.ndarray | None = None,
    rejected: np.ndarray | None = None,
    n_threads: int = 0,
) -> FloatArray:
    """Scale each row with a Euclidean norm above `clip_norm` down to that norm.

    **Guarantee.** In exact arithmetic no row of the result is longer than `clip_norm`, so one row (one client) changes
    a sum of rows by at most `clip_norm` ("add_remove") or twice that ("replace").

    Returns
    -------
    ndarray of shape (n_rows, n)
        The clipped rows, of the type of `rows`.

    Raises
    ------
    TypeError
        `rows` is not float32 or float64.
    ValueError
        `rows` is not two-dimensional, or `clip_norm` is out of range.

    Notes
    -----
    The textbook ``x * min(1, c / |x|)`` exceeds its bound on about half of all rows.  Here the factor is smaller by
    (n + 4) units in the last place, more than the sum of all rounding errors of a row.  Products are rounded toward
    zero.  Rows that are certainly within the bound are unchanged.  A row with NaN or infinite entries
    becomes zeros, because a NaN norm would pass every comparison.  See docs/explanation/mechanisms/clipping.md.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.mechanisms import clip_rows_l2
    >>> rejected = np.empty(3, dtype=bool)
    >>> clip_rows_l2(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), 1.0, rejected=rejected).round(6).tolist()
    [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
    >>> rejected.tolist()
    [False, False, True]
    """
    return _clip(rows, clip_norm, out, rejected, n_threads, order=2)


@_clips_rows
def clip_rows_l1(
    rows: np.ndarray,
    clip_norm: float,
    *,
    out: np.ndarray | None = None,
    rejected: np.ndarray | None = None,
    n_threads: int = 0,
) -> FloatArray:
    """Scale each row with an L1 norm (sum of absolute values) above `clip_norm` down to that norm.

    **Guarantee.** In exact arithmetic the absolute values of no row of the result add up to more than `clip_norm`, so
    one row (one client) changes a sum of rows by at most `clip_norm` ("add_remove") or twice that ("replace").

    Returns
    -------
    ndarray of shape (n_rows, n)
        The clipped rows, of the type of `rows`.

    Raises
    ------
    TypeError
        `rows` is not float32 or float64.
    ValueError
        `rows` is not two-dimensional, or `clip_norm` is out of range.

    See Also
    --------
    clip_rows_l2 : Clipping in Euclidean norm, with notes on rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.mechanisms import clip_rows_l1
    >>> clip_rows_l1(np.array([[3.0, -1.0], [0.5, 0.25]]), 1.0).round(6).tolist()
    [[0.75, -0.25], [0.5, 0.25]]
    """
    return _clip(rows, clip_norm, out, rejected, n_threads, order=1)


def _clip(
    rows: np.ndarray, clip_norm: float, out: np.ndarray | None, rejected: np.ndarray | None, n_threads: int, order: int
) -> FloatArray:
    rows = plain_array("rows", rows)
    if rows.dtype not in (np.float32, np.float64):
        raise TypeError(f"rows must be an array of float32 or float64, got dtype {rows.dtype}; convert it with .astype")
    if rows.ndim != 2:
        raise ValueError(f"rows must have 2 dimensions, got shape {rows.shape}")
    clip_norm = check_real("clip_norm", clip_norm, low=_LOWEST, high=_HIGHEST)
    n_threads = resolve_n_threads(n_threads)
    out = check_out(out, rows.shape, rows.dtype.type, apart_from=None if out is rows else rows)
    # A mark over a clipped row would change it after the bound was ensured.
    rejected = check_out(rejected, (len(rows),), np.bool_, apart_from=(rows, out), name="rejected")
    rejected[:] = False
    # Each row is read completely before it is written, so `out` may be `rows` itself.
    _kernel.clip_rows(np.ascontiguousarray(rows), out, rejected.view(np.uint8), clip_norm, order, n_threads)
    return out
