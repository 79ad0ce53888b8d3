"""The fast Walsh-Hadamard transform: n log2(n) additions, exact on whole numbers.

The Hadamard matrix H of a power of two has the entries (-1)^popcount(i & j).  It is symmetric, and H H = n I.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.compute import hadamard as _kernel
from fastfedrec.core.check import plain_array
from fastfedrec.core.threads import resolve_n_threads

__all__ = ["hadamard_transform"]


def hadamard_transform(values: ArrayLike, *, n_threads: int = 0) -> NDArray[np.int64] | NDArray[np.float64]:
    """Multiply vectors by the Hadamard matrix.

    Parameters
    ----------
    values : array_like of shape (..., n)
        Whole numbers or floats; n is a power of two.  Each vector along the last axis is transformed.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (..., n), int64 or float64
        H x, not divided by anything.  Whole numbers are exact while their sum of magnitudes is below 2^63, and taken
        modulo 2^64 beyond.

    Raises
    ------
    TypeError
        Neither whole numbers nor floats.
    ValueError
        n is not a power of two.

    References
    ----------
    .. [1] Fino, Algazi, "Unified matrix treatment of the fast Walsh-Hadamard transform", IEEE Transactions on
       Computers, 1976.

    Examples
    --------
    >>> from fastfedrec.compute.hadamard import hadamard_transform
    >>> hadamard_transform([1, 0, 2, 0])
    array([ 3,  3, -1, -1])
    >>> hadamard_transform(hadamard_transform([1, 0, 2, 0])) // 4
    array([1, 0, 2, 0])
    """
    values = plain_array("values", values)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"values must be whole numbers or floats, got {values.dtype}; convert them first")
    n = values.shape[-1] if values.ndim else 0
    if n < 1 or n & (n - 1):
        raise ValueError(
            f"values must have a power of two of entries along the last axis, got {values.shape}; pad them"
        )
    n_threads = resolve_n_threads(n_threads)
    out: NDArray[Any] = np.array(values, dtype=np.float64 if values.dtype.kind == "f" else np.int64, order="C")
    if out.size:
        _kernel.transform_rows(
            out.reshape(-1, n), np.empty((n_threads, n), dtype=out.dtype), n.bit_length() - 1, n_threads
        )
    return out
