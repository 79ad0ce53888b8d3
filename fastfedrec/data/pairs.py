"""Checks of a user-item pair's value, and the order of pairs."""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.check import check_array, check_choice, plain_array
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

_LEAST_PAIRS = 250_000  # that are worth a thread


def check_values(name: str, values: Any, length: int) -> np.ndarray:
    """Values of pairs as finite floats, one for each, or the refusal of what is none."""
    return float_values(name, values, length, finite=True)


def float_values(name: str, values: Any, length: int, *, finite: bool = False) -> np.ndarray:
    """The same, where another looks for what is not finite."""
    array = plain_array(name, values)
    if array.dtype.kind == "O":
        array = _floats(name, array)
    if array.dtype.kind == "b":
        array = array.astype(np.float32)
    if array.dtype.kind == "f" and array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    return check_array(name, array, ndim=1, shape=(length,), finite=finite)


def _floats(name: str, objects: np.ndarray) -> np.ndarray:
    """Numbers that are objects, as decimals of a database are, as floats; all else as it is, to be refused."""
    kinds = {type(entry) for entry in objects.ravel()}
    if type(None) in kinds:
        where = next(at for at, entry in enumerate(objects.ravel()) if entry is None)
        raise ValueError(f"{name}[{where}] is missing (None); drop it, or put a value there")
    are_numbers = all(issubclass(kind, Real | Decimal) and not issubclass(kind, bool) for kind in kinds)
    for at, entry in enumerate(objects.ravel() if are_numbers and int in kinds else ()):
        if type(entry) is int and (entry.bit_length() > 1000 or int(float(entry)) != entry):
            raise TypeError(
                f"{name}[{at}] must be a number that float64 holds exactly, got {show(entry)}; use float of it"
            )
    with suppress(OverflowError):  # of a fraction
        return objects.astype(np.float64) if are_numbers else objects
    return objects


UNLISTED = ("error", "drop")


def drop_unlisted(
    given: Mapping[str, Any], rows: Mapping[str, np.ndarray], ids: dict[str, np.ndarray], items: Any, unlisted: str
) -> tuple[np.ndarray | None, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Refuse rows whose user or item is not listed (row -1), or drop them, as if they had never been there.

    Returns which rows are kept (None: all), and what is left of each axis: its rows, and its ids.
    """
    check_choice("unlisted", unlisted, UNLISTED)
    kept = np.ones(len(rows["users"]), dtype=bool)
    for axis, listed in given.items():
        if listed is not None:
            kept &= rows[axis] >= 0
    if kept.all():
        return None, dict(rows), ids
    if unlisted == "error":
        where = int(np.argmin(kept))
        n = int(len(kept) - np.count_nonzero(kept))
        what = f"users[{where}] is somebody whom user_ids does not list"  # people are not named
        if given["items"] is not None and rows["items"][where] < 0:
            what = f"items[{where}] is {entry_at(items, where)!r}, which item_ids does not list"
        raise ValueError(f"{what} ({n} of {len(kept)} rows in all); list it, or pass unlisted='drop'")
    left = {axis: of_rows[kept] for axis, of_rows in rows.items()}
    for axis, listed in given.items():
        if listed is None:  # those who are left
            there = np.zeros(len(ids[axis]), dtype=bool)
            there[left[axis]] = True
            left[axis] = (np.cumsum(there) - 1).astype(left[axis].dtype)[left[axis]]
            ids = ids | {axis: ids[axis][there]}
    return kept, left, ids


def compact_values(values: np.ndarray | None) -> FloatArray | None:
    """None where all are 1; float32 where that loses nothing."""
    if values is None or bool((values == 1).all()):
        return None
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    return narrow if bool((narrow == values).all()) else values


def sort_pairs(
    user_rows: np.ndarray, item_rows: np.ndarray, n_users: int, n_items: int, *, n_threads: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Where each user's pairs begin, and the stable order by (user, item): None for pairs that are in it already."""
    n = len(user_rows)
    dtype = np.int32 if max(n, n_users) <= np.iinfo(np.int32).max else np.int64
    order, scratch, indptr = np.empty(n, dtype=dtype), np.empty((n, 2), dtype=dtype), np.zeros(n_users + 1, np.int64)
    # Each thread counts for itself: with few pairs a row that would cost more than the pairs.
    n_threads = threads_for_rows(n, resolve_n_threads(n_threads), least=max(_LEAST_PAIRS, n_users + n_items))
    moved = _kernel.sort_pairs(user_rows, item_rows, order, scratch, indptr, n_items, n_threads)
    return indptr, order if moved else None


def in_order(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`array[order]`, on all threads."""
    word = {4: np.int32, 8: np.int64}.get(array.dtype.itemsize)
    if word is None:
        return array[order]
    out = np.empty(len(order), dtype=array.dtype)
    n_threads = threads_for_rows(len(order), resolve_n_threads(0), least=_LEAST_PAIRS)
    _kernel.look_up_ids(order, np.ascontiguousarray(array).view(word), out.view(word), n_threads)
    return out
