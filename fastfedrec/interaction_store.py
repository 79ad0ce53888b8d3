"""Interactions on disk: a folder of plain NumPy files, mapped into memory and read only where they are touched."""

import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastfedrec._check import check_instance
from fastfedrec._store_files import AXES, is_there, new_folder, read_array, read_document, write_array, write_document
from fastfedrec.interactions import Interactions

__all__ = ["StoredInteractions", "open_interactions", "store_interactions"]

_BLOCK = 1 << 24  # entries that are looked at together


class StoredInteractions(Interactions):
    """Interactions whose arrays lie in a folder; made by `open_interactions`.

    All that `Interactions` has is here too.  Arrays are mapped read-only: opening reads them once, and memory
    holds what is being read; a contiguous shard of users is a view of the same files, and is pickled as the folder's
    path and the rows, so that another process or machine reads its own part.  Other selections are ordinary arrays.

    Parameters
    ----------
    indptr, indices, values, timestamps, user_ids, item_ids, global_user_ids : ndarray or None
        As of `Interactions`.
    user_features, item_features : mapping of str to ndarray
        As of `Interactions`.
    """

    _rows: tuple[str, int, int] | None = None  # folder, first row, row after the last

    def _user_range(self, start: int, stop: int) -> Self:
        part = super()._user_range(start, stop)
        if self._rows is not None:
            folder, first, _ = self._rows
            part._rows = folder, first + start, first + stop
        return part

    def __reduce__(self) -> tuple:
        return super().__reduce__() if self._rows is None else (_open_rows, self._rows)


def store_interactions(interactions: Interactions, folder: str | os.PathLike) -> None:
    """Write interactions to a folder that `open_interactions` opens.

    Parameters
    ----------
    interactions : Interactions
        Ids and features may be numbers, strings, and tuples of these.
    folder : path-like
        Must not exist; a folder that is there is whole, because it gets its name last.

    Raises
    ------
    FileExistsError
        Something at `folder`.
    TypeError
        Ids or features that cannot be stored without pickle.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.interaction_store import open_interactions, store_interactions
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "plays")
    >>> store_interactions(Interactions.from_arrays(["ann", "bob", "ann"], [10, 10, 30]), folder)
    >>> open_interactions(folder)
    <Interactions: 2 users x 2 items, 3 interactions>
    """
    check_instance("interactions", interactions, Interactions, "see Interactions.from_arrays")
    arrays = interactions._fields()
    features = {axis: arrays.pop(f"{axis}_features") for axis in AXES}
    with new_folder(folder) as partial:
        for name, array in arrays.items():
            if array is not None:
                write_array(partial, name, array)
        for axis, columns in features.items():
            for number, column in enumerate(columns.values()):
                write_array(partial, f"{axis}_feature_{number}", column)
        write_document(partial, {axis: list(columns) for axis, columns in features.items()})


def open_interactions(folder: str | os.PathLike) -> StoredInteractions:
    """Open what `store_interactions` or `datasets.store_table` wrote.

    Parameters
    ----------
    folder : path-like
        Must not change while what was opened, or any shard of it, is in use.

    Returns
    -------
    StoredInteractions
        Every entry has been read once, to see that it is what kernels may be given.

    Raises
    ------
    FileNotFoundError
        No such folder, or a file of it is missing.
    ValueError
        Not such a folder, or a damaged one; the file is named.
    """
    folder = Path(folder).resolve()
    data = _map(folder)
    _check(folder, data)
    return data


def _open_rows(folder: str, start: int, stop: int) -> Interactions:
    # Another process's part of a folder that was checked where it was opened.
    return _map(Path(folder))._user_range(start, stop)


def _map(folder: Path) -> StoredInteractions:
    document = read_document(folder)
    features = [
        {name: read_array(folder, f"{axis}_feature_{number}") for number, name in enumerate(document[axis])}
        for axis in AXES
    ]
    names = ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids")
    arrays: list[Any] = [
        None if name in ("values", "timestamps") and not is_there(folder, name) else read_array(folder, name)
        for name in names
    ]
    data = StoredInteractions(*arrays, *features)
    data._rows = str(folder), 0, data.n_users
    return data


def _check(folder: Path, data: Interactions) -> None:
    """Refuse a folder whose files do not belong together, or hold what would lead a kernel out of its arrays."""

    def refuse(name: str, problem: str) -> None:
        raise ValueError(f"{folder / name}.npy {problem}; store the interactions again")

    lengths = {
        "user_ids": data.n_users, "global_user_ids": data.n_users,
        "values": data.n_interactions, "timestamps": data.n_interactions,
    }  # fmt: skip
    for name, length in lengths.items():
        array = getattr(data, name)
        if array is not None and array.shape != (length,):
            refuse(name, f"has shape {array.shape}, and must have {(length,)}")
    for axis, length in (("user", data.n_users), ("item", data.n_items)):
        for number, column in enumerate(getattr(data, f"{axis}_features").values()):
            if len(column) != length:
                refuse(f"{axis}_feature_{number}", f"has {len(column)} entries, and must have {length}")
    if data.indptr[0] != 0 or data.indptr[-1] != data.n_interactions or (np.diff(data.indptr) < 0).any():
        refuse("indptr", f"does not lead from 0 to {data.n_interactions} in steps of at least 0")
    for start in range(0, data.n_interactions, _BLOCK):
        part = data.indices[start : start + _BLOCK + 1]  # one more, which must follow its neighbour
        if part.min() < 0 or part.max() >= data.n_items:
            refuse("indices", f"holds an item outside 0 to {data.n_items - 1}")
        falls = start + 1 + np.flatnonzero(part[1:] <= part[:-1])
        if not np.isin(falls, data.indptr).all():
            refuse("indices", "holds a row that does not ascend")
        if data.values is not None:
            values = data.values[start : start + _BLOCK]
            if not (np.isfinite(values) & (values >= 0)).all():
                refuse("values", "holds a value that is not finite and at least 0")
