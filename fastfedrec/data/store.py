"""Interactions on disk: a folder of NumPy files that are mapped into memory and read on access."""

import os
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastfedrec.core.files import check_path
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.csr import check_fields, check_integers
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.repeats import ARRAYS, Repeats, file_of
from fastfedrec.data.store_files import (
    AXES,
    is_there,
    new_folder,
    read_array,
    read_document,
    write_array,
    write_document,
)

__all__ = ["StoredInteractions", "open_interactions", "store_interactions"]

_OF_ENTRIES = "indices", "values", "timestamps"


class StoredInteractions(Interactions):
    """Interactions with arrays in a folder; use `open_interactions` to open one.

    The class has all methods of `Interactions`.  Arrays are mapped read-only.  Opening a folder reads them once, and
    memory holds only the parts in use.  A contiguous shard of users is a view of the same files.  Its pickle is the
    folder's path and the range of rows, so that another process or machine reads its part.  Other selections are
    ordinary arrays in memory.

    Parameters
    ----------
    indptr, indices, values, timestamps, user_ids, item_ids, global_user_ids : ndarray or None
        See `Interactions`.
    user_features, item_features : mapping of str to ndarray
        See `Interactions`.
    catalogue : str
        See `Interactions`.
    """

    # (folder, first row, row after the last).  Only views of the folder's files have it, other selections do not.
    _rows: tuple[str, int, int]

    def _user_range(self, start: int, stop: int) -> Self:
        part = super()._user_range(start, stop)
        # A range of a mapped range is a range of the same folder.
        if "_rows" in vars(self):
            folder, first, _ = self._rows
            part._rows = folder, first + start, first + stop
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        return (_open_rows, self._rows) if "_rows" in vars(self) else super().__reduce__()


def store_interactions(interactions: InteractionsLike, folder: str | os.PathLike[str]) -> None:
    """Write interactions to a folder that `open_interactions` opens.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Interactions to store.  Ids and features may be numbers, strings, and tuples of these.
    folder : path-like
        Path of a folder that does not exist yet.  The folder gets its name after its last file, so an existing folder
        is complete.  Only its owner can access it.

    Raises
    ------
    FileExistsError
        The path `folder` exists.
    TypeError
        Ids or features that cannot be stored without pickle.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.data.store import open_interactions, store_interactions
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "plays")
    >>> store_interactions(Interactions.from_arrays(["ann", "bob", "ann"], [10, 10, 30]), folder)
    >>> open_interactions(folder)
    <Interactions: 2 users x 2 items, 3 interactions>
    """
    data = as_interactions("interactions", interactions)
    arrays, repeats = data._fields(), data._repeats
    if repeats is not None:
        arrays |= {file_of(name): getattr(repeats, name) for name in ARRAYS}
    rule = None if repeats is None else {name: getattr(repeats, name) for name in ("rule", "above", "is_binary")}
    features, catalogue = {axis: arrays.pop(f"{axis}_features") for axis in AXES}, arrays.pop("catalogue")
    # Features are numbered, because their names need not be valid names of files.
    with new_folder(folder) as partial:
        for name, array in arrays.items():
            if array is not None:
                write_array(partial, name, array)
        for axis, columns in features.items():
            for number, column in enumerate(columns.values()):
                write_array(partial, f"{axis}_feature_{number}", column)
        write_document(partial, {axis: list(columns) for axis, columns in features.items()}, catalogue, rule)


def open_interactions(folder: str | os.PathLike[str]) -> StoredInteractions:
    """Open a folder that `store_interactions` or `datasets.store_table` wrote.

    Parameters
    ----------
    folder : path-like
        Folder of stored interactions.  It must not change while the returned object, or any shard of it, is in use.

    Returns
    -------
    StoredInteractions
        Interactions; every entry has been read once and checked.

    Raises
    ------
    FileNotFoundError
        A missing folder, or a missing file in it.
    ValueError
        Another kind of folder, or a damaged one.  The message names the file.
    """
    folder = check_path("folder", folder).resolve()
    data = _checked(folder, _read(folder))
    data._rows = str(folder), 0, data.n_users
    return data


def _open_rows(folder: str, start: int, stop: int) -> StoredInteractions:
    # This opens a shard in another process, where the path may lead to other files, so they are checked here.
    fields = _read(Path(folder))
    indptr = check_integers(_file_of(Path(folder), fields, "indptr"), fields["indptr"][start : stop + 1], np.int64)
    # The part of `indptr` still counts from the first row of the folder.
    entries = slice(indptr[0], indptr[-1]) if len(indptr) else slice(0)
    part = {name: None if fields[name] is None else fields[name][entries] for name in _OF_ENTRIES}
    part |= {name: fields[name][start:stop] for name in ("user_ids", "global_user_ids")}
    part["user_features"] = {name: column[start:stop] for name, column in fields["user_features"].items()}
    if (repeats := fields["repeats"]) is not None:
        part["repeats"] = repeats.select(entries, len(fields["indices"]))
    data = _checked(Path(folder), fields | part | {"indptr": indptr - indptr[:1]})
    data._rows = folder, start, stop
    return data


def _read(folder: Path) -> dict[str, Any]:
    """Return the folder's fields as mapped arrays, without checks of their contents."""
    document = read_document(folder)
    fields: dict[str, Any] = {
        name: None if name in ("values", "timestamps") and not is_there(folder, name) else read_array(folder, name)
        for name in ("indptr", *_OF_ENTRIES, "user_ids", "item_ids", "global_user_ids")
    }
    for axis in AXES:
        fields[f"{axis}_features"] = {
            name: read_array(folder, f"{axis}_feature_{number}") for number, name in enumerate(document[axis])
        }
    repeats = _read_repeats(folder, document["repeats"]) if "repeats" in document else None
    # A document may lack the catalogue; "data" is then the worst case, because no guarantee covers it.
    return fields | {"catalogue": document.get("catalogue", "data"), "repeats": repeats}


def _read_repeats(folder: Path, rule: Any) -> Repeats:
    arrays = {name: read_array(folder, file_of(name)) for name in ARRAYS if is_there(folder, file_of(name))}
    try:
        return Repeats(**({"values": None} | arrays | rule))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder} has damaged repeats ({error}); store the interactions again") from error


def _checked(folder: Path, fields: dict[str, Any]) -> StoredInteractions:
    """Return interactions from checked fields of a folder; error messages name the file."""
    checked = check_fields(fields, name=lambda field: _file_of(folder, fields, field), aligned=True)
    if (repeats := fields["repeats"]) is not None:
        checked["repeats"] = repeats.check_within(len(checked["indices"]), of=str(folder / "repeats_positions.npy"))
    return StoredInteractions._trusted(checked)


def _file_of(folder: Path, fields: dict[str, Any], field: str) -> str:
    """Return the path of a field's file, which error messages show."""
    if field == "catalogue":
        return f"{folder / 'interactions.json'}: catalogue"
    for axis in AXES:
        for number, name in enumerate(fields[f"{axis}_features"]):
            if field == f"{axis}_features[{name!r}]":
                field = f"{axis}_feature_{number}"
    return str(folder / f"{field}.{'npy' if (folder / f'{field}.npy').exists() else 'json'}")
