"""Train, given and test on one set of axes: by ids, whatever users, items and order each has."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.data.ids import IdIndex, check_kinds
from fastfedrec.data.interactions import Interactions

__all__ = ["Aligned", "Rows", "align", "take_rows"]

Rows = tuple[np.ndarray, np.ndarray]  # indptr and indices


@dataclass(frozen=True, eq=False)
class Aligned:
    """Test interactions of users who can be ranked, over the items of train.

    Parameters
    ----------
    item_ids : ndarray of shape (n_items,)
        Those of train.
    user_ids, global_user_ids : ndarray of shape (n_users,)
        Users with a test interaction, in the order of the test.
    is_given : ndarray of shape (n_users,), bool
        Who is ranked by what is given; the others are by what they have in train.
    test, seen : (indptr, indices)
        Rows of these users: what is tested, and what is not ranked because it is in train or given.
    values : ndarray of shape (n_test,), float64
        Of the test interactions.
    dropped : dict of str to int
        As `Evaluation` has it.
    """

    item_ids: NDArray[Any]
    user_ids: NDArray[Any]
    global_user_ids: NDArray[np.uint64]
    is_given: NDArray[np.bool_]
    test: Rows
    seen: Rows
    values: NDArray[np.float64]
    dropped: dict[str, int]

    @property
    def n_users(self) -> int:
        """How many are tested."""
        return len(self.user_ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Users and items."""
        return len(self.user_ids), len(self.item_ids)

    def keep(self, kept: np.ndarray, reason: str) -> "Aligned":
        """These test interactions alone, by a mask, and their users; the others are counted as dropped for a reason."""
        if kept.all():
            return self
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.test[0]]
        dropped = self.dropped | {reason: self.dropped[reason] + int((~kept).sum())}
        left = replace(self, test=(indptr, self.test[1][kept]), values=self.values[kept], dropped=dropped)
        return left.take(np.diff(indptr) > 0)

    def take(self, kept: np.ndarray, reason: str | None = None) -> "Aligned":
        """These users alone, by a mask; the interactions of others are counted as dropped for a reason."""
        if kept.all():
            return self
        users = np.flatnonzero(kept)
        entries, test = take_rows(self.test, users)
        counts = {reason: len(self.values) - len(entries), "users": self.n_users - len(users)}
        return replace(
            self,
            user_ids=self.user_ids[users],
            global_user_ids=self.global_user_ids[users],
            is_given=self.is_given[users],
            test=test,
            seen=take_rows(self.seen, users)[1],
            values=self.values[entries],
            dropped={name: n + counts.get(name, 0) for name, n in self.dropped.items()},
        )


