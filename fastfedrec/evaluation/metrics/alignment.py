"""Alignment of train, given and test by external ids, for any users, items and order in each."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.data.ids import IdIndex, check_kinds
from fastfedrec.data.interactions import Interactions

__all__ = ["Aligned", "Rows", "align", "count_shared", "take_rows"]

Rows = tuple[np.ndarray, np.ndarray]  # indptr and indices


@dataclass(frozen=True, eq=False)
class Aligned:
    """Test interactions of users who can be ranked, over the items of train."""

    # Items of train: the catalogue.
    item_ids: NDArray[Any]
    # Users with a test interaction, in the order of the test.
    user_ids: NDArray[Any]
    global_user_ids: NDArray[np.uint64]
    # Whether a user's input is the row in `given`; otherwise it is the row in train.
    is_given: NDArray[np.bool_]
    # Test items of each user.
    test: Rows
    # Items in train or given of each user, which are not ranked.
    seen: Rows
    # Values of the test interactions, shape (n_test,).
    values: NDArray[np.float64]
    # Numbers of dropped interactions and users by reason, as in `Evaluation`.
    dropped: dict[str, int]

    @property
    def n_users(self) -> int:
        """Number of tested users."""
        return len(self.user_ids)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of users and items."""
        return len(self.user_ids), len(self.item_ids)

    def keep(self, mask: np.ndarray, reason: str) -> "Aligned":
        """Keep the test interactions of a mask and their users, and count the removed ones under a reason."""
        if mask.all():
            return self
        indptr = np.concatenate([[0], np.cumsum(mask)])[self.test[0]]
        dropped = self.dropped | {reason: self.dropped[reason] + int((~mask).sum())}
        reduced = replace(self, test=(indptr, self.test[1][mask]), values=self.values[mask], dropped=dropped)
        return reduced.take(np.diff(indptr) > 0)

    def take(self, mask: np.ndarray, reason: str | None = None) -> "Aligned":
        """Keep the users of a mask, and count the interactions of the removed ones under a reason."""
        if mask.all():
            return self
        users = np.flatnonzero(mask)
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
    """Align a test with train and given by ids; `keep_seen` also tests interactions in train or given (for ratings)."""
    # Rows and columns are -1 for ids that are not found.
    columns = _find_rows("item", train.item_ids, test.item_ids, "test")
    in_train = _find_rows("user", train.user_ids, test.user_ids, "test")
    in_given = (
        np.full(test.n_users, -1)
        if given is None
        else _find_rows("user", given.user_ids, test.user_ids, "test", "given")
    )
    lengths = test.interactions_per_user()
    owners = np.repeat(np.arange(test.n_users), lengths)
    is_known = (in_train >= 0) | (in_given >= 0)
    has_known_user, has_known_item = is_known[owners], columns[test.indices] >= 0
    mask = has_known_user & has_known_item
    seen = _unite(_rows_of(train, train.item_ids, in_train), _rows_of(given, train.item_ids, in_given))
    is_whole = mask.all() and (columns == np.arange(len(columns))).all()
    # An entry of `tested` is 1 + the position of its interaction in `test`, since sparse arrays drop zeros.
    if is_whole:
        positions = np.arange(1, test.n_interactions + 1)
        tested = scipy.sparse.csr_array((positions, test.indices, test.indptr), shape=seen.shape)
    else:
        tested = _matrix(owners[mask], columns[test.indices[mask]], seen.shape, np.flatnonzero(mask) + 1)
    overlap = seen.multiply(tested).tocsr() if not keep_seen else None
    n_overlap = 0 if overlap is None else overlap.nnz
    if n_overlap:
        tested = (tested - tested.multiply(overlap != 0)).tocsr()
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
        "unknown_users": int((~has_known_user).sum()),
        "unknown_items": int((has_known_user & ~has_known_item).sum()),
        "seen_again": int(n_overlap),
        "users": int((lengths > 0).sum() - len(users)),
    }
    return Aligned(
        train.item_ids, test.user_ids[users], global_ids, has_given, _plain(tested), _plain(seen), values, dropped
    )


def count_shared(aligned: Aligned, data: Interactions) -> int:
    """Return the number of tested interactions that are also in `data`."""
    ids = (data.user_ids, aligned.user_ids), (data.item_ids, aligned.item_ids)
    if not data.n_users or any((known.dtype.kind in "iu") != (tested.dtype.kind in "iu") for known, tested in ids):
        return 0
    rows = _find_rows("user", data.user_ids, aligned.user_ids, "test", "the model")
    known = _rows_of(data, aligned.item_ids, rows, "the model")
    indptr, indices = aligned.test
    tested = scipy.sparse.csr_array((np.ones(len(indices), dtype=np.int8), indices, indptr), shape=aligned.shape)
    return int(known.multiply(tested).nnz)


def take_rows(rows: Rows, users: np.ndarray) -> tuple[np.ndarray, Rows]:
    """Return the positions of the entries of some rows, which ascend, and these rows."""
    indptr, indices = rows
    lengths = np.diff(indptr)[users]
    ends = np.cumsum(lengths)
    entries = np.arange(len(lengths) and ends[-1]) + np.repeat(indptr[users] - (ends - lengths), lengths)
    return entries, (np.concatenate([[0], ends]).astype(np.int64), indices[entries])


def _find_rows(axis: str, known: np.ndarray, ids: np.ndarray, source: str, target: str = "train") -> np.ndarray:
    """Return the position of each id among the known ids, or -1."""
    if known is ids or (known.dtype == ids.dtype and np.array_equal(known, ids)):
        return np.arange(len(known))
    check_kinds(f"{source}'s {axis} ids", ids, known, of=f"{target}'s {axis}s")
    return IdIndex(axis, known).find(ids)


def _rows_of(
    data: Interactions | None, item_ids: np.ndarray, rows: np.ndarray, source: str = "given"
) -> "scipy.sparse.csr_array":
    """Return some rows of the data as a binary matrix over `item_ids`; a row of -1 is empty."""
    if data is None or not data.n_users:
        return _matrix(np.empty(0, int), np.empty(0, int), (len(rows), len(item_ids)), np.empty(0, np.int8))
    columns = _find_rows("item", item_ids, data.item_ids, source)
    if (
        len(rows) == data.n_users
        and (rows == np.arange(len(rows))).all()
        and (columns == np.arange(data.n_items)).all()
    ):
        ones = np.ones(data.n_interactions, dtype=np.int8)
        return scipy.sparse.csr_array((ones, data.indices, data.indptr), shape=(len(rows), len(item_ids)))
    nonempty = np.flatnonzero(rows >= 0)
    part = data._take_users(rows[nonempty])
    owners, items = np.repeat(nonempty, part.interactions_per_user()), columns[part.indices]
    mask = items >= 0
    return _matrix(owners[mask], items[mask], (len(rows), len(item_ids)), np.ones(int(mask.sum()), dtype=np.int8))


def _unite(first: "scipy.sparse.csr_array", second: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array":
    """Return the union of two binary matrices."""
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
