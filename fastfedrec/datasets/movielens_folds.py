"""The five splits that MovieLens 100K comes with: u1.base and u1.test to u5.base and u5.test."""

import os
from collections.abc import Hashable, Sequence
from pathlib import PurePosixPath

import numpy as np

from fastfedrec.core.files import check_path
from fastfedrec.data.ids import find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.files import Files, refuse
from fastfedrec.datasets.movielens import load_movielens

__all__ = ["N_FOLDS", "load_movielens_folds"]

N_FOLDS = 5


def load_movielens_folds(
    path: str | os.PathLike[str],
    *,
    item_ids: str | Sequence[Hashable] | np.ndarray | None = None,
    unlisted: str = "error",
) -> list[tuple[Interactions, Interactions]]:
    """Read MovieLens 100K in the five published splits into 80% train and 20% test, whose tests are disjoint.

    Parameters
    ----------
    path : str or path-like
        The zip as downloaded, the unpacked folder, or the folder that holds it.
    item_ids : "published", array_like or None
        As of `load_movielens`.
    unlisted : {"error", "drop"}
        As of `load_movielens`; a rating that is dropped is in neither part of a split.

    Returns
    -------
    list of tuple of Interactions
        Five pairs (train, test), each pair on the axes and with the features of `load_movielens`, whose ratings it
        holds exactly once.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`, or a member file is missing, as in every other MovieLens set.
    ValueError
        A malformed file, or a split that is not one of u.data; the file and the line are named.

    References
    ----------
    .. [1] F. M. Harper and J. A. Konstan, "The MovieLens datasets: history and context", ACM Transactions on
       Interactive Intelligent Systems 5(4), 2015.

    Examples
    --------
    >>> from fastfedrec.datasets import load_movielens_folds
    >>> train, test = load_movielens_folds("ml-100k.zip")[0]  # doctest: +SKIP
    >>> test  # doctest: +SKIP
    <Interactions: 943 users x 1,682 items, 20,000 interactions with values>
    """
    files = Files(check_path("path", path), "MovieLens 100K zip")
    data = load_movielens(path, item_ids=item_ids, unlisted=unlisted)
    folder = next((member.parent for member in files.members if member.name == "u.data"), None)
    if folder is None:
        raise FileNotFoundError(f"path {str(path)!r} holds no u.data; only MovieLens 100K comes with folds")
    if not data.n_interactions:
        raise ValueError(f"item_ids lists no movie that is rated in {str(path)!r}; list some of them")
    pairs = np.repeat(np.arange(data.n_users), data.interactions_per_user()) * data.n_items + data.indices
    dropped, folds = unlisted == "drop", []
    for number in range(1, N_FOLDS + 1):
        test = _places(files, folder / f"u{number}.test", data, pairs, dropped)
        train = _places(files, folder / f"u{number}.base", data, pairs, dropped)
        if (test == train).any():
            n_wrong = int((test == train).sum())
            raise ValueError(
                f"{files.name(folder / f'u{number}.base')} and u{number}.test must share out u.data, but {n_wrong} of "
                "its ratings are in both or in none; download the data again"
            )
        folds.append((data.keep_interactions(train), data.keep_interactions(test)))
    return folds


def _places(files: Files, member: PurePosixPath, data: Interactions, pairs: np.ndarray, dropped: bool) -> np.ndarray:
    """Which interactions of `data` a file lists, with the same ratings."""
    listed = np.zeros(data.n_interactions, dtype=bool)
    lines = files.read_text(member, "latin-1").split("\n")[:-1]
    fields = [line.split("\t") for line in lines]
    for number, row in enumerate(fields, start=1):
        if len(row) != 4 or not all(field.isascii() and field.isdigit() and len(field) <= 18 for field in row):
            wanted = "user, item, rating and timestamp, separated by tabs"
            refuse(files.name(member), number, f"expected {wanted}, got {lines[number - 1][:80]!r}")
    rows = np.array(fields, dtype=np.int64).reshape(-1, 4)
    users, items = (find_rows(*of) for of in (("user", data.user_ids, rows[:, 0]), ("item", data.item_ids, rows[:, 1])))
    numbers = np.flatnonzero((items >= 0) | (not dropped))  # what was dropped there is dropped here
    users, items, rows = users[numbers], items[numbers], rows[numbers]
    sought = np.where((users >= 0) & (items >= 0), users * data.n_items + items, -1)
    place = np.minimum(np.searchsorted(pairs, sought), len(pairs) - 1)
    wrong = (pairs[place] != sought) | (data.values_or_ones()[place] != rows[:, 2])
    if wrong.any():
        number = int(numbers[np.flatnonzero(wrong)[0]])
        refuse(files.name(member), number + 1, f"this rating is not in u.data: {lines[number][:80]!r}")
    listed[place] = True
    return listed