def align(train: Interactions, test: Interactions, given: Interactions | None, *, keep_seen: bool = False) -> Aligned:
    """Find users and items of a test in train and in what is given.

    Parameters
    ----------
    train, test : Interactions
        Of any users and items, in any order.
    given : Interactions or None
        What is known of some users; who is in it is ranked by it, whatever train has.
    keep_seen : bool
        Whether interactions that are in train or given too are tested: of ratings, not of rankings.

    Returns
    -------
    Aligned
        It may be of nobody.

    Raises
    ------
    TypeError
        Ids of two types, none of which can equal another.
    """
    columns = _find("item", train.item_ids, test.item_ids, "test")
    in_train = _find("user", train.user_ids, test.user_ids, "test")
    in_given = (
        np.full(test.n_users, -1) if given is None else _find("user", given.user_ids, test.user_ids, "test", "given")
    )
    lengths = test.interactions_per_user()
    owners = np.repeat(np.arange(test.n_users), lengths)
    is_known = (in_train >= 0) | (in_given >= 0)
    of_known, of_items = is_known[owners], columns[test.indices] >= 0
    kept = of_known & of_items
    seen = _stack(_rows_of(train, train.item_ids, in_train), _rows_of(given, train.item_ids, in_given))
    is_whole = kept.all() and (columns == np.arange(len(columns))).all()
    if is_whole:
        places = np.arange(1, test.n_interactions + 1)
        tested = scipy.sparse.csr_array((places, test.indices, test.indptr), shape=seen.shape)
    else:
        tested = _matrix(owners[kept], columns[test.indices[kept]], seen.shape, np.flatnonzero(kept) + 1)
    again = seen.multiply(tested).tocsr() if not keep_seen else None
    n_again = 0 if again is None else again.nnz
    if n_again:
        tested = (tested - tested.multiply(again != 0)).tocsr()
        tested.eliminate_zeros()
        tested.sort_indices()
    users = np.flatnonzero(np.diff(tested.indptr))
    if len(users) < test.n_users:
        tested, seen = tested[users], seen[users]
    has_given = in_given[users] >= 0
    global_ids = train.global_user_ids[in_train[users]] if train.n_users else np.zeros(len(users), dtype=np.uint64)
    if given is not None and given.n_users:
        global_ids = np.where(has_given, given.global_user_ids[in_given[users]], global_ids)
    values = test.values_or_ones()[tested.data - 1]
    dropped = {
        "unknown_users": int((~of_known).sum()),
        "unknown_items": int((of_known & ~of_items).sum()),
        "seen_again": int(n_again),
        "users": int((lengths > 0).sum() - len(users)),
    }
    return Aligned(
        train.item_ids, test.user_ids[users], global_ids, has_given, _plain(tested), _plain(seen), values, dropped
    )


def take_rows(rows: Rows, users: np.ndarray) -> tuple[np.ndarray, Rows]:
    """Some rows, ascending, and the places of their entries."""
    indptr, indices = rows
    lengths = np.diff(indptr)[users]
    ends = np.cumsum(lengths)
    entries = np.arange(len(lengths) and ends[-1]) + np.repeat(indptr[users] - (ends - lengths), lengths)
    return entries, (np.concatenate([[0], ends]).astype(np.int64), indices[entries])


def _find(axis: str, known: np.ndarray, wanted: np.ndarray, whose: str, among: str = "train") -> np.ndarray:
    """The place of each id among those that are known, or -1."""
    if known is wanted or (known.dtype == wanted.dtype and np.array_equal(known, wanted)):
        return np.arange(len(known))
    check_kinds(f"{whose}'s {axis} ids", wanted, known, of=f"{among}'s {axis}s")
    return IdIndex(axis, known).find(wanted)


def _rows_of(data: Interactions | None, item_ids: np.ndarray, rows: np.ndarray) -> "scipy.sparse.csr_array":
    """Ones at the items of these rows of some data, over these items; a row of -1 is empty."""
    if data is None or not data.n_users:
        return _matrix(np.empty(0, int), np.empty(0, int), (len(rows), len(item_ids)), np.empty(0, np.int8))
    columns = _find("item", item_ids, data.item_ids, "given")
    if (
        len(rows) == data.n_users
        and (rows == np.arange(len(rows))).all()
        and (columns == np.arange(data.n_items)).all()
    ):
        ones = np.ones(data.n_interactions, dtype=np.int8)
        return scipy.sparse.csr_array((ones, data.indices, data.indptr), shape=(len(rows), len(item_ids)))
    found = np.flatnonzero(rows >= 0)
    part = data._take_users(rows[found])
    owners, places = np.repeat(found, part.interactions_per_user()), columns[part.indices]
    kept = places >= 0
    return _matrix(owners[kept], places[kept], (len(rows), len(item_ids)), np.ones(int(kept.sum()), dtype=np.int8))


def _stack(first: "scipy.sparse.csr_array", second: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array":
    """What either has."""
    return first if not second.nnz else ((first + second) != 0).astype(np.int8)


def _matrix(
    rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int], data: np.ndarray
) -> "scipy.sparse.csr_array":
    matrix = scipy.sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sort_indices()
    return matrix


def _plain(matrix: "scipy.sparse.csr_array") -> Rows:
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
