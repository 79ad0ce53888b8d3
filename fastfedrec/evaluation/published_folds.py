"""The five published splits of MovieLens 100K, applied to the data set or to any part of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from fastfedrec.core.calls import explains_calls
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.files import Files, refuse
from fastfedrec.datasets.movielens import load_movielens
from fastfedrec.evaluation.splits import Split, Splitter, _split_by_mask

__all__ = ["PublishedFolds"]

_N_FOLDS = 5


@explains_calls
@dataclass(frozen=True, repr=False)
class PublishedFolds(Splitter):
    """The five splits of MovieLens 100K into 80% train and 20% test: u1.base and u1.test to u5.base and u5.test.

    The splits involve no randomness: they are the same for every key.

    Parameters
    ----------
    path : str or path-like
        Path of MovieLens 100K: the downloaded zip, the unpacked folder, or the folder that holds either.

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
            Ratings that `datasets.load_movielens` reads from the same path, or some of their users, items or ratings.
        key : Key or None
            Ignored.

        Returns
        -------
        iterator of Split
            Five splits with the users and items of `data` and disjoint tests.

        Raises
        ------
        FileNotFoundError
            `path` does not exist, or a file of the folds is missing.
        ValueError
            A file is malformed, or a fold does not partition u.data: the message names the file and the line.  `data`
            has interactions that `path` lacks, or a fold has no interaction of `data` on one side.
        """
        return super().split(data, key=key)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        whole = load_movielens(self.path)
        rows = find_rows("user", whole.user_ids, data.user_ids)
        columns = find_rows("item", whole.item_ids, data.item_ids)
        users, items = np.repeat(rows, data.interactions_per_user()), columns[data.indices]
        positions = _find_positions(whole, users, items)
        if n_unknown := int((positions < 0).sum()):
            raise ValueError(
                f"data must be MovieLens 100K or a part of it, but {n_unknown} of {data.n_interactions} interactions "
                f"are in no fold of {self.path}; read data by load_movielens from the same path"
            )
        tests = [held_out[positions] for held_out in _read_folds(self.path, whole)]
        for number, held_out in enumerate(tests, start=1):
            if held_out.all() or not held_out.any():
                kind = "train" if held_out.all() else "test"
                raise ValueError(
                    f"fold {number} leaves {kind} empty: too few ratings of {self.path} are in data; pass more of them"
                )
        return (_split_by_mask(data, held_out) for held_out in tests)


def _find_positions(data: Interactions, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return the positions of the interactions with these rows and columns, or -1."""
    # A pair is encoded as one integer; stored pairs are sorted by user and item, so a binary search finds them.
    pairs = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    codes = np.where((users >= 0) & (items >= 0), users * data.n_items + items, -1)
    positions = np.minimum(np.searchsorted(pairs, codes), len(pairs) - 1)
    return np.where(pairs[positions] == codes, positions, -1)


def _read_folds(path: str, data: Interactions) -> list[np.ndarray]:
    """Return a mask for each fold of the ratings in MovieLens 100K that it holds out."""
    files = Files(Path(path), "MovieLens 100K zip")
    folder = next((member.parent for member in files.members if member.name == "u.data"), None)
    if folder is None:
        raise FileNotFoundError(f"path {path!r} holds no u.data; use MovieLens 100K, which comes with folds")
    folds = []
    for number in range(1, _N_FOLDS + 1):
        test, train = (_read_part(files, folder / f"u{number}.{part}", data) for part in ("test", "base"))
        # Every rating must be in exactly one of test and train.
        if n_wrong := int((test == train).sum()):
            raise ValueError(
                f"{files.name(folder / f'u{number}.base')} and u{number}.test must partition u.data, but {n_wrong} of "
                "its ratings are in both or in neither; download the data again"
            )
        folds.append(test)
    return folds


def _read_part(files: Files, member: PurePosixPath, data: Interactions) -> np.ndarray:
    """Return a mask of the interactions of `data` that a file lists with the same ratings."""
    lines = files.read_text(member, "latin-1").split("\n")[:-1]
    fields = [line.split("\t") for line in lines]
    for number, row in enumerate(fields, start=1):
        if len(row) != 4 or not all(field.isascii() and field.isdigit() and len(field) <= 18 for field in row):
            expected = "user, item, rating and timestamp, separated by tabs"
            refuse(files.name(member), number, f"expected {expected}, got {lines[number - 1][:80]!r}")
    rows = np.array(fields, dtype=np.int64).reshape(-1, 4)
    users, items = find_rows("user", data.user_ids, rows[:, 0]), find_rows("item", data.item_ids, rows[:, 1])
    positions = _find_positions(data, users, items)
    wrong = (positions < 0) | (data.values_or_ones()[positions] != rows[:, 2])
    if wrong.any():
        number = int(np.flatnonzero(wrong)[0])
        refuse(files.name(member), number + 1, f"this rating is not in u.data: {lines[number][:80]!r}")
    listed = np.zeros(data.n_interactions, dtype=bool)
    listed[positions] = True
    return listed
