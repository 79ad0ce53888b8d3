"""Loader of the eICU Collaborative Research Database: counts of laboratory tests and medicines per patient."""

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
_FIELDS = {name: Field(name, Kind.ID, "a whole number", low=0) for name in (_STAY, _HOSPITAL)}
_FIELDS |= {name: Field(name, Kind.TEXT, "text") for name in (_PATIENT, _LAB)}
_FIELDS |= {name: Field(name, Kind.TEXT, "text", optional=True) for name in (_CANCELLED, _DRUG, _INGREDIENTS)}
_NAMED = 2**30  # first code of medicines without ingredients, which their name identifies
_LOW = 2**32 - 1  # mask of the item's code in a key of a pair
_PENDING = 2**21  # pairs that are counted at once; bounds the memory by the result and not by the file


def load_eicu(
    path: str | os.PathLike[str],
    *,
    rows: str = "patients",
    item_ids: Column | None = None,
    unlisted: str = "error",
) -> Interactions:
    """Load counts of laboratory tests and medicines per patient or stay from the eICU files, demo or full.

    A value is the number of times that a test was made or a medicine was ordered, without cancelled orders.  The
    ingredients (``drughiclseqno``) identify a medicine, or if they are missing its name, regardless of case.  An order
    without ingredients and name is dropped.

    Parameters
    ----------
    path : str or path-like
        Path of the folder with ``patient``, ``medication`` and ``lab``, each as ``.csv.gz`` or ``.csv``.
    rows : {"patients", "stays"}
        Meaning of a user: a patient with all stays in intensive care, or one stay.
    item_ids : array_like of str, or None
        Complete catalogue with ids such as "lab glucose" and "medication 2812", see `Interactions.from_arrays`.  None
        lists the tests and medicines of the data.
    unlisted : {"error", "drop"}
        Treatment of an entry with an item that is not in the catalogue.

    Returns
    -------
    Interactions
        Interactions with counts as values, for every patient or stay of the file, including those without an entry.
        User ids are ``uniquepid`` or ``patientunitstayid``.

        The user feature ``hospital`` is the entity that holds the row.  A patient with several hospitals belongs to the
        hospital of the first stay in the file.  The user feature ``patient`` is the patient of a stay, which is the
        unit that a guarantee must protect.

        Item ids are "lab glucose" or "medication 2812".  The item feature ``kind`` is "lab" or "medication".  The item
        feature ``name`` is the first name in the file, or empty if the file has no name.

    Raises
    ------
    FileNotFoundError
        A missing folder, or a missing file.
    KeyError
        A missing column.
    ValueError
        A malformed file, or a stay that ``patient`` does not list.

    Notes
    -----
    Files are read and counted in blocks, so the memory depends on the number of distinct pairs.

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
        raise FileNotFoundError(f"path {str(folder)!r} is not a folder; pass the folder with patient.csv.gz")
    stays, user_ids, users, features = _read_users(folder, rows)
    labs = _count(folder, "lab", (_LAB,), stays, users)
    drugs = _count(folder, "medication", (_CANCELLED, _DRUG, _INGREDIENTS), stays, users)
    data_ids, item_features, columns = _name_items(labs, drugs)
    # Pairs of both tables get common column numbers before their counts are added.
    keys = np.concatenate([_with_columns(reader.keys, of) for reader, of in zip((labs, drugs), columns, strict=True)])
    keys, counts = _add_up(keys, np.concatenate([labs.counts, drugs.counts]))
    listed = data_ids if item_ids is None else axis_ids("item_ids", item_ids, None)
    if item_ids is not None:
        keys, counts, item_features = _align_with_list(listed, unlisted, data_ids, keys, counts, item_features)
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
    """Return sorted stays, user ids, the user's row of each stay, and user features."""
    reader = _read(folder, "patient", (_STAY, _HOSPITAL, _PATIENT), _Reader)
    columns = dict(zip(reader.names, reader.columns(), strict=True))
    patients: Coded = columns[_PATIENT]
    names = np.array(patients.ids, dtype=np.str_)[patients.numbers]
    order = np.argsort(columns[_STAY], kind="stable")
    stays = columns[_STAY][order].astype(np.int64)
    if (repeated := np.flatnonzero(np.diff(stays) == 0)).size:
        raise ValueError(f"{_find(folder, 'patient')}: stay {stays[repeated[0]]} has a second row; remove one")
    hospitals = columns[_HOSPITAL].astype(np.int64)
    if rows == "stays":
        return stays, stays, np.arange(len(stays)), {"hospital": hospitals[order], "patient": names[order]}
    user_ids, first, users = np.unique(names, return_index=True, return_inverse=True)
    return stays, user_ids, users[order], {"hospital": hospitals[first], "patient": user_ids}


