"""Tables of any size into interactions on disk: one pass over the file, then blocks of what it held."""

import mmap
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_choice
from fastfedrec.data.csr import check_item_count
from fastfedrec.data.ids import Coded, IdIndex, axis_ids, check_kinds, encode_ids, id_at
from fastfedrec.data.merging import check_duplicates, merge_duplicates, summed_warning
from fastfedrec.data.pairs import UNLISTED, sort_pairs
from fastfedrec.data.repeats import ARRAYS, Repeats, file_of
from fastfedrec.data.store import StoredInteractions, open_interactions
from fastfedrec.data.store_files import new_folder, write_array, write_document
from fastfedrec.datasets._fields import Field
from fastfedrec.datasets._parquet import parquet_batches
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.table_files import Layout, find_layout, read_text

__all__ = ["store_table"]

_BLOCK = 1 << 22  # rows that are in memory together


def store_table(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    value: str | int | None = None,
    timestamp: str | int | None = None,
    separator: str | None = None,
    header: bool = True,
    quotes: bool = True,
    duplicates: str | None = None,
    item_ids: Column | None = None,
    user_ids: Column | None = None,
    unlisted: str = "error",
    timestamp_unit: str = "s",
    time_format: str | None = None,
    comment: str | None = None,
    missing_ids: str = "error",
) -> StoredInteractions:
    r"""Read a CSV, TSV or Parquet file into a folder, with memory for ids and blocks of rows only.

    What `load_table` would return, on disk.  The file is read once; its columns, and then the rows by user, lie beside
    `folder` while that goes on (at most 116 bytes a row).

    Parameters
    ----------
    path : str or path-like
        As in `load_table`.
    folder : path-like
        Must not exist.
    user, item : str or int or None
        As in `load_table`.
    value, timestamp : str or int or None
        As in `load_table`.
    separator : str or None
        As in `load_table`.
    header, quotes : bool
        As in `load_table`.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        As in `load_table`.
    item_ids, user_ids : array_like or None
        As in `load_table`.
    unlisted : {"error", "drop"}
        As in `load_table`.
    timestamp_unit : {"s", "ms", "us", "ns"}
        As in `load_table`.
    time_format, comment : str or None
        As in `load_table`.
    missing_ids : {"error", "drop"}
        As in `load_table`.

    Returns
    -------
    StoredInteractions
        As `fastfedrec.data.store.open_interactions` opens it.

    Raises
    ------
    FileExistsError
        Something at `folder`.
    KeyError, ValueError, ImportError
        As in `load_table`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec.datasets import store_table
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (here / "plays.csv").write_text("who,what\nann,7\nbob,7\nann,9\n")
    >>> store_table(here / "plays.csv", here / "plays", user="who", item="what")
    <Interactions: 2 users x 2 items, 3 interactions>
    """
    check_choice("unlisted", unlisted, UNLISTED)
    layout = find_layout(
        path, user, item, value, timestamp, separator, header, quotes, timestamp_unit, time_format, comment, missing_ids
    )  # fmt: skip
    check_duplicates(duplicates, layout.places.get("timestamp"))
    with new_folder(folder) as partial:
        spool = partial / "spool"
        spool.mkdir()
        columns = _spool_parquet(layout, spool) if layout.is_parquet else read_text(layout, _SpooledReader, spool=spool)
        _write_rows(partial, spool, columns, duplicates, {"user": user_ids, "item": item_ids}, unlisted)
        for file in spool.iterdir():
            file.unlink()
        spool.rmdir()
    return open_interactions(folder)


# ---- columns on disk ----------------------------------------------------------------------------------------------


class _SpooledColumn:
    """A column of 64-bit numbers in a file, which is appended to and read in blocks."""

    def __init__(self, path: Path, dtype: np.dtype):
        self._path, self.dtype = path, dtype

    def append(self, column: np.ndarray) -> None:
        """Add rows."""
        if column.dtype != self.dtype:
            raise AssertionError(f"{self._path.name} holds {self.dtype}, got {column.dtype}")
        with open(self._path, "ab") as file:
            column.tofile(file)

    def __len__(self) -> int:
        return self._path.stat().st_size // self.dtype.itemsize

    def __getitem__(self, block: slice) -> np.ndarray:
        offset, count = block.start * self.dtype.itemsize, block.stop - block.start
        return np.fromfile(self._path, self.dtype, count=count, offset=offset)


