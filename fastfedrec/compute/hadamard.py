"""The fast Walsh-Hadamard transform, which takes n log2(n) additions and is exact on integers.

The Hadamard matrix H of size n, a power of two, has the entries (-1)^popcount(i & j).  It is symmetric, and H H = n I.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec._kernels.compute import hadamard as _kernel
from fastfedrec.core.arrays import check_out
from fastfedrec.core.check import plain_array
from fastfedrec.core.threads import resolve_n_threads

__all__ = ["hadamard_transform"]

__dir__ = __all__.copy  # dir() lists only the public names


def hadamard_transform(
    values: ArrayLike, *, out: Any = None, n_threads: int = 0
) -> NDArray[np.int64] | NDArray[np.float64]:
    """Multiply vectors by the Hadamard matrix.

    Parameters
    ----------
    values : array_like of shape (..., n)
        Integers or floats; n is a power of two.  Each vector along the last axis is transformed.
    out : ndarray of shape (..., n), int64 or float64, or None
        Output array, which may be `values` itself; None makes a new array.
    n_threads : int
        Number of threads; 0 for all.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (..., n), int64 or float64
        Product H x without a normalisation, in `out` or a new array.  Integers are exact while the sum of their
        magnitudes is below 2^63, and reduced modulo 2^64 otherwise.

    Raises
    ------
    TypeError
        The values are neither integers nor floats.
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
        raise TypeError(f"values must be integers or floats, got {values.dtype}; convert them first")
    n = values.shape[-1] if values.ndim else 0
    # A power of two has one bit, which n & (n - 1) clears.
    if n < 1 or n & (n - 1):
        raise ValueError(
            f"values must have a power of two as the length of the last axis, got shape {values.shape}; pad them"
        )
    n_threads = resolve_n_threads(n_threads)
    array = check_out(out, values.shape, np.float64 if values.dtype.kind == "f" else np.int64)
    np.copyto(array, values, casting="unsafe")  # correct for memory that overlaps
    # The kernel transforms in place, with one buffer of n numbers for each thread.
    if array.size:
        _kernel.transform_rows(
            array.reshape(-1, n), np.empty((n_threads, n), dtype=array.dtype), n.bit_length() - 1, n_threads
        )
    return array if out is None else out
