"""SciPy's matrices, looked at before SciPy is let near their arrays: its own kernels trust what they are given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_fits, plain_array
from fastfedrec.data.csr import check_csr, check_integers

__all__ = ["as_csr", "check_arrays", "checked_csr", "remedy_for"]

# Formats whose own arrays of numbers are looked at, so that SciPy makes sound rows of them.
_CHECKED = ("csr", "csc", "bsr", "coo")


def as_csr(matrix: Any, *, copy: bool = False) -> Any:
    """Return a matrix in compressed rows, with a stored zero of CSR, CSC, COO, LIL and DOK as an entry.

    Zeros of BSR and DIA fill blocks and diagonals, and are no entries.  SciPy itself leaves out those of DIA.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array of two dimensions
        `check_arrays` has checked its arrays, unless they are known to be sound.
    copy : bool
        Whether the result may share no memory with the matrix.

    Returns
    -------
    csr_array or csr_matrix
        Entries of one place are not summed.
    """
    csr = matrix.tocsr(copy=copy)
    if matrix.format == "bsr":
        csr.eliminate_zeros()
    return csr


def checked_csr(name: str, matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], np.ndarray]:
    """The rows of a matrix in any of SciPy's formats, in order, with entries of one place summed, in arrays of its own.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    matrix : scipy.sparse matrix or array
        Of two dimensions, each below 2**31; its arrays may hold anything.  `as_csr` states which zeros are entries.

    Returns
    -------
    indptr : ndarray of shape (n_rows + 1,), int64
        Where rows start.
    indices : ndarray of shape (n,), int32
        In [0, n_columns), rising within a row.
    data : ndarray of shape (n,)
        Of the matrix's type, unchecked.

    Raises
    ------
    ValueError
        Arrays that do not belong together, or lead out of the matrix; the array and the row are named.
    """
    check_arrays(name, matrix)
    if matrix.dtype.kind in "iu":
        check_fits(f"{name}.data", _numbers(matrix), np.float64)
    if matrix.dtype.kind in "iub":  # before any sum: two entries of 200 overflow an unsigned byte
        matrix = matrix.astype(np.float64)
    try:
        csr = as_csr(matrix, copy=True)
    except (ValueError, TypeError, OverflowError) as error:  # a place outside the matrix, or one that is no number
        raise ValueError(f"{name} does not hold what its format ({matrix.format}) must: {error}") from error
    if matrix.format not in _CHECKED:
        _check_rows(name, csr.indptr, csr.indices, csr.shape[1])
    csr.sum_duplicates()
    return check_integers(f"{name}.indptr", csr.indptr, np.int64), csr.indices.astype(np.int32, copy=False), csr.data


def remedy_for(given: Any) -> str:
    """Return the remedy for an object that is no matrix of SciPy, as the end of a message.

    Parameters
    ----------
    given : object
        Such as a dense array, or a sparse array of PyData or of JAX.

    Returns
    -------
    str
        A clause.
    """
    if hasattr(given, "to_scipy_sparse"):
        return "use its to_scipy_sparse(), or see Interactions.from_arrays"
    if hasattr(given, "todense"):
        return "use scipy.sparse.csr_array of its todense(), or see Interactions.from_arrays"
    if hasattr(given, "__array__") or hasattr(given, "__dlpack__"):
        return "make a matrix sparse with scipy.sparse.csr_array, or see Interactions.from_arrays"
    return "see Interactions.from_arrays"


def _numbers(matrix: Any) -> np.ndarray:
    """All entries of a matrix of integers, in any order."""
    if matrix.format == "dok":
        return np.array(list(matrix.values()), dtype=matrix.dtype)
    if matrix.format == "lil":
        return np.array([number for row in matrix.data for number in row], dtype=matrix.dtype)
    return np.asarray(matrix.data)


def check_arrays(name: str, matrix: Any) -> None:
    """Raise where a matrix's own arrays would lead SciPy out of them."""
    n_rows, n_columns = matrix.shape
    if not matrix.dtype.isnative:  # of which SciPy says so itself, but not where it found it
        native = matrix.dtype.newbyteorder("=")
        raise TypeError(
            f"{name}.data must be in this machine's byte order, got {matrix.dtype.str}; use astype({native})"
        )
    for part in ("data", "indices", "indptr", "offsets", "row", "col", "rows"):
        if hasattr(matrix, part) and not np.ndim(getattr(matrix, part)):
            raise ValueError(f"{name}.{part} must be an array, got {getattr(matrix, part)!r}")
        if isinstance(getattr(matrix, part, None), np.ma.MaskedArray):  # whose mask SciPy does not see
            plain_array(f"{name}.{part}", getattr(matrix, part))
    if matrix.format in ("csr", "csc", "bsr"):
        if matrix.format == "bsr":
            height, width = matrix.data.shape[1:] if matrix.data.ndim == 3 else (1, 1)
            n_rows, n_columns = n_rows // max(height, 1), n_columns // max(width, 1)
        n_outer, n_inner = (n_columns, n_rows) if matrix.format == "csc" else (n_rows, n_columns)
        indptr = check_integers(f"{name}.indptr", matrix.indptr, np.int64)
        if len(indptr) != n_outer + 1:
            raise ValueError(
                f"{name}.indptr must have {n_outer + 1} entries for {name} of shape {matrix.shape}, got {len(indptr)}"
            )
        if len(matrix.indices) != len(matrix.data):
            sizes = f"{len(matrix.indices)} and {len(matrix.data)}"
            raise ValueError(f"{name}.indices and {name}.data must have one entry for each other's, got {sizes}")
        used = int(indptr[-1])  # SciPy allows for room behind the last row
        indices = matrix.indices[:used] if 0 <= used <= len(matrix.indices) else matrix.indices
        _check_rows(name, indptr, indices, n_inner)
    elif matrix.format == "coo":
        lengths = [len(axis) for axis in (matrix.row, matrix.col, matrix.data)]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name}.row, {name}.col and {name}.data must have one length, got {lengths}")
        for axis, numbers, length in (("row", matrix.row, n_rows), ("col", matrix.col, n_columns)):
            numbers = check_integers(f"{name}.{axis}", numbers, np.int32)
            _check_rows(name, np.array([0, len(numbers)]), numbers, length, axis=axis)
    elif matrix.format == "lil":
        _check_lists(name, matrix)
    elif matrix.format == "dia" and (matrix.data.ndim != 2 or matrix.data.shape[:1] != matrix.offsets.shape):
        sizes = f"{matrix.offsets.shape} and {matrix.data.shape}"
        raise ValueError(f"{name}.data must have a row for each of {name}.offsets, got {sizes}")


def _check_lists(name: str, matrix: Any) -> None:
    """SciPy makes room for as many entries as one of the two lists of a row has, and writes those of the other."""
    n_rows = matrix.shape[0]
    if not matrix.rows.shape == matrix.data.shape == (n_rows,):
        raise ValueError(f"{name}.rows and {name}.data must have {n_rows} lists, got {matrix.rows.shape[0]} and "
                         f"{matrix.data.shape[0]}")  # fmt: skip
    for row, (columns, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(columns) != len(values):
            sizes = f"{len(columns)} and {len(values)} in row {row}"
            raise ValueError(f"{name}.rows and {name}.data must have one entry for each other's, got {sizes}")


def _check_rows(name: str, indptr: np.ndarray, indices: np.ndarray, n: int, axis: str = "indices") -> None:
    indptr = check_integers(f"{name}.indptr", indptr, np.int64)
    indices = check_integers(f"{name}.{axis}", indices, np.int32)
    fields = {"indices": axis}
    check_csr(indptr, indices, None, n, name=lambda field: f"{name}.{fields.get(field, field)}", rising=False)