# ---- counting -----------------------------------------------------------------------------------------------------


class _Reader(ColumnReader):
    """Reader of columns with names."""

    @property
    def names(self) -> list[str]:
        return [self._fields[position].name for position in self._read_positions]


class _Counter(_Reader):
    """Reader that counts user-item pairs block by block."""

    # A pair is one integer: the user's row in the upper 32 bits, and the item's code in the lower 32 bits.

    def begin(self, stays: np.ndarray, users: np.ndarray) -> None:
        self._stays, self._users = stays, users
        self.keys = self.counts = np.zeros(0, dtype=np.int64)
        self._pending: list[np.ndarray] = []
        self.first_names: dict[int, int] = {}  # code of ingredients -> number of the first name

    def _add_rows(self, rows: list[np.ndarray]) -> None:
        block = dict(zip(self.names, rows, strict=True))
        # The minimum avoids an index beyond the last stay for unknown larger numbers.
        stays = np.searchsorted(self._stays, block[_STAY])
        known = self._stays[np.minimum(stays, len(self._stays) - 1)] == block[_STAY]
        if not known.all():
            raise ValueError(
                f"{self._stream_names[-1]}: stay {block[_STAY][np.argmin(known)]} is not in patient; "
                "download the files again"
            )
        codes, counted = self._codes(block)
        self._pending.append((self._users[stays] << 32 | codes)[counted])
        # Pending pairs are folded when they outnumber the distinct keys, so the total cost stays near linear.
        if sum(map(len, self._pending)) >= max(_PENDING, len(self.keys)):
            self.fold()

    def _codes(self, block: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the item's code of each row, and a mask of the rows that count."""
        if _LAB in block:
            return block[_LAB].astype(np.int64), np.ones(len(block[_LAB]), dtype=bool)
        drugs, ingredients = block[_DRUG].astype(np.int64), block[_INGREDIENTS].astype(np.int64)
        has_ingredients, has_name = ingredients >= 0, drugs >= 0  # a missing text has a negative number
        is_yes = np.array([text == "Yes" for text in self.texts(_CANCELLED)] + [False])  # the last entry is for no text
        counted = (has_ingredients | has_name) & ~is_yes[np.maximum(block[_CANCELLED], -1)]
        has_both = counted & has_ingredients & has_name
        codes, first = np.unique(ingredients[has_both], return_index=True)
        for code, drug in zip(codes.tolist(), drugs[has_both][first].tolist(), strict=True):
            self.first_names.setdefault(code, drug)
        return np.where(has_ingredients, ingredients, _NAMED + drugs), counted

    def fold(self) -> None:
        keys = np.concatenate([self.keys, *self._pending])
        ones = np.ones(len(keys) - len(self.keys), dtype=np.int64)
        self.keys, self.counts = _add_up(keys, np.concatenate([self.counts, ones]))
        self._pending.clear()

    def texts(self, column: str) -> list[str]:
        """Return the distinct texts of a column."""
        return list(self._numbering[self._read_positions[self.names.index(column)]])


def _add_up(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct keys in ascending order, and the sum of the counts of each key."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    # Keys are at least 0, so the prepended -1 starts the first run.
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts


def _count(folder: Path, table: str, columns: Sequence[str], stays: np.ndarray, users: np.ndarray) -> _Counter:
    reader = _read(folder, table, (_STAY, *columns), _Counter, stays, users)
    reader.fold()
    return reader


# ---- items --------------------------------------------------------------------------------------------------------


def _name_items(labs: _Counter, drugs: _Counter) -> tuple[np.ndarray, dict[str, np.ndarray], list[dict[int, int]]]:
    """Return sorted item ids, item features, and for each table a mapping from codes to columns."""
    tests, names, ingredients = labs.texts(_LAB), drugs.texts(_DRUG), drugs.texts(_INGREDIENTS)
    tables: list[dict[int, tuple[str, str, str]]] = [{}, {}]  # code -> (id, kind, name)
    for code in np.unique(labs.keys & _LOW).tolist():
        tables[0][code] = (f"lab {tests[code]}", "lab", tests[code])
    for code in np.unique(drugs.keys & _LOW).tolist():
        if code >= _NAMED:
            name = names[code - _NAMED].lower()
            tables[1][code] = (f"medication {name}", "medication", name)
        else:
            first = drugs.first_names.get(code)
            tables[1][code] = (f"medication {ingredients[code]}", "medication", "" if first is None else names[first])
    # The reversed order keeps the first name in the file for an item id that several codes share.
    items = {item[0]: item for table in tables for item in reversed(table.values())}
    order = sorted(items)
    column = {item: n for n, item in enumerate(order)}
    features = {name: np.array([items[i][n] for i in order], dtype=np.str_) for n, name in ((1, "kind"), (2, "name"))}
    return np.array(order, dtype=np.str_), features, [{c: column[v[0]] for c, v in t.items()} for t in tables]


def _with_columns(keys: np.ndarray, column_of: dict[int, int]) -> np.ndarray:
    """Replace the item's code by its column in keys of pairs."""
    # A binary search in the sorted codes replaces a slow dict lookup for every pair.
    codes = np.array(sorted(column_of), dtype=np.int64)
    columns = np.array([column_of[code] for code in codes.tolist()], dtype=np.int64)
    return keys & ~_LOW | columns[np.searchsorted(codes, keys & _LOW)] if len(keys) else keys


def _align_with_list(
    listed: np.ndarray,
    unlisted: str,
    data_ids: np.ndarray,
    keys: np.ndarray,
    counts: np.ndarray,
    features: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return pairs, counts and features on a given catalogue."""
    check_choice("unlisted", unlisted, UNLISTED)
    check_kinds("item_ids", listed, data_ids, of="the items")
    list_positions = IdIndex("item", listed).find(data_ids)
    if unlisted == "error" and (absent := np.flatnonzero(list_positions < 0)).size:
        raise ValueError(
            f"item_ids must list all items of the data, but {data_ids[absent[0]].item()!r} is missing "
            f"({len(absent)} in all); add them, or pass unlisted='drop'"
        )
    columns = list_positions[keys & _LOW]
    is_listed = columns >= 0
    keys, counts = _add_up(keys[is_listed] & ~_LOW | columns[is_listed], counts[is_listed])
    kinds = {"kind": np.array([str(item).partition(" ")[0] for item in listed.tolist()], dtype=np.str_)}
    names = np.zeros(len(listed), dtype=features["name"].dtype)  # empty for items without an entry
    names[list_positions[list_positions >= 0]] = features["name"][list_positions >= 0]
    return keys, counts, kinds | {"name": names}


# ---- files --------------------------------------------------------------------------------------------------------


def _find(folder: Path, table: str) -> Path:
    for name in (f"{table}.csv.gz", f"{table}.csv"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder / table}.csv.gz (or .csv) is missing; download the database again")


def _read(folder: Path, table: str, columns: Sequence[str], kind: Any, *begin: np.ndarray) -> Any:
    """Read columns of a table with a reader of type `kind`."""
    path = _find(folder, table)
    names = table_columns(path)
    for column in columns:
        if column not in names:
            raise KeyError(f"{path} must have the column {column!r}, got {show_names(names)}")
    fields = [_FIELDS[name] if name in columns else Field(name) for name in names]
    reader = kind(fields, ",", quotes=True)
    if begin:
        reader.begin(*begin)
    with open_text(path) as stream:
        stream.readline()
        reader.read(stream, str(path), first_line=2)
    return reader
