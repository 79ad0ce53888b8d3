"""Checks of the arrays of SciPy matrices before SciPy's compiled code uses them, which does not check bounds."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_fits, plain_array
from fastfedrec.data.csr import check_csr, check_integers

__all__ = ["as_csr", "check_arrays", "checked_csr", "remedy_for"]

# Formats with arrays that are checked before the conversion, so that the converted rows are valid.
_CHECKED = ("csr", "csc", "bsr", "coo")


def as_csr(matrix: Any, *, copy: bool = False) -> Any:
    """Convert a matrix with checked arrays to CSR; stored zeros are entries, except in BSR and DIA."""
    # Zeros of BSR and DIA fill blocks and diagonals.  SciPy drops them for DIA.  Only COO sums duplicate entries.
    csr = matrix.tocsr(copy=copy)
    if matrix.format == "bsr":
        csr.eliminate_zeros()
    return csr


def checked_csr(name: str, matrix: Any) -> tuple[NDArray[np.int64], NDArray[np.int32], np.ndarray]:
    """Return new, sorted CSR arrays of an untrusted SciPy matrix, with duplicates summed and values unchecked."""
    check_arrays(name, matrix)
    if matrix.dtype.kind in "iu":
        check_fits(f"{name}.data", _numbers(matrix), np.float64)
    # Conversion precedes the sum of duplicates, because two entries of 200 overflow an unsigned byte, and sums of
    # float32 are rounded.  SciPy sums the duplicates of COO when it converts the format.
    if matrix.dtype.kind in "iub" or (matrix.format == "coo" and matrix.dtype == np.float32):
        matrix = matrix.astype(np.float64)
    try:
        csr = as_csr(matrix, copy=True)
    except (ValueError, TypeError, OverflowError) as error:  # a position outside of the matrix, or not a number
        raise ValueError(f"{name} must be a valid {matrix.format} matrix ({error}); build it again") from error
    if matrix.format not in _CHECKED:
        _check_rows(name, csr.indptr, csr.indices, csr.shape[1])
    csr.sort_indices()
    if csr.dtype == np.float32 and not csr.has_canonical_format:
        csr = csr.astype(np.float64)
    csr.sum_duplicates()
    return check_integers(f"{name}.indptr", csr.indptr, np.int64), csr.indices.astype(np.int32, copy=False), csr.data


def remedy_for(given: Any) -> str:
    """Return the remedy for an object that is not a SciPy matrix, as the last clause of an error message."""
    if hasattr(given, "interactions"):
        return "pass its interactions"
    if hasattr(given, "to_scipy_sparse"):
        return "use its to_scipy_sparse(), or see Interactions.from_arrays"
    if hasattr(given, "todense"):
        return "use scipy.sparse.csr_array of its todense(), or see Interactions.from_arrays"
    if hasattr(given, "__array__") or hasattr(given, "__dlpack__"):
        return "make a matrix sparse with scipy.sparse.csr_array, or see Interactions.from_arrays"
    if isinstance(given, str | os.PathLike):
        return f"read a file first, with fastfedrec.datasets.load_table({os.fspath(given)!r})"
    return "see Interactions.from_arrays"


def _numbers(matrix: Any) -> np.ndarray:
    """Return all entries of an integer matrix, in any order."""
    if matrix.format == "dok":
        return np.array(list(matrix.values()), dtype=matrix.dtype)
    if matrix.format == "lil":
        return np.array([number for row in matrix.data for number in row], dtype=matrix.dtype)
    return np.asarray(matrix.data)


def check_arrays(name: str, matrix: Any) -> None:
    """Raise if the arrays of a matrix would make SciPy read outside of them."""
    n_rows, n_columns = matrix.shape
    if not matrix.dtype.isnative:  # SciPy also rejects it, but its message does not name the array
        native = matrix.dtype.newbyteorder("=")
        raise TypeError(
            f"{name}.data must be in this machine's byte order, got {matrix.dtype.str}; use astype({native})"
        )
    # These attributes of SciPy matrices are writable, so each of them may hold any object.
    for part in ("data", "indices", "indptr", "offsets", "row", "col", "rows"):
        if hasattr(matrix, part) and not np.ndim(getattr(matrix, part)):
            raise ValueError(f"{name}.{part} must be an array, got {getattr(matrix, part)!r}")
        if isinstance(getattr(matrix, part, None), np.ma.MaskedArray):  # SciPy ignores masks
            plain_array(f"{name}.{part}", getattr(matrix, part))
    if matrix.format in ("csr", "csc", "bsr"):
        if matrix.format == "bsr":
            height, width = matrix.data.shape[1:] if matrix.data.ndim == 3 else (1, 1)
            n_rows, n_columns = n_rows // max(height, 1), n_columns // max(width, 1)
        # `indptr` has n_outer + 1 entries: CSC counts columns, CSR rows and BSR rows of blocks.
        n_outer, n_inner = (n_columns, n_rows) if matrix.format == "csc" else (n_rows, n_columns)
        indptr = check_integers(f"{name}.indptr", matrix.indptr, np.int64)
        if len(indptr) != n_outer + 1:
            raise ValueError(
                f"{name}.indptr must have {n_outer + 1} entries for {name} of shape {matrix.shape}, got {len(indptr)}"
            )
        if len(matrix.indices) != len(matrix.data):
            sizes = f"{len(matrix.indices)} and {len(matrix.data)}"
            raise ValueError(f"{name}.indices and {name}.data must have equal lengths, got {sizes}")
        used = int(indptr[-1])  # SciPy permits unused capacity after the last row
        indices = matrix.indices[:used] if 0 <= used <= len(matrix.indices) else matrix.indices
        _check_rows(name, indptr, indices, n_inner)
    elif matrix.format == "coo":
        lengths = [len(axis) for axis in (matrix.row, matrix.col, matrix.data)]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name}.row, {name}.col and {name}.data must have equal lengths, got {lengths}")
        for axis, numbers, length in (("row", matrix.row, n_rows), ("col", matrix.col, n_columns)):
            numbers = check_integers(f"{name}.{axis}", numbers, np.int32)
            _check_rows(name, np.array([0, len(numbers)]), numbers, length, axis=axis)
    elif matrix.format == "lil":
        _check_lists(name, matrix)
    elif matrix.format == "dia" and (matrix.data.ndim != 2 or matrix.data.shape[:1] != matrix.offsets.shape):
        sizes = f"{matrix.offsets.shape} and {matrix.data.shape}"
        raise ValueError(f"{name}.data must have a row for each of {name}.offsets, got {sizes}")


def _check_lists(name: str, matrix: Any) -> None:
    """Raise if the two lists of a row of a LIL matrix differ in length."""
    # SciPy allocates by the length of one list and copies the other one, which could write out of bounds.
    n_rows = matrix.shape[0]
    if not matrix.rows.shape == matrix.data.shape == (n_rows,):
        raise ValueError(f"{name}.rows and {name}.data must have {n_rows} lists, got {matrix.rows.shape[0]} and "
                         f"{matrix.data.shape[0]}")  # fmt: skip
    for row, (columns, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
        if len(columns) != len(values):
            sizes = f"{len(columns)} and {len(values)} in row {row}"
            raise ValueError(f"{name}.rows and {name}.data must have lists of equal lengths, got {sizes}")


def _check_rows(name: str, indptr: np.ndarray, indices: np.ndarray, n: int, axis: str = "indices") -> None:
    indptr = check_integers(f"{name}.indptr", indptr, np.int64)
    indices = check_integers(f"{name}.{axis}", indices, np.int32)
    fields = {"indices": axis}
    check_csr(indptr, indices, None, n, name=lambda field: f"{name}.{fields.get(field, field)}", rising=False)
