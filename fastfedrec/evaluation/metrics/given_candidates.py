"""Candidates that the caller gives for each user, such as the test.negative files of NCF's authors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.ids import column_array, id_at, join_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, _find_rows, _matrix, _plain, _rows_of, take_rows

__all__ = ["CandidateLists", "GivenItems", "as_candidates"]

#: Item ids by user id, a sequence with the item ids of each user of the test, or data as for `fit`.
CandidateLists: TypeAlias = Mapping[Any, Iterable[Any]] | Sequence[Iterable[Any]] | InteractionsLike


def as_candidates(candidates: CandidateLists, test: Interactions) -> Interactions:
    """Return given candidates as interactions; a sequence has an entry for each user of the test, in their order."""
    if isinstance(candidates, Mapping):
        users, lists = list(candidates), list(candidates.values())
    elif isinstance(candidates, Sequence | np.ndarray) and not isinstance(candidates, str | bytes):
        if len(candidates) != test.n_users:
            raise ValueError(
                f"candidates must have a list for each user of the test, {test.n_users}, got {len(candidates)}; pass a "
                "dict of user ids to lists"
            )
        users, lists = [id_at(test.user_ids, row) for row in range(test.n_users)], list(candidates)
    elif isinstance(candidates, int | str):
        raise TypeError(
            f"candidates must be Sampled, or item ids of each user, got {candidates!r}; use Sampled(99), or "
            "read_test_negatives(path)"
        )
    else:
        return as_interactions("candidates", candidates)
    columns = []
    for user, of_user in zip(users, lists, strict=True):
        is_column = isinstance(of_user, Iterable) and getattr(of_user, "ndim", 1) == 1
        if isinstance(of_user, str | bytes) or not is_column:
            raise TypeError(f"candidates of user {user!r} must be a sequence of item ids, got {of_user!r}; pass a list")
        columns.append(column_array(f"candidates of user {user!r}", of_user))
    # Repeated candidates of a user count once.
    listed = [user for user, items in zip(users, columns, strict=True) for _ in range(len(items))]
    return Interactions.from_arrays(listed, join_ids(columns), duplicates="max")


class GivenItems:
    """Given candidates of the tested users: `CandidateItems` of `sampled_ranking`, without seen and test items."""

    def __init__(self, candidates: Interactions, aligned: Aligned):
        rows = _find_rows("user", candidates.user_ids, aligned.user_ids, "test", "candidates")
        is_listed = rows >= 0
        is_listed[is_listed] = candidates.interactions_per_user()[rows[is_listed]] > 0
        if missing := np.flatnonzero(~is_listed).tolist():
            raise ValueError(
                f"candidates must list an item for each tested user, but {len(missing)} of {aligned.n_users} have "
                f"none, the first {id_at(aligned.user_ids, missing[0])!r}; add them, or remove them from the test"
            )
        listed = _rows_of(candidates, aligned.item_ids, rows, "candidates")
        n_given = int(candidates.interactions_per_user()[rows].sum())
        seen, test = (
            _matrix(
                np.repeat(np.arange(aligned.n_users), np.diff(indptr)),
                indices,
                aligned.shape,
                np.ones(len(indices), np.int8),
            )
            for indptr, indices in (aligned.seen, aligned.test)
        )
        n_unknown, n_seen = n_given - listed.nnz, listed.multiply(seen).nnz
        if n_unknown or n_seen:
            warn(
                f"{n_unknown + n_seen:,} of {n_given:,} candidates are not ranked: {n_unknown:,} are items outside "
                f"train, and {n_seen:,} are in train or given of their user",
                UserWarning,
            )
        ranked = (listed - listed.multiply(seen + test)).tocsr()
        ranked.eliminate_zeros()
        self.rows = _plain(ranked)
        self.lengths = np.diff(self.rows[0])

    def __str__(self) -> str:
        low, high = int(self.lengths.min()), int(self.lengths.max())
        return f"{low if low == high else f'{low} to {high}'} given candidates"

    def take(self, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidates of some users, (n_users, n) padded by -1, and their numbers."""
        _, (indptr, indices) = take_rows(self.rows, users)
        counts = np.diff(indptr)
        items = np.full((len(users), int(counts.max(initial=0))), -1, dtype=np.int32)
        rows = np.repeat(np.arange(len(users)), counts)
        items[rows, np.arange(len(indices)) - indptr[rows]] = indices
        return items, counts
