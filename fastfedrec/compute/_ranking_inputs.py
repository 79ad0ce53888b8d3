"""Checks of the scores, factors and rows that ranking functions take."""

from typing import Any

import numpy as np

from fastfedrec.core.check import check_array, plain_array
from fastfedrec.data.conversion import borrow_rows
from fastfedrec.data.csr import check_integers, check_named_rows

__all__ = [
    "check_counts",
    "check_factors",
    "check_held_out_rows",
    "check_other_items",
    "check_range",
    "check_row_numbers",
    "check_scores",
    "seen_rows",
]


def check_factors(user_factors: Any, item_factors: Any, finite: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays in the wider of their two types."""
    user_factors = check_array("user_factors", user_factors, ndim=2, finite=finite)
    item_factors = check_array("item_factors", item_factors, ndim=2, shape=(None, user_factors.shape[1]), finite=finite)
    if not user_factors.shape[1]:
        raise ValueError("user_factors must have at least one factor, got shape " + str(user_factors.shape))
    # The kernels have versions for float32 and float64, but not for one array of each.
    dtype = np.result_type(user_factors, item_factors)
    return user_factors.astype(dtype, copy=False), item_factors.astype(dtype, copy=False)


def check_row_numbers(name: str, rows: Any, length: int, kind: str) -> np.ndarray:
    rows = plain_array(name, rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a one-dimensional array of row numbers, got {rows.dtype} {rows.shape}")
    check_range(name, rows, length, kind)
    return np.ascontiguousarray(rows, dtype=np.int64)


def check_range(name: str, rows: np.ndarray, length: int, kind: str) -> None:
    if rows.size and (rows.min() < 0 or rows.max() >= length):
        raise ValueError(
            f"{name} must be in [0, {length}), the range of {kind}, got {rows.min()} to {rows.max()}; count from 0"
        )


def check_counts(counts: Any, n_rows: int, n: int, kind: str) -> np.ndarray:
    counts = check_integers("counts", counts, np.int64)
    if counts.shape != (n_rows,) or (n_rows and (counts.min() < 0 or counts.max() > n)):
        raise ValueError(
            f"counts must be {n_rows} numbers of {kind} between 0 and {n}, one for each row of other_{kind}"
        )
    return counts


def check_held_out_rows(name: str, held_out: np.ndarray, rows: Any, n_rows: int) -> np.ndarray:
    """Return the row of each held-out entry; by default entry i is in row i."""
    rows = np.arange(n_rows) if rows is None else check_row_numbers("rows", rows, n_rows, "rows")
    if len(rows) != len(held_out):
        raise ValueError(
            f"{name} must have one entry for each row ({len(rows)}), got {len(held_out)}; pass rows= to rank several "
            "in one row"
        )
    return rows


def check_other_items(other_items: Any, n_rows: int, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the items to compare with, and their copy as int32."""
    other_items = plain_array("other_items", other_items)
    if other_items.ndim != 2 or len(other_items) != n_rows or other_items.dtype.kind not in "iu":
        raise ValueError(
            f"other_items must be integers with one row for each user ({n_rows}), got {other_items.dtype} "
            f"{other_items.shape}"
        )
    items = other_items
    if items.dtype != np.int32:  # numbers that int32 cannot hold become -1, which the kernel rejects
        items = np.full(items.shape, -1, dtype=np.int32)
        np.copyto(items, other_items, casting="unsafe", where=(other_items >= 0) & (other_items < n_items))
    return other_items, items


def check_scores(name: str, scores: Any, ndim: int) -> np.ndarray:
    # `check_array` would reject infinities, which are valid scores; the kernel reads all scores and reports NaN.
    array = plain_array(name, scores)
    if array.dtype not in (np.float32, np.float64):
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"{name} must be an array of float32 or float64, got dtype {array.dtype}; use .astype")
        array = array.astype(np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    return np.ascontiguousarray(array)


def seen_rows(seen: Any, n_rows: int, n_items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return compressed rows of seen columns, in any order within a row."""
    # None becomes compressed rows without any column.
    if seen is None:
        return np.zeros(n_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
    if not isinstance(seen, tuple):
        seen = borrow_rows("seen", seen)
        if seen.shape != (n_rows, n_items):
            raise ValueError(f"seen must have shape {(n_rows, n_items)}, users x items, got {seen.shape}")
        return seen.indptr, seen.indices
    if len(seen) != 2:
        raise TypeError(f"seen must be Interactions, a matrix, (indptr, indices) or None, got {len(seen)} arrays")
    return check_named_rows("seen", *seen, n_rows, n_items, fields=("indptr", "indices"))
