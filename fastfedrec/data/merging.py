"""Rules that merge several rows of a user-item pair into one."""

from typing import Any

import numpy as np

from fastfedrec.core.check import check_choice
from fastfedrec.core.interface import choose_words
from fastfedrec.core.warn import warn
from fastfedrec.data.ids import id_at
from fastfedrec.data.repeats import RULES, Repeats
from fastfedrec.data.times import MISSING_TIMESTAMP

__all__ = ["DUPLICATES", "check_duplicates", "merge_duplicates", "summed_warning"]

#: Rules that merge several rows of a user-item pair; "error" rejects them.
DUPLICATES = (*RULES, "error")

_ROW_RULES = ("first", "last", "earliest", "latest")  # rules that select one row of a pair
_RULE_NAMES = ", ".join(map(repr, RULES))

Merged = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, Repeats | None]


def summed_warning(n_duplicates: int) -> str:
    """Return the warning for repeated pairs that were summed without an explicit rule."""
    return f"{n_duplicates} rows repeat a user-item pair and their values were summed; choose one of " + choose_words(
        f"duplicates={_RULE_NAMES} and 'error'", f"--duplicates {', '.join(DUPLICATES)}"
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
    """Merge repeated pairs of rows sorted by (user, item); return row starts, items, values, times and `Repeats`."""
    check_duplicates(duplicates, timestamps)
    # A row starts a pair if its item differs from the previous row's, or if it is the first row of its user.
    starts = np.ones(len(item_rows), dtype=bool)
    np.not_equal(item_rows[1:], item_rows[:-1], out=starts[1:])
    starts[indptr[:-1][indptr[1:] > indptr[:-1]]] = True
    n_duplicates = len(starts) - int(np.count_nonzero(starts))
    if not n_duplicates:
        return indptr, item_rows, values, timestamps, None
    if duplicates == "error":
        position = int(np.flatnonzero(~starts)[0])
        user = id_at(user_ids, int(np.searchsorted(indptr, position, side="right")) - 1)
        raise ValueError(
            f"{n_duplicates} rows repeat a user-item pair, the first user {user!r} and item "
            f"{id_at(item_ids, item_rows[position])!r}; choose one of duplicates={_RULE_NAMES}"
        )
    if duplicates is None and values is not None:
        warn(summed_warning(n_duplicates))
    # Pair i consists of the rows from first[i] to last[i].
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
    # Sums are computed in float64; `compact_values` narrows them later.
    with np.errstate(over="ignore", invalid="ignore"):
        merged = (np.maximum if rule == "max" else np.add).reduceat(values.astype(np.float64), first)
    if not np.isfinite(merged).all():
        raise ValueError("values of a repeated user-item pair must have a finite sum, got infinity; rescale the values")
    if rule == "mean":
        merged /= last - first + 1
    return *pairs, merged, None if timestamps is None else np.maximum.reduceat(timestamps, first), repeats


def check_duplicates(duplicates: str | None, timestamps: Any) -> None:
    """Raise for an unknown rule, and for a rule by time without timestamps."""
    if duplicates is not None:
        check_choice("duplicates", duplicates, DUPLICATES)
    if duplicates in ("earliest", "latest") and timestamps is None:
        raise ValueError(
            f"timestamps must be given for duplicates={duplicates!r}, got none; pass them, or use 'first' or 'last', "
            "which follow the order of rows"
        )


def _selected_rows(rule: str, first: np.ndarray, last: np.ndarray, timestamps: np.ndarray | None) -> np.ndarray:
    """Return the selected row of each pair, which consists of the rows from `first` to `last`."""
    if rule in ("first", "last") or timestamps is None:
        return first if rule == "first" else last
    lengths = last - first + 1
    owners = np.repeat(np.arange(len(first)), lengths)  # the pair of each row
    if (unknown := np.flatnonzero((timestamps == MISSING_TIMESTAMP) & (lengths > 1)[owners])).size:
        raise ValueError(
            f"timestamps of repeated user-item pairs must be known for duplicates={rule!r}, got {unknown.size} that "
            "are missing; drop those rows, or use 'first' or 'last', which follow the order of rows"
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
    """Return the rows of merged pairs, which a split by time divides."""
    lengths = last - first + 1
    mask = np.repeat(lengths > 1, lengths)
    if selected is not None:
        # Rows that are not earlier than the selected one are dropped.  This does not change the row that the rule
        # selects among the rows before any moment.
        mask &= timestamps < np.repeat(timestamps[selected], lengths)
        mask[selected] = True
        lengths = np.add.reduceat(mask, first, dtype=np.int64)
        mask &= np.repeat(lengths > 1, last - first + 1)
    positions = np.flatnonzero(lengths > 1)
    if not len(positions):
        return None
    indptr = np.concatenate([[0], np.cumsum(lengths[positions])])
    return Repeats(positions, indptr, timestamps[mask], None if values is None else values[mask], rule)
