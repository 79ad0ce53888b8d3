"""Conversion of tables of any size to interactions on disk, with one pass over the file and then in blocks."""

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
from fastfedrec.core.warn import warn
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

_BLOCK = 1 << 22  # rows in memory at once


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
    r"""Convert a CSV, TSV or Parquet file to a folder of interactions, with memory for ids and blocks of rows only.

    The result equals that of `load_table`, but is on disk.  The file is read once.  During the conversion, a temporary
    folder next to `folder` holds its columns and then the rows by user (at most 116 bytes per row).

    Parameters
    ----------
    path : str or path-like
        Path of the file, see `load_table`.
    folder : path-like
        Path of a folder that does not exist yet.
    user, item, value, timestamp : str or int or None
        Columns of the ids, of the values and of the times, see `load_table`.
    separator : str or None
        Separator of two fields, see `load_table`.
    header, quotes : bool
        Whether the first line names the columns, and whether fields may be in quotes, see `load_table`.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        Rule that merges several rows of a user-item pair, see `load_table`.
    item_ids, user_ids : array_like or None
        Complete catalogue and list of users, see `load_table`.
    unlisted : {"error", "drop"}
        Treatment of a row with an unlisted id, see `load_table`.
    timestamp_unit : {"s", "ms", "us", "ns"}
        Unit since 1970 into which dates and times are converted, see `load_table`.
    time_format, comment : str or None
        Format of times, and prefix of comments, see `load_table`.
    missing_ids : {"error", "drop"}
        Treatment of a row without a user or an item, see `load_table`.

    Returns
    -------
    StoredInteractions
        Interactions that `fastfedrec.data.store.open_interactions` opened from the folder.

    Raises
    ------
    FileExistsError
        The path `folder` exists.
    KeyError, ValueError, ImportError
        Invalid arguments or files, see `load_table`.

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
    """Column of 64-bit numbers in a file; rows are appended and read in blocks."""

    def __init__(self, path: Path, dtype: np.dtype):
        self._path, self.dtype = path, dtype

    def append(self, column: np.ndarray) -> None:
        """Append rows to the file."""
        if column.dtype != self.dtype:
            raise AssertionError(f"{self._path.name} must hold {self.dtype}, got {column.dtype}")
        with open(self._path, "ab") as file:
            column.tofile(file)

    def __len__(self) -> int:
        return self._path.stat().st_size // self.dtype.itemsize

    def __getitem__(self, block: slice) -> np.ndarray:
        offset, count = block.start * self.dtype.itemsize, block.stop - block.start
        return np.fromfile(self._path, self.dtype, count=count, offset=offset)


class _Spool(dict[str, _SpooledColumn]):
    """Columns by name; the first appended rows create a column."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder

    def append(self, name: str, column: np.ndarray) -> None:
        """Append rows to a column."""
        if name not in self:
            self[name] = _SpooledColumn(self._folder / name, column.dtype)
        self[name].append(column)