class _Spool(dict[str, _SpooledColumn]):
    """Columns by name, made where they are first appended to."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder

    def append(self, name: str, column: np.ndarray) -> None:
        """Add rows to a column."""
        if name not in self:
            self[name] = _SpooledColumn(self._folder / name, column.dtype)
        self[name].append(column)


class _SpooledReader(ColumnReader):
    """A reader whose columns go to disk."""

    def __init__(self, fields: Sequence[Field], separator: str, *, spool: Path, **options: Any):
        super().__init__(fields, separator, **options)
        for file in spool.iterdir():  # of a reader that has found a column to be text
            file.unlink()
        self._spool = _Spool(spool)

    def _compact(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        return rows  # a file holds one type

    def _keep(self, rows: list[np.ndarray]) -> None:
        for place, column in zip(self._kept, rows, strict=True):
            self._spool.append(str(place), column)

    def _arrays(self) -> list[Any]:
        return [self._spool[str(place)] for place in self._kept]


def _spool_parquet(layout: Layout, folder: Path) -> dict[str, Any]:
    spool = _Spool(folder)
    numbers: dict[str, dict[str, int]] = {"user": {}, "item": {}}  # of text ids, in order of first appearance
    for batch in parquet_batches(layout, max(_BLOCK // 4, 1)):
        for role, column in batch.items():
            if role == "value":
                column = column.astype(np.float64)
            elif role != "timestamp":
                column = _number(layout, role, column, numbers[role])
            spool.append(role, column)
    return {role: Coded(list(numbers[role]), c) if numbers.get(role) else c for role, c in spool.items()}  # type: ignore[arg-type]


def _number(layout: Layout, role: str, column: np.ndarray | Coded, known: dict[str, int]) -> np.ndarray:
    """Integers as they are, and text by its number among all that has appeared."""
    if not isinstance(column, Coded) and column.dtype.kind in "OU":
        distinct, rows = encode_ids(role, column)
        column = Coded(distinct.tolist(), rows)
    if isinstance(column, Coded) and all(isinstance(key, str) for key in column.ids):
        places = [known.setdefault(key, len(known)) for key in column.ids]
        return np.array(places, dtype=np.int64)[column.numbers]
    if not isinstance(column, Coded) and column.dtype.kind in "iu" and int(column.max()) < 2**63:
        return column.astype(np.int64)
    raise ValueError(
        f"{layout.path}: column {layout.names[layout.places[role]]!r} ({role}) must hold text, or integers of at most "
        "63 bits; load_table takes other ids"
    )


# ---- rows by user -------------------------------------------------------------------------------------------------


def _write_rows(
    folder: Path,
    spool: Path,
    columns: dict[str, Any],
    duplicates: str | None,
    lists: Mapping[str, Any],
    unlisted: str,
) -> None:
    """Write the folder's files: the rows by user, and in ranges of users by item."""
    axes = {axis: _encode(f"{axis}s", columns[axis]) for axis in ("user", "item")}
    extra: dict[str, Any] = {role: columns[role] for role in ("value", "timestamp") if role in columns}
    n = len(columns["user"].numbers if isinstance(columns["user"], Coded) else columns["user"])
    listed = {axis: axis_ids(f"{axis}_ids", ids, None) for axis, ids in lists.items() if ids is not None}
    for axis, ids in listed.items():
        axes[axis] = ids, _on_list(axis, ids, *axes[axis], unlisted)
    if listed and any((rows(block) < 0).any() for _, rows in axes.values() for block in _blocks(n)):
        axes, extra = _without_unlisted(n, axes, listed, extra)
    (user_ids, user_rows), (item_ids, item_rows) = axes["user"], axes["item"]
    check_item_count(len(item_ids))
    indptr, items_by_user, extra_by_user = _group_by_user(
        spool, n, len(user_ids), len(item_ids), user_rows, item_rows, extra
    )
    final = _Spool(spool)
    final.append("indices", np.empty(0, dtype=np.int32))  # no row may be left
    final.append("values", np.empty(0))
    if "timestamp" in extra:
        final.append("timestamps", np.empty(0, dtype=np.int64))
    starts, n_merged = np.zeros(len(indptr), dtype=np.int64), 0
    for low, high in _user_ranges(indptr):
        part = slice(indptr[low], indptr[high])
        rows = np.repeat(np.arange(high - low), np.diff(indptr[low : high + 1]))
        items = np.ascontiguousarray(items_by_user[part])
        ends, order = sort_pairs(rows, items, high - low, len(item_ids))
        order = slice(None) if order is None else order  # type: ignore[assignment]
        value, time = (extra_by_user[role][part][order] if role in extra else None for role in ("value", "timestamp"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # told once, of all ranges, below
            ends, items, value, time, repeats = merge_duplicates(
                ends, items[order], value, time, duplicates, user_ids[low:high], item_ids
            )
        n_merged += len(rows) - len(items)
        if repeats is not None:
            _append_repeats(final, repeats, int(starts[low]))
        starts[low + 1 : high + 1] = starts[low] + ends[1:]
        final.append("indices", items.astype(np.int32, copy=False))
        final.append("values", np.ones(len(items)) if value is None else value.astype(np.float64))
        if time is not None:
            final.append("timestamps", time)
        _let_go(items_by_user, *extra_by_user.values())
    if n_merged and duplicates is None and "value" in extra:
        warnings.warn(summed_warning(n_merged), stacklevel=3)
    for name, array in {
        "indptr": starts,
        "user_ids": user_ids,
        "item_ids": item_ids,
        "global_user_ids": np.arange(len(user_ids), dtype=np.uint64),
    }.items():
        write_array(folder, name, array)
    _copy(folder, "indices", final["indices"], np.dtype(np.int32))
    if (dtype := _dtype_of_values(final["values"])) is not None:
        _copy(folder, "values", final["values"], dtype)
    if "timestamp" in extra:
        _copy(folder, "timestamps", final["timestamps"], np.dtype(np.int64))
    has_repeats = file_of("positions") in final
    for name in ARRAYS if has_repeats else ():
        column = final[file_of(name)]
        if (dtype := _dtype_of_values(column) if name == "values" else column.dtype) is not None:
            _copy(folder, file_of(name), column, dtype)
    rule = {"rule": duplicates or "sum"} if has_repeats else None
    write_document(folder, {"user": [], "item": []}, "public" if "item" in listed else "data", rule)


def _append_repeats(final: _Spool, repeats: Repeats, n_interactions: int) -> None:
    """Add the rows of repeated pairs in a range of users, after so many interactions."""
    n_rows = len(final[file_of("timestamps")]) if file_of("timestamps") in final else 0
    values = np.ones(len(repeats.timestamps)) if repeats.values is None else repeats.values.astype(np.float64)
    ends = repeats.indptr[min(n_rows, 1) :] + n_rows  # the first range begins with a 0
    columns = repeats.positions + n_interactions, ends, repeats.timestamps, values
    for name, column in zip(ARRAYS, columns, strict=True):
        final.append(file_of(name), column)


def _new_column(path: Path, dtype: Any, n: int) -> np.ndarray:
    """A column in a file; NumPy before 2.1 maps no empty one."""
    return np.memmap(path, dtype, mode="w+", shape=n) if n else np.empty(0, dtype)


def _group_by_user(
    spool: Path,
    n: int,
    n_users: int,
    n_items: int,
    user_rows: Callable[[slice], np.ndarray],
    item_rows: Callable[[slice], np.ndarray],
    extra: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Where each user's rows begin, and their items and other columns in files, in the order of the table."""
    indptr: np.ndarray = np.zeros(n_users + 1, dtype=np.int64)
    for block in _blocks(n):
        indptr[1:] += np.bincount(user_rows(block), minlength=n_users)
    np.cumsum(indptr, out=indptr)
    n_kept = int(indptr[-1])
    items = _new_column(spool / "items_by_user", np.int32, n_kept)
    others = {name: _new_column(spool / f"{name}_by_user", c.dtype, n_kept) for name, c in extra.items()}
    free = indptr[:-1].copy()
    for block in _blocks(n):
        rows, chosen = user_rows(block), item_rows(block)
        starts, order = sort_pairs(rows, chosen, n_users, n_items)
        order = slice(None) if order is None else order  # type: ignore[assignment]
        places = np.arange(len(rows)) + np.repeat(free - starts[:-1], np.diff(starts))
        free += np.diff(starts)
        items[places] = chosen[order]
        for name, column in extra.items():
            others[name][places] = column[block][order]
        _let_go(items, *others.values())
    return indptr, items, others


def _dtype_of_values(values: _SpooledColumn) -> np.dtype | None:
    """None where all are 1, float32 where that loses nothing, as `compact_values` decides of arrays in memory."""
    is_one, is_narrow = True, True
    for block in _blocks(len(values)):
        part = values[block]
        with np.errstate(over="ignore"):
            is_one, is_narrow = (
                is_one and bool((part == 1).all()),
                is_narrow and bool((part.astype("f4") == part).all()),
            )
    return None if is_one else np.dtype(np.float32 if is_narrow else np.float64)


def _copy(folder: Path, name: str, column: _SpooledColumn, dtype: np.dtype) -> None:
    file = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=(len(column),))
    for block in _blocks(len(column)):
        file[block] = column[block]
        _let_go(file)
    file.flush()


def _let_go(*mapped: np.ndarray) -> None:
    """Leave what was touched of these files to the system, which else counts it as memory of the process."""
    for array in mapped:
        if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            array.base.madvise(mmap.MADV_DONTNEED)


def _encode(name: str, column: _SpooledColumn | Coded) -> tuple[np.ndarray, Callable[[slice], np.ndarray]]:
    """Distinct ids, and a function from a block of rows to their places among them."""
    if isinstance(column, Coded):
        ids, rank = encode_ids(name, column.ids)
        return ids, lambda block: rank[column.numbers[block]]
    found = np.zeros(0, dtype=np.int64)
    for block in _blocks(len(column)):
        found = np.union1d(found, encode_ids(name, column[block])[0])
    if found[0] >= 0 and found[-1] < 4 * len(column) + 1024:  # dense: looked up instead of searched for
        places = np.zeros(found[-1] + 1, dtype=np.int32)
        places[found] = np.arange(len(found), dtype=np.int32)
        return found, lambda block: places[column[block]]
    return found, lambda block: np.searchsorted(found, column[block]).astype(np.int32)


def _on_list(
    axis: str, listed: np.ndarray, found: np.ndarray, rows: Callable[[slice], np.ndarray], unlisted: str
) -> Callable[[slice], np.ndarray]:
    """The same function for a list that is given; -1 for what it does not hold."""
    check_kinds(f"{axis}_ids", listed, found, of=f"the {axis}s")
    places = IdIndex(axis, listed).find(found).astype(np.int32)
    if unlisted == "error" and (absent := np.flatnonzero(places < 0)).size:
        what = "somebody" if axis == "user" else f"{id_at(found, absent[0])!r}"  # people are not named
        raise ValueError(
            f"{axis}_ids does not list {what}, {'a user' if axis == 'user' else 'an item'} of the table ({len(absent)} "
            "in all); list it, or pass unlisted='drop'"
        )
    return lambda block: places[rows(block)]


_Axis = tuple[np.ndarray, Callable[[slice], np.ndarray]]  # ids, and from a block of rows to places among them


@dataclass(frozen=True)
class _Kept:
    """A column without the rows that are dropped, in the blocks of what it was."""

    column: Any
    is_kept: Callable[[slice], np.ndarray]

    @property
    def dtype(self) -> np.dtype:
        return self.column.dtype

    def __getitem__(self, block: slice) -> np.ndarray:
        return self.column[block][self.is_kept(block)]


def _without_unlisted(
    n: int, axes: Mapping[str, _Axis], listed: Mapping[str, np.ndarray], extra: Mapping[str, _SpooledColumn]
) -> tuple[dict[str, _Axis], dict[str, Any]]:
    """Both axes, and all columns, as if rows without a listed user and item had never been there."""

    def is_kept(block: slice) -> np.ndarray:
        users, items = (rows(block) for _, rows in axes.values())
        return (users >= 0) & (items >= 0)

    def of_kept(rows: Callable[[slice], np.ndarray]) -> Callable[[slice], np.ndarray]:
        return lambda block: rows(block)[is_kept(block)]

    left: dict[str, _Axis] = {}
    for axis, (ids, rows) in axes.items():
        left[axis] = ids, of_kept(rows)
        if axis not in listed:  # those who are left
            left[axis] = _those_there(n, ids, of_kept(rows))
    return left, {role: _Kept(column, is_kept) for role, column in extra.items()}


def _those_there(n: int, ids: np.ndarray, rows: Callable[[slice], np.ndarray]) -> _Axis:
    """An axis of those alone who have a row."""
    there = np.zeros(len(ids), dtype=bool)
    for block in _blocks(n):
        there[rows(block)] = True
    places = (np.cumsum(there) - 1).astype(np.int32)
    return ids[there], lambda block: places[rows(block)]


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _user_ranges(indptr: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of users with about a block of rows each, and at least one user."""
    ranges, low, n_users = [], 0, len(indptr) - 1
    while low < n_users:
        high = max(low + 1, int(np.searchsorted(indptr, indptr[low] + _BLOCK, side="right")) - 1)
        ranges.append((low, min(high, n_users)))
        low = ranges[-1][1]
    return ranges
