"""Checks of the values of user-item pairs, and the sorting of pairs."""

import math
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_choice, plain_array
from fastfedrec.core.interface import choose_words
from fastfedrec.core.numbers import show
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows
from fastfedrec.data.ids import entry_at

__all__ = [
    "UNLISTED",
    "check_values",
    "compact_values",
    "drop_unlisted",
    "float_values",
    "in_order",
    "sort_pairs",
]

_MIN_PAIRS = 250_000  # per thread


def check_values(name: str, values: Any, length: int) -> np.ndarray:
    """Return the values of pairs as finite floats, or raise."""
    return float_values(name, values, length, finite=True)


def float_values(name: str, values: Any, length: int, *, finite: bool = False) -> np.ndarray:
    """Return the values of pairs as floats, or raise; by default without a check that they are finite."""
    array = plain_array(name, values)
    text = (
        next((entry for entry in array.ravel() if isinstance(entry, str)), None) if array.dtype.kind in "OU" else None
    )
    if text is not None:
        raise TypeError(f"{name} must be numbers, got the text {show(str(text))}; convert the values with float()")
    if array.dtype.kind == "O":
        array = _floats(name, array)
    if array.dtype.kind == "b":
        array = array.astype(np.float32)
    # float32 represents all values of float16 and bool exactly.
    if array.dtype.kind == "f" and array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    return check_array(name, array, ndim=1, shape=(length,), finite=finite)


def _floats(name: str, objects: np.ndarray) -> np.ndarray:
    """Convert number objects, such as the decimals of a database, to floats; return other objects unchanged."""
    kinds = {type(entry) for entry in objects.ravel()}
    if type(None) in kinds:
        position = next(at for at, entry in enumerate(objects.ravel()) if entry is None)
        raise ValueError(f"{name}[{position}] must be a number, got None; drop the row, or fill in a value")
    are_numbers = all(issubclass(kind, Real | Decimal) and not issubclass(kind, bool) for kind in kinds)
    if not are_numbers:
        return objects
    flat = objects.ravel()
    try:
        floats = flat.astype(np.float64)
    except OverflowError:
        floats = np.array([_nearest(entry) for entry in flat])
    # Numbers below 2**53 are rounded in their fraction only, unless they become 0.
    inexact, is_large = (floats == 0) & flat.astype(bool), np.abs(floats) >= 2.0**53
    inexact[is_large] = flat[is_large] != floats[is_large]
    if inexact.any():
        at = int(inexact.argmax())
        raise TypeError(
            f"{name}[{at}] must be a number that float64 represents exactly, got {show(flat[at])}; convert it with "
            "float()"
        )
    return floats.reshape(objects.shape)


def _nearest(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


UNLISTED = ("error", "drop")


def drop_unlisted(
    given: Mapping[str, Any], rows: Mapping[str, np.ndarray], ids: dict[str, np.ndarray], items: Any, unlisted: str
) -> tuple[np.ndarray | None, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Drop rows with an unlisted id (row -1), or raise; return the mask of rows (None: all), the rows and the ids."""
    check_choice("unlisted", unlisted, UNLISTED)
    mask = np.ones(len(rows["users"]), dtype=bool)
    for axis, listed in given.items():
        if listed is not None:
            mask &= rows[axis] >= 0
    if mask.all():
        return None, dict(rows), ids
    if unlisted == "error":
        position = int(np.argmin(mask))
        n_unlisted = int(len(mask) - np.count_nonzero(mask))
        fault = f"users[{position}] must be in user_ids, got an unlisted user"  # error messages never name users
        if given["items"] is not None and rows["items"][position] < 0:
            listed_in = choose_words("item_ids", "--catalogue")
            fault = f"items[{position}] must be in {listed_in}, got {entry_at(items, position)!r}"
        remedy = choose_words("pass unlisted='drop'", "add --drop-unlisted")
        raise ValueError(f"{fault} ({n_unlisted} of {len(mask)} rows have an unlisted id); list it, or {remedy}")
    remaining = {axis: of_rows[mask] for axis, of_rows in rows.items()}
    for axis, listed in given.items():
        # An axis without a given list keeps only the ids that occur in the remaining rows.
        if listed is None:
            is_present = np.zeros(len(ids[axis]), dtype=bool)
            is_present[remaining[axis]] = True
            remaining[axis] = (np.cumsum(is_present) - 1).astype(remaining[axis].dtype)[remaining[axis]]
            ids = ids | {axis: ids[axis][is_present]}
    return mask, remaining, ids


def compact_values(values: np.ndarray | None) -> FloatArray | None:
    """Return values in float32 if that is exact, or None if all of them are 1."""
    if values is None or bool((values == 1).all()):
        return None
    # A value beyond the range of float32 becomes infinite and fails the comparison.
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    return narrow if bool((narrow == values).all()) else values


def sort_pairs(
    user_rows: np.ndarray, item_rows: np.ndarray, n_users: int, n_items: int, *, n_threads: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return row starts, and the stable order of pairs by (user, item) or None for sorted pairs."""
    n = len(user_rows)
    # Indices of 32 bits halve the memory of the sort.
    dtype = np.int32 if max(n, n_users) <= np.iinfo(np.int32).max else np.int64
    order, scratch, indptr = np.empty(n, dtype=dtype), np.empty((n, 2), dtype=dtype), np.zeros(n_users + 1, np.int64)
    # Each thread has counters for all users and items, which few pairs per thread would not be worth.
    n_threads = threads_for_rows(n, resolve_n_threads(n_threads), min_rows=max(_MIN_PAIRS, n_users + n_items))
    moved = _kernel.sort_pairs(user_rows, item_rows, order, scratch, indptr, n_items, n_threads)
    return indptr, order if moved else None


def in_order(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return ``array[order]``, computed on all threads."""
    # The kernel moves words of 4 or 8 bytes, so floats are viewed as integers of the same size.
    word = {4: np.int32, 8: np.int64}.get(array.dtype.itemsize)
    if word is None:
        return array[order]
    out = np.empty(len(order), dtype=array.dtype)
    n_threads = threads_for_rows(len(order), resolve_n_threads(0), min_rows=_MIN_PAIRS)
    _kernel.look_up_ids(order, np.ascontiguousarray(array).view(word), out.view(word), n_threads)
    return out
