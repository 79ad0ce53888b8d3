"""The five splits that MovieLens 100K was published with, of its data or of any part of them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.files import Files, refuse
from fastfedrec.datasets.movielens import load_movielens
from fastfedrec.evaluation.splits import Split, Splitter, _apart

__all__ = ["PublishedFolds"]

_N_FOLDS = 5


@dataclass(frozen=True, repr=False)
class PublishedFolds(Splitter):
    """The five splits of MovieLens 100K into 80% train and 20% test: u1.base and u1.test to u5.base and u5.test.

    Nothing is drawn: the splits are the same under every key.

    Parameters
    ----------
    path : str or path-like
        MovieLens 100K: the zip as downloaded, the unpacked folder, or the folder that holds it.

    See Also
    --------
    KFold : Folds of any data.

    Examples
    --------
    >>> from fastfedrec.datasets import load_movielens
    >>> from fastfedrec.evaluation import PublishedFolds
    >>> for train, test in PublishedFolds("ml-100k.zip").split(load_movielens("ml-100k.zip")):  # doctest: +SKIP
    ...     print(train, test)
    """

    path: str

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path must be a str or a path, got {type(self.path).__name__}; name MovieLens 100K's zip")
        object.__setattr__(self, "path", os.fspath(self.path))

    def split(self, data: InteractionsLike, *, key: Key | None = None) -> Iterator[Split]:
        """Split some data.

        Parameters
        ----------
        data : Interactions
            As `datasets.load_movielens` reads them from the same place, or some users, items or ratings of them.
        key : Key or None
            Changes nothing.

        Returns
        -------
        iterator of Split
            Five, on the axes of `data`, whose tests are disjoint.

        Raises
        ------
        FileNotFoundError
            Nothing at `path`, or a file of the folds is missing.
        ValueError
            A malformed file, or a fold that is not one of u.data, of which the file and the line are named; data that
            are not those of `path`, or a fold that has none of them.
        """
        return super().split(data, key=key)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        whole = load_movielens(self.path)
        rows = find_rows("user", whole.user_ids, data.user_ids)
        columns = find_rows("item", whole.item_ids, data.item_ids)
        users, items = np.repeat(rows, data.interactions_per_user()), columns[data.indices]
        place = _find(whole, users, items)
        if n_unknown := int((place < 0).sum()):
            raise ValueError(
                f"data must be MovieLens 100K or a part of it, but {n_unknown} of {data.n_interactions} interactions "
                f"are in no fold of {self.path}; read data by load_movielens from the same place"
            )
        tests = [held_out[place] for held_out in _read_folds(self.path, whole)]
        for number, held_out in enumerate(tests, start=1):
            if held_out.all() or not held_out.any():
                kind = "train" if held_out.all() else "test"
                raise ValueError(f"fold {number} leaves {kind} empty: too few ratings of {self.path} are in data")
        return (_apart(data, held_out) for held_out in tests)


def _find(data: Interactions, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Where the interactions of these rows and columns are stored, or -1."""
    pairs = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    sought = np.where((users >= 0) & (items >= 0), users * data.n_items + items, -1)
    place = np.minimum(np.searchsorted(pairs, sought), len(pairs) - 1)
    return np.where(pairs[place] == sought, place, -1)


def _read_folds(path: str, data: Interactions) -> list[np.ndarray]:
    """Which ratings of all of MovieLens 100K are held out by each fold."""
    files = Files(Path(path), "MovieLens 100K zip")
    folder = next((member.parent for member in files.members if member.name == "u.data"), None)
    if folder is None:
        raise FileNotFoundError(f"path {path!r} holds no u.data; only MovieLens 100K comes with folds")
    folds = []
    for number in range(1, _N_FOLDS + 1):
        test, train = (_read_part(files, folder / f"u{number}.{part}", data) for part in ("test", "base"))
        if n_wrong := int((test == train).sum()):
            raise ValueError(
                f"{files.name(folder / f'u{number}.base')} and u{number}.test must share out u.data, but {n_wrong} of "
                "its ratings are in both or in none; download the data again"
            )
        folds.append(test)
    return folds


def _read_part(files: Files, member: PurePosixPath, data: Interactions) -> np.ndarray:
    """Which interactions of `data` a file lists, with the same ratings."""
    lines = files.read_text(member, "latin-1").split("\n")[:-1]
    fields = [line.split("\t") for line in lines]
    for number, row in enumerate(fields, start=1):
        if len(row) != 4 or not all(field.isascii() and field.isdigit() and len(field) <= 18 for field in row):
            wanted = "user, item, rating and timestamp, separated by tabs"
            refuse(files.name(member), number, f"expected {wanted}, got {lines[number - 1][:80]!r}")
    rows = np.array(fields, dtype=np.int64).reshape(-1, 4)
    place = _find(data, find_rows("user", data.user_ids, rows[:, 0]), find_rows("item", data.item_ids, rows[:, 1]))
    wrong = (place < 0) | (data.values_or_ones()[place] != rows[:, 2])
    if wrong.any():
        number = int(np.flatnonzero(wrong)[0])
        refuse(files.name(member), number + 1, f"this rating is not in u.data: {lines[number][:80]!r}")
    listed = np.zeros(data.n_interactions, dtype=bool)
    listed[place] = True
    return listed
