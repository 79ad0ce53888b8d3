"""The merging of rows that repeat a user-item pair."""

import warnings
from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice
from fastfedrec.data.ids import id_at
from fastfedrec.data.repeats import RULES, Repeats
from fastfedrec.data.times import MISSING_TIMESTAMP

__all__ = ["DUPLICATES", "check_duplicates", "merge_duplicates", "summed_warning"]

#: The rules by which several rows of a user-item pair become one, or are refused.
DUPLICATES = (*RULES, "error")

_ROW_RULES = ("first", "last", "earliest", "latest")  # a pair becomes one of its rows by these
_CHOICES = ", ".join(map(repr, RULES))

Merged = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, Repeats | None]


def summed_warning(n_duplicates: int) -> str:
    """Return the warning where no rule for repeated pairs was chosen."""
    return (
        f"{n_duplicates} rows repeat a user-item pair and their values were summed; choose one of duplicates="
        f"{_CHOICES} and 'error' (in a shell --duplicates last)"
    )


def merge_duplicates(
    indptr: np.ndarray,
    item_rows: np.ndarray,
    values: np.ndarray | None,
    timestamps: np.ndarray | None,
    duplicates: str | None,
    user_ids: np.ndarray,
    item_ids: np.ndarray,
) -> Merged:
    """Merge equal neighbours of pairs sorted by (user, item), and move the users' starts.

    Returns the starts, the item, value and time of each pair, and the rows by which splits divide pairs.
    """
    check_duplicates(duplicates, timestamps)
    starts = np.ones(len(item_rows), dtype=bool)
    np.not_equal(item_rows[1:], item_rows[:-1], out=starts[1:])
    starts[indptr[:-1][indptr[1:] > indptr[:-1]]] = True
    n_duplicates = len(starts) - int(np.count_nonzero(starts))
    if not n_duplicates:
        return indptr, item_rows, values, timestamps, None
    if duplicates == "error":
        where = int(np.flatnonzero(~starts)[0])
        user = id_at(user_ids, int(np.searchsorted(indptr, where, side="right")) - 1)
        raise ValueError(
            f"{n_duplicates} rows repeat a user-item pair, the first user {user!r} and item "
            f"{id_at(item_ids, item_rows[where])!r}; choose one of duplicates={_CHOICES}"
        )
    if duplicates is None and values is not None:
        warnings.warn(summed_warning(n_duplicates), stacklevel=3)
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(starts)) - 1
    rule = duplicates or "sum"
    selected = _selected_rows(rule, first, last, timestamps) if rule in _ROW_RULES else None
    repeats = None if timestamps is None else _find_repeats(first, last, values, timestamps, rule, selected)
    pairs = np.searchsorted(first, indptr), item_rows[first]
    if values is None:
        values = np.ones(len(starts), dtype=np.float64)
    if selected is not None:
        return *pairs, values[selected], None if timestamps is None else timestamps[selected], repeats
    with np.errstate(over="ignore", invalid="ignore"):
        merged = (np.maximum if rule == "max" else np.add).reduceat(values.astype(np.float64), first)
    if not np.isfinite(merged).all():
        raise ValueError("values of a repeated user-item pair sum to infinity; rescale them")
    if rule == "mean":
        merged /= last - first + 1
    return *pairs, merged, None if timestamps is None else np.maximum.reduceat(timestamps, first), repeats


def check_duplicates(duplicates: str | None, timestamps: Any) -> None:
    """Raise for an unknown rule, and for one by time where there are no times."""
    if duplicates is not None:
        check_choice("duplicates", duplicates, DUPLICATES)
    if duplicates in ("earliest", "latest") and timestamps is None:
        raise ValueError(
            f"timestamps must be given for duplicates={duplicates!r}, got none; pass them, or use 'first' or 'last', "
            "which go by the order of rows"
        )


def _selected_rows(rule: str, first: np.ndarray, last: np.ndarray, timestamps: np.ndarray | None) -> np.ndarray:
    """Return the row that each pair becomes by one of `_ROW_RULES`; pairs are the rows from `first` to `last`."""
    if rule in ("first", "last") or timestamps is None:
        return first if rule == "first" else last
    lengths = last - first + 1
    owners = np.repeat(np.arange(len(first)), lengths)
    if (unknown := np.flatnonzero((timestamps == MISSING_TIMESTAMP) & (lengths > 1)[owners])).size:
        raise ValueError(
            f"timestamps of repeated user-item pairs must be known for duplicates={rule!r}, got {unknown.size} that "
            "are missing; drop those rows, or use 'first' or 'last', which go by the order of rows"
        )
    order = np.lexsort((timestamps, owners))  # stable: among equal times the order of rows decides
    return order[first] if rule == "earliest" else order[last]


def _find_repeats(
    first: np.ndarray,
    last: np.ndarray,
    values: np.ndarray | None,
    timestamps: np.ndarray,
    rule: str,
    selected: np.ndarray | None,
) -> Repeats | None:
    """Keep the rows by which a split by time divides merged pairs.

    Where a pair becomes one of its rows, those that are not earlier are forgotten: of the rows before any moment the
    rule then selects the same row as if they were still there.
    """
    lengths = last - first + 1
    kept = np.repeat(lengths > 1, lengths)
    if selected is not None:
        kept &= timestamps < np.repeat(timestamps[selected], lengths)
        kept[selected] = True
        lengths = np.add.reduceat(kept, first, dtype=np.int64)
        kept &= np.repeat(lengths > 1, last - first + 1)
    positions = np.flatnonzero(lengths > 1)
    if not len(positions):
        return None
    indptr = np.concatenate([[0], np.cumsum(lengths[positions])])
    return Repeats(positions, indptr, timestamps[kept], None if values is None else values[kept], rule)
