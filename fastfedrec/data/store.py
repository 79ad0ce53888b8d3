"""Interactions on disk: a folder of plain NumPy files, mapped into memory and read only where they are touched."""

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
    catalogue : str
        As of `Interactions`.
    """

    _rows: tuple[str, int, int]  # folder, first row, row after the last; only of rows that a folder holds as they are

    def _user_range(self, start: int, stop: int) -> Self:
        part = super()._user_range(start, stop)
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
        Ids and features may be numbers, strings, and tuples of these.
    folder : path-like
        Must not exist; a folder that is there is whole, because it gets its name last.  Only its owner may enter it.

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
    with new_folder(folder) as partial:
        for name, array in arrays.items():
            if array is not None:
                write_array(partial, name, array)
        for axis, columns in features.items():
            for number, column in enumerate(columns.values()):
                write_array(partial, f"{axis}_feature_{number}", column)
        write_document(partial, {axis: list(columns) for axis, columns in features.items()}, catalogue, rule)


def open_interactions(folder: str | os.PathLike[str]) -> StoredInteractions:
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
    folder = check_path("folder", folder).resolve()
    data = _checked(folder, _read(folder))
    data._rows = str(folder), 0, data.n_users
    return data


def _open_rows(folder: str, start: int, stop: int) -> StoredInteractions:
    # Another process's part.  Its files need not be those that were checked elsewhere under this name.
    fields = _read(Path(folder))
    indptr = check_integers(_file_of(Path(folder), fields, "indptr"), fields["indptr"][start : stop + 1], np.int64)
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
    """What the folder holds, mapped and not yet looked at."""
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
    # Of a folder that does not state its catalogue, the worst case.
    return fields | {"catalogue": document.get("catalogue", "data"), "repeats": repeats}


def _read_repeats(folder: Path, others: Any) -> Repeats:
    arrays = {name: read_array(folder, file_of(name)) for name in ARRAYS if is_there(folder, file_of(name))}
    try:
        return Repeats(**({"values": None} | arrays | others))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder} has damaged repeats ({error}); store the interactions again") from error


def _checked(folder: Path, fields: dict[str, Any]) -> StoredInteractions:
    """The only way from files to interactions: messages name the file."""
    checked = check_fields(fields, name=lambda field: _file_of(folder, fields, field), aligned=True)
    if (repeats := fields["repeats"]) is not None:
        checked["repeats"] = repeats.check_within(len(checked["indices"]), of=str(folder / "repeats_positions.npy"))
    return StoredInteractions._trusted(checked)


def _file_of(folder: Path, fields: dict[str, Any], field: str) -> str:
    """What messages call a field: its file."""
    if field == "catalogue":
        return f"{folder / 'interactions.json'}: catalogue"
    for axis in AXES:
        for number, name in enumerate(fields[f"{axis}_features"]):
            if field == f"{axis}_features[{name!r}]":
                field = f"{axis}_feature_{number}"
    return str(folder / f"{field}.{'npy' if (folder / f'{field}.npy').exists() else 'json'}")
