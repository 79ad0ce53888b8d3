"""Reader of the eICU Collaborative Research Database: how often each patient got each laboratory test and medicine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.check import check_choice
from fastfedrec.core.files import check_path
from fastfedrec.core.numbers import show_names
from fastfedrec.data.ids import Coded, IdIndex, axis_ids, check_kinds
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import UNLISTED
from fastfedrec.datasets._fields import Field, Kind
from fastfedrec.datasets._streams import open_text
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.table_files import table_columns

__all__ = ["load_eicu"]

_STAY, _PATIENT, _HOSPITAL = "patientunitstayid", "uniquepid", "hospitalid"
_CANCELLED, _DRUG, _INGREDIENTS = "drugordercancelled", "drugname", "drughiclseqno"
_LAB = "labname"
_WANTED = {name: Field(name, Kind.ID, "a whole number", low=0) for name in (_STAY, _HOSPITAL)}
_WANTED |= {name: Field(name, Kind.TEXT, "text") for name in (_PATIENT, _LAB)}
_WANTED |= {name: Field(name, Kind.TEXT, "text", optional=True) for name in (_CANCELLED, _DRUG, _INGREDIENTS)}
_NAMED = 2**30  # code of the first medicine that is told by its name alone; those below are told by their ingredients
_LOW = 2**32 - 1
_PENDING = 2**21  # pairs that are counted together, so that memory follows the result and not the file


def load_eicu(
    path: str | os.PathLike[str],
    *,
    rows: str = "patients",
    item_ids: Column | None = None,
    unlisted: str = "error",
) -> Interactions:
    """Read patients or stays x (laboratory tests + medicines) from eICU's own files, demo or full.

    An entry is how often a test was made or a medicine was ordered; cancelled orders do not count.  A medicine is its
    ingredients (``drughiclseqno``) where the file knows them, else its name without regard to case; an order with
    neither is left out.

    Parameters
    ----------
    path : str or path-like
        The folder that holds ``patient``, ``medication`` and ``lab``, each as ``.csv.gz`` or ``.csv``.
    rows : {"patients", "stays"}
        What a user is: a patient with all stays in intensive care, or one stay.
    item_ids : array_like of str, or None
        The whole catalogue, such as "lab glucose" and "medication 2812", as in `Interactions.from_arrays`; None takes
        the tests and medicines that somebody had.
    unlisted : {"error", "drop"}
        What becomes of entries whose item the catalogue does not list.

    Returns
    -------
    Interactions
        Counts as values; every patient or stay of the file, those without any entry included.  User ids are
        ``uniquepid`` or ``patientunitstayid``.

        User features: ``hospital``, the entity that holds the row; a patient of several belongs to the one of the first
        stay in the file.  ``patient``, which for stays tells whose they are: the unit that a guarantee must protect.

        Item ids are "lab glucose" or "medication 2812"; the item features ``kind`` ("lab", "medication") and ``name``
        tell what they are, the latter by the first name in the file, empty where there is none.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`, or a file is missing.
    KeyError
        A column is missing.
    ValueError
        A malformed file, or a stay that ``patient`` does not list.

    Notes
    -----
    Files are read block by block, and counted as they are read: memory follows the number of different pairs.

    References
    ----------
    .. [1] Pollard et al., "The eICU collaborative research database, a freely available multi-center database for
       critical care research", Scientific Data 5, 2018.

    Examples
    --------
    >>> from fastfedrec.datasets import load_eicu
    >>> load_eicu("eicu-demo", rows="stays")  # doctest: +SKIP
    <Interactions: 2,520 users x 1,522 items, 83,969 interactions with values>
    """
    check_choice("rows", rows, ("patients", "stays"))
    folder = check_path("path", path)
    if not folder.is_dir():
        raise FileNotFoundError(f"path {str(folder)!r} is no folder; pass the one with patient.csv.gz")
    stays, user_ids, users, features = _read_users(folder, rows)
    labs = _count(folder, "lab", (_LAB,), stays, users)
    drugs = _count(folder, "medication", (_CANCELLED, _DRUG, _INGREDIENTS), stays, users)
    found, item_features, columns = _name_items(labs, drugs)
    keys = np.concatenate([_with_columns(reader.keys, of) for reader, of in zip((labs, drugs), columns, strict=True)])
    keys, counts = _add_up(keys, np.concatenate([labs.counts, drugs.counts]))
    listed = found if item_ids is None else axis_ids("item_ids", item_ids, None)
    if item_ids is not None:
        keys, counts, item_features = _on_list(listed, unlisted, found, keys, counts, item_features)
    return Interactions(
        np.searchsorted(keys >> 32, np.arange(len(user_ids) + 1)),
        (keys & _LOW).astype(np.int32),
        counts.astype(np.float32),
        None,
        user_ids,
        listed,
        np.arange(len(user_ids), dtype=np.uint64),
        features,
        item_features,
        catalogue="data" if item_ids is None else "public",
    )


def _read_users(folder: Path, rows: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Stays in ascending order; user ids; the user's row of each stay; user features."""
    reader = _read(folder, "patient", (_STAY, _HOSPITAL, _PATIENT), _Reader)
    columns = dict(zip(reader.names, reader.columns(), strict=True))
    patients: Coded = columns[_PATIENT]
    names = np.array(patients.ids, dtype=np.str_)[patients.numbers]
    order = np.argsort(columns[_STAY], kind="stable")
    stays = columns[_STAY][order].astype(np.int64)
    if (again := np.flatnonzero(np.diff(stays) == 0)).size:
        raise ValueError(f"{_find(folder, 'patient')}: stay {stays[again[0]]} has a second row; remove one")
    hospitals = columns[_HOSPITAL].astype(np.int64)
    if rows == "stays":
        return stays, stays, np.arange(len(stays)), {"hospital": hospitals[order], "patient": names[order]}
    user_ids, first, users = np.unique(names, return_index=True, return_inverse=True)
    return stays, user_ids, users[order], {"hospital": hospitals[first], "patient": user_ids}


# ---- counting -----------------------------------------------------------------------------------------------------


class _Reader(ColumnReader):
    """Columns that know their names."""

    @property
    def names(self) -> list[str]:
        return [self._fields[place].name for place in self._kept]


class _Counter(_Reader):
    """Counts (user, item) pairs as they are read.

    A pair is one integer: the user's row above, the code of the item in the lower 32 bits.
    """

    def begin(self, stays: np.ndarray, users: np.ndarray) -> None:
        self._stays, self._users = stays, users
        self.keys = self.counts = np.zeros(0, dtype=np.int64)
        self._pending: list[np.ndarray] = []
        self.first_names: dict[int, int] = {}  # by the code of ingredients, the number of the first name

    def _keep(self, rows: list[np.ndarray]) -> None:
        block = dict(zip(self.names, rows, strict=True))
        stays = np.searchsorted(self._stays, block[_STAY])
        known = self._stays[np.minimum(stays, len(self._stays) - 1)] == block[_STAY]
        if not known.all():
            raise ValueError(
                f"{self._stream_names[-1]}: stay {block[_STAY][np.argmin(known)]} is not in patient; "
                "download the files again"
            )
        codes, counted = self._codes(block)
        self._pending.append((self._users[stays] << 32 | codes)[counted])
        if sum(map(len, self._pending)) >= max(_PENDING, len(self.keys)):
            self.fold()

    def _codes(self, block: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The code of the item of each row, and whether the row counts."""
        if _LAB in block:
            return block[_LAB].astype(np.int64), np.ones(len(block[_LAB]), dtype=bool)
        drugs, ingredients = block[_DRUG].astype(np.int64), block[_INGREDIENTS].astype(np.int64)
        told, named = ingredients >= 0, drugs >= 0
        yes = np.array([text == "Yes" for text in self.texts(_CANCELLED)] + [False])  # the last for none
        counted = (told | named) & ~yes[np.maximum(block[_CANCELLED], -1)]
        found, first = np.unique(ingredients[counted & told & named], return_index=True)
        for code, drug in zip(found.tolist(), drugs[counted & told & named][first].tolist(), strict=True):
            self.first_names.setdefault(code, drug)
        return np.where(told, ingredients, _NAMED + drugs), counted

    def fold(self) -> None:
        keys = np.concatenate([self.keys, *self._pending])
        ones = np.ones(len(keys) - len(self.keys), dtype=np.int64)
        self.keys, self.counts = _add_up(keys, np.concatenate([self.counts, ones]))
        self._pending.clear()

    def texts(self, column: str) -> list[str]:
        """The distinct texts of a column."""
        return list(self._numbering[self._kept[self.names.index(column)]])


def _add_up(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in ascending order, and the sum of the counts of each."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _count(folder: Path, table: str, columns: Sequence[str], stays: np.ndarray, users: np.ndarray) -> _Counter:
    reader = _read(folder, table, (_STAY, *columns), _Counter, stays, users)
    reader.fold()
    return reader


# ---- items --------------------------------------------------------------------------------------------------------


def _name_items(labs: _Counter, drugs: _Counter) -> tuple[np.ndarray, dict[str, np.ndarray], list[dict[int, int]]]:
    """Item ids in order, item features, and by table the column of each code."""
    tests, names, ingredients = labs.texts(_LAB), drugs.texts(_DRUG), drugs.texts(_INGREDIENTS)
    tables: list[dict[int, tuple[str, str, str]]] = [{}, {}]  # by code: id, kind, name
    for code in np.unique(labs.keys & _LOW).tolist():
        tables[0][code] = (f"lab {tests[code]}", "lab", tests[code])
    for code in np.unique(drugs.keys & _LOW).tolist():
        if code >= _NAMED:
            name = names[code - _NAMED].lower()
            tables[1][code] = (f"medication {name}", "medication", name)
        else:
            first = drugs.first_names.get(code)
            tables[1][code] = (f"medication {ingredients[code]}", "medication", "" if first is None else names[first])
    items = {item[0]: item for table in tables for item in reversed(table.values())}
    order = sorted(items)
    column = {item: n for n, item in enumerate(order)}
    features = {name: np.array([items[i][n] for i in order], dtype=np.str_) for n, name in ((1, "kind"), (2, "name"))}
    return np.array(order, dtype=np.str_), features, [{c: column[v[0]] for c, v in t.items()} for t in tables]


def _with_columns(keys: np.ndarray, column_of: dict[int, int]) -> np.ndarray:
    """Pairs of a user and a code as pairs of a user and a column."""
    codes = np.array(sorted(column_of), dtype=np.int64)
    columns = np.array([column_of[code] for code in codes.tolist()], dtype=np.int64)
    return keys & ~_LOW | columns[np.searchsorted(codes, keys & _LOW)] if len(keys) else keys


def _on_list(
    listed: np.ndarray,
    unlisted: str,
    found: np.ndarray,
    keys: np.ndarray,
    counts: np.ndarray,
    features: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Pairs, counts and features on a catalogue that is given."""
    check_choice("unlisted", unlisted, UNLISTED)
    check_kinds("item_ids", listed, found, of="the items")
    places = IdIndex("item", listed).find(found)
    if unlisted == "error" and (absent := np.flatnonzero(places < 0)).size:
        raise ValueError(
            f"item_ids does not list {found[absent[0]].item()!r}, an item of the data ({len(absent)} in all); list it, "
            "or pass unlisted='drop'"
        )
    columns = places[keys & _LOW]
    kept = columns >= 0
    keys, counts = _add_up(keys[kept] & ~_LOW | columns[kept], counts[kept])
    kinds = {"kind": np.array([str(item).partition(" ")[0] for item in listed.tolist()], dtype=np.str_)}
    names = np.zeros(len(listed), dtype=features["name"].dtype)  # empty where nobody had it
    names[places[places >= 0]] = features["name"][places >= 0]
    return keys, counts, kinds | {"name": names}


# ---- files --------------------------------------------------------------------------------------------------------


def _find(folder: Path, table: str) -> Path:
    for name in (f"{table}.csv.gz", f"{table}.csv"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder / table}.csv.gz is missing (or .csv); download the database again")


def _read(folder: Path, table: str, wanted: Sequence[str], kind: Any, *begin: np.ndarray) -> Any:
    """Read these columns of a table to its end."""
    path = _find(folder, table)
    names = table_columns(path)
    for column in wanted:
        if column not in names:
            raise KeyError(f"{path} must have the column {column!r}, got {show_names(names)}")
    fields = [_WANTED[name] if name in wanted else Field(name) for name in names]
    reader = kind(fields, ",", quotes=True)
    if begin:
        reader.begin(*begin)
    with open_text(path) as stream:
        stream.readline()
        reader.read(stream, str(path), first_line=2)
    return reader
