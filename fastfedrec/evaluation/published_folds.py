"""The five splits that MovieLens 100K was published with, of its data or of any part of them."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.movielens_folds import load_movielens_folds
from fastfedrec.evaluation.splits import Split, Splitter, _apart

__all__ = ["PublishedFolds"]


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
            A malformed file, data that are not those of `path`, or a fold that has none of them.
        """
        return super().split(data, key=key)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        folds = load_movielens_folds(self.path)
        whole = folds[0][0]
        rows = find_rows("user", whole.user_ids, data.user_ids)
        columns = find_rows("item", whole.item_ids, data.item_ids)
        users, items = np.repeat(rows, data.interactions_per_user()), columns[data.indices]
        sought = np.where((users >= 0) & (items >= 0), users * whole.n_items + items, -1)
        tests = [np.isin(sought, _pairs(test)) for _, test in folds]
        if n_unknown := int((~np.any(tests, axis=0)).sum()):
            raise ValueError(
                f"data must be MovieLens 100K or a part of it, but {n_unknown} of {data.n_interactions} interactions "
                f"are in no fold of {self.path}; read data by load_movielens from the same place"
            )
        for number, held_out in enumerate(tests, start=1):
            if held_out.all() or not held_out.any():
                kind = "train" if held_out.all() else "test"
                raise ValueError(f"fold {number} leaves {kind} empty: too few ratings of {self.path} are in data")
        return (_apart(data, held_out) for held_out in tests)


def _pairs(data: Interactions) -> np.ndarray:
    return np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
