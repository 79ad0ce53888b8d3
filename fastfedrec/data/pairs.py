"""Checks of a user-item pair's value and timestamp, the order of pairs, and the merging of those that stand twice."""

import warnings
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
from fastfedrec.data.ids import entry_at, id_at

__all__ = [
    "DUPLICATES",
    "UNLISTED",
    "check_values",
    "compact_values",
    "drop_unlisted",
    "float_values",
    "in_order",
    "merge_duplicates",
    "sort_pairs",
    "summed_warning",
]

_LEAST_PAIRS = 250_000  # that are worth a thread

DUPLICATES = ("sum", "mean", "first", "last", "max", "error")


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


def summed_warning(n_duplicates: int) -> str:
    """What is said where nobody has said what becomes of repeated pairs."""
    return (
        f"{n_duplicates} rows repeat a user-item pair and their values were summed; choose duplicates='sum', 'mean', "
        "'first', 'last', 'max' or 'error' to say what is meant (in a shell --duplicates last)"
    )


def merge_duplicates(
    indptr: np.ndarray,
    item_rows: np.ndarray,
    values: np.ndarray | None,
    timestamps: np.ndarray | None,
    duplicates: str | None,
    user_ids: np.ndarray,
    item_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Merge equal neighbours of pairs sorted by (user, item), and move the users' starts."""
    if duplicates is not None:
        check_choice("duplicates", duplicates, DUPLICATES)
    starts = np.ones(len(item_rows), dtype=bool)
    np.not_equal(item_rows[1:], item_rows[:-1], out=starts[1:])
    starts[indptr[:-1][indptr[1:] > indptr[:-1]]] = True
    n_duplicates = len(starts) - int(np.count_nonzero(starts))
    if not n_duplicates:
        return indptr, item_rows, values, timestamps
    if duplicates == "error":
        where = int(np.flatnonzero(~starts)[0])
        user = id_at(user_ids, int(np.searchsorted(indptr, where, side="right")) - 1)
        raise ValueError(
            f"{n_duplicates} rows repeat a user-item pair, the first user {user!r} and item "
            f"{id_at(item_ids, item_rows[where])!r}; choose one of duplicates='sum', "
            "'mean', 'first', 'last' and 'max'"
        )
    if duplicates is None and values is not None:
        warnings.warn(summed_warning(n_duplicates), stacklevel=3)
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(starts)) - 1
    if values is None:
        values = np.ones(len(starts), dtype=np.float64)
    if duplicates in ("first", "last"):
        kept = first if duplicates == "first" else last
        values, timestamps = values[kept], None if timestamps is None else timestamps[kept]
        return np.searchsorted(first, indptr), item_rows[first], values, timestamps
    with np.errstate(over="ignore", invalid="ignore"):
        merged = (np.maximum if duplicates == "max" else np.add).reduceat(values.astype(np.float64), first)
    if not np.isfinite(merged).all():
        raise ValueError("values of a repeated user-item pair sum to infinity; rescale them")
    if duplicates == "mean":
        merged /= last - first + 1
    if timestamps is not None:
        timestamps = np.maximum.reduceat(timestamps, first)
    return np.searchsorted(first, indptr), item_rows[first], merged, timestamps