class _SpooledReader(ColumnReader):
    """Reader that writes its columns to disk."""

    def __init__(self, fields: Sequence[Field], separator: str, *, spool: Path, **options: Any):
        super().__init__(fields, separator, **options)
        for file in spool.iterdir():  # left by a reader that stopped at a column of text
            file.unlink()
        self._spool = _Spool(spool)

    def _compact(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        return rows  # a file has one dtype, so blocks are not narrowed

    def _add_rows(self, rows: list[np.ndarray]) -> None:
        for position, column in zip(self._read_positions, rows, strict=True):
            self._spool.append(str(position), column)

    def _arrays(self) -> list[Any]:
        return [self._spool[str(position)] for position in self._read_positions]


def _spool_parquet(layout: Layout, folder: Path) -> dict[str, Any]:
    spool = _Spool(folder)
    numbers: dict[str, dict[str, int]] = {"user": {}, "item": {}}  # numbers of text ids, in order of first appearance
    for batch in parquet_batches(layout, max(_BLOCK // 4, 1)):
        for role, column in batch.items():
            if role == "value":
                column = column.astype(np.float64)
            elif role != "timestamp":
                column = _integer_ids(layout, role, column, numbers[role])
            spool.append(role, column)
    return {role: Coded(list(numbers[role]), c) if numbers.get(role) else c for role, c in spool.items()}  # type: ignore[arg-type]


def _integer_ids(layout: Layout, role: str, column: np.ndarray | Coded, known: dict[str, int]) -> np.ndarray:
    """Return integer ids unchanged, and text ids as their numbers in order of first appearance."""
    if not isinstance(column, Coded) and column.dtype.kind in "OU":
        distinct, rows = encode_ids(role, column)
        column = Coded(distinct.tolist(), rows)
    if isinstance(column, Coded) and all(isinstance(key, str) for key in column.ids):
        numbers = [known.setdefault(key, len(known)) for key in column.ids]
        return np.array(numbers, dtype=np.int64)[column.numbers]
    if not isinstance(column, Coded) and column.dtype.kind in "iu" and int(column.max()) < 2**63:
        return column.astype(np.int64)
    raise ValueError(
        f"{layout.path}: column {layout.names[layout.places[role]]!r} ({role}) must hold text, or integers of at most "
        "63 bits; use load_table for other ids"
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
    """Write the folder's files, with rows grouped by user and then sorted by item in ranges of users."""
    axes = {axis: _encode(f"{axis}s", columns[axis]) for axis in ("user", "item")}
    extra: dict[str, Any] = {role: columns[role] for role in ("value", "timestamp") if role in columns}
    n = len(columns["user"].numbers if isinstance(columns["user"], Coded) else columns["user"])
    listed = {axis: axis_ids(f"{axis}_ids", ids, None) for axis, ids in lists.items() if ids is not None}
    for axis, ids in listed.items():
        axes[axis] = ids, _rows_in_list(axis, ids, *axes[axis], unlisted)
    if listed and any((rows(block) < 0).any() for _, rows in axes.values() for block in _blocks(n)):
        axes, extra = _drop_unlisted(n, axes, listed, extra)
    (user_ids, user_rows), (item_ids, item_rows) = axes["user"], axes["item"]
    check_item_count(len(item_ids))
    indptr, items_by_user, extra_by_user = _group_by_user(
        spool, n, len(user_ids), len(item_ids), user_rows, item_rows, extra
    )
    final = _Spool(spool)
    # These columns must exist even if no row remains.
    final.append("indices", np.empty(0, dtype=np.int32))
    final.append("values", np.empty(0))
    if "timestamp" in extra:
        final.append("timestamps", np.empty(0, dtype=np.int64))
    starts, n_merged = np.zeros(len(indptr), dtype=np.int64), 0
    for low, high in _user_ranges(indptr):
        part = slice(indptr[low], indptr[high])
        # The range has about one block of rows, which are sorted and merged in memory.
        rows = np.repeat(np.arange(high - low), np.diff(indptr[low : high + 1]))
        items = np.ascontiguousarray(items_by_user[part])
        ends, order = sort_pairs(rows, items, high - low, len(item_ids))
        order = slice(None) if order is None else order  # type: ignore[assignment]
        value, time = (extra_by_user[role][part][order] if role in extra else None for role in ("value", "timestamp"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one warning for all ranges follows below
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
        _release_pages(items_by_user, *extra_by_user.values())
    if n_merged and duplicates is None and "value" in extra:
        warn(summed_warning(n_merged))
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
    """Append the rows of repeated pairs of a range of users that follows `n_interactions` interactions."""
    n_rows = len(final[file_of("timestamps")]) if file_of("timestamps") in final else 0
    values = np.ones(len(repeats.timestamps)) if repeats.values is None else repeats.values.astype(np.float64)
    ends = repeats.indptr[min(n_rows, 1) :] + n_rows  # only the first range contributes its leading 0
    columns = repeats.positions + n_interactions, ends, repeats.timestamps, values
    for name, column in zip(ARRAYS, columns, strict=True):
        final.append(file_of(name), column)


def _new_column(path: Path, dtype: Any, n: int) -> np.ndarray:
    """Create a column in a mapped file, or in memory if it is empty, which NumPy before 2.1 cannot map."""
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
    """Return row starts by user, and mapped files of the items and other columns in table order within users."""
    indptr: np.ndarray = np.zeros(n_users + 1, dtype=np.int64)
    for block in _blocks(n):
        indptr[1:] += np.bincount(user_rows(block), minlength=n_users)
    np.cumsum(indptr, out=indptr)
    n_rows = int(indptr[-1])
    items = _new_column(spool / "items_by_user", np.int32, n_rows)
    columns = {name: _new_column(spool / f"{name}_by_user", c.dtype, n_rows) for name, c in extra.items()}
    next_free = indptr[:-1].copy()  # by user, the position of the next row
    for block in _blocks(n):
        block_users, block_items = user_rows(block), item_rows(block)
        # Sorted by user, the rows of a block move to consecutive positions within each user.
        starts, order = sort_pairs(block_users, block_items, n_users, n_items)
        order = slice(None) if order is None else order  # type: ignore[assignment]
        positions = np.arange(len(block_users)) + np.repeat(next_free - starts[:-1], np.diff(starts))
        next_free += np.diff(starts)
        items[positions] = block_items[order]
        for name, column in extra.items():
            columns[name][positions] = column[block][order]
        _release_pages(items, *columns.values())
    return indptr, items, columns


def _dtype_of_values(values: _SpooledColumn) -> np.dtype | None:
    """Return float32 if it is exact, otherwise float64, or None if all values are 1, as `compact_values` does."""
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
        _release_pages(file)
    file.flush()


def _release_pages(*mapped: np.ndarray) -> None:
    """Release the pages of mapped files, which the system would count as memory of the process."""
    for array in mapped:
        if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            array.base.madvise(mmap.MADV_DONTNEED)


def _encode(name: str, column: _SpooledColumn | Coded) -> tuple[np.ndarray, Callable[[slice], np.ndarray]]:
    """Return sorted distinct ids, and a function from a block of rows to the positions of their ids."""
    if isinstance(column, Coded):
        ids, rank = encode_ids(name, column.ids)
        return ids, lambda block: rank[column.numbers[block]]
    ids = np.zeros(0, dtype=np.int64)
    for block in _blocks(len(column)):
        ids = np.union1d(ids, encode_ids(name, column[block])[0])
    # Dense ids have a table of positions; other ids need a binary search.
    if ids[0] >= 0 and ids[-1] < 4 * len(column) + 1024:
        positions = np.zeros(ids[-1] + 1, dtype=np.int32)
        positions[ids] = np.arange(len(ids), dtype=np.int32)
        return ids, lambda block: positions[column[block]]
    return ids, lambda block: np.searchsorted(ids, column[block]).astype(np.int32)


def _rows_in_list(
    axis: str, listed: np.ndarray, ids: np.ndarray, rows: Callable[[slice], np.ndarray], unlisted: str
) -> Callable[[slice], np.ndarray]:
    """Return a function from a block of rows to the positions of their ids in a list, or -1 for unlisted ids."""
    check_kinds(f"{axis}_ids", listed, ids, of=f"the {axis}s")
    positions = IdIndex(axis, listed).find(ids).astype(np.int32)
    if unlisted == "error" and (absent := np.flatnonzero(positions < 0)).size:
        # Error messages never name users.
        missing = f"{len(absent)} of them are missing"
        if axis == "item":
            missing = f"{id_at(ids, absent[0])!r} is missing ({len(absent)} in all)"
        raise ValueError(
            f"{axis}_ids must list all {axis}s of the table, but {missing}; add them, or pass unlisted='drop'"
        )
    return lambda block: positions[rows(block)]


_Axis = tuple[np.ndarray, Callable[[slice], np.ndarray]]  # ids, and a function from a block of rows to positions


@dataclass(frozen=True)
class _MaskedColumn:
    """Column without dropped rows, indexed by the blocks of the original column."""

    column: Any
    mask: Callable[[slice], np.ndarray]

    @property
    def dtype(self) -> np.dtype:
        return self.column.dtype

    def __getitem__(self, block: slice) -> np.ndarray:
        return self.column[block][self.mask(block)]


def _drop_unlisted(
    n: int, axes: Mapping[str, _Axis], listed: Mapping[str, np.ndarray], extra: Mapping[str, _SpooledColumn]
) -> tuple[dict[str, _Axis], dict[str, Any]]:
    """Return both axes and all columns without the rows of unlisted users or items."""

    def mask(block: slice) -> np.ndarray:
        users, items = (rows(block) for _, rows in axes.values())
        return (users >= 0) & (items >= 0)

    def masked(rows: Callable[[slice], np.ndarray]) -> Callable[[slice], np.ndarray]:
        return lambda block: rows(block)[mask(block)]

    new_axes: dict[str, _Axis] = {}
    for axis, (ids, rows) in axes.items():
        new_axes[axis] = ids, masked(rows)
        if axis not in listed:  # an axis without a given list has only the ids of the remaining rows
            new_axes[axis] = _present_ids(n, ids, masked(rows))
    return new_axes, {role: _MaskedColumn(column, mask) for role, column in extra.items()}


def _present_ids(n: int, ids: np.ndarray, rows: Callable[[slice], np.ndarray]) -> _Axis:
    """Return the axis of the ids with at least one row."""
    is_present = np.zeros(len(ids), dtype=bool)
    for block in _blocks(n):
        is_present[rows(block)] = True
    positions = (np.cumsum(is_present) - 1).astype(np.int32)
    return ids[is_present], lambda block: positions[rows(block)]


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _user_ranges(indptr: np.ndarray) -> list[tuple[int, int]]:
    """Return ranges of users with about one block of rows and at least one user each."""
    ranges, low, n_users = [], 0, len(indptr) - 1
    while low < n_users:
        high = max(low + 1, int(np.searchsorted(indptr, indptr[low] + _BLOCK, side="right")) - 1)
        ranges.append((low, min(high, n_users)))
        low = ranges[-1][1]
    return ranges
