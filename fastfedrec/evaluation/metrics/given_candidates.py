"""Candidates that the caller gives for each user, such as the test.negative files of NCF's authors."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.metrics.alignment import Aligned, _find_rows, _matrix, _plain, _rows_of, take_rows

__all__ = ["CandidateLists", "GivenItems", "as_candidates", "read_test_negatives"]

#: Item ids by user id, a sequence with the item ids of each user of the test, or data as for `fit`.
CandidateLists: TypeAlias = Mapping[Any, Iterable[Any]] | Sequence[Iterable[Any]] | InteractionsLike

# The first field of a line, such as "(0,25)": the user and the test item.
_PAIR = re.compile(r"\((\d{1,18}), ?(\d{1,18})\)")


def read_test_negatives(path: str | Path) -> dict[int, NDArray[np.int64]]:
    r"""Read a test.negative file, in the format of NCF's data sets.

    Parameters
    ----------
    path : str or Path
        File of lines with fields that are separated by tabs.  The first field is "(user,item)" with the test item, and
        each further field is an item that the test item is ranked against.

    Returns
    -------
    dict of int to ndarray of int64
        Candidates of each user, without the test item.

    Raises
    ------
    ValueError
        The file is empty, a line has another format, or a user has two lines.

    References
    ----------
    .. [1] He et al., "Neural collaborative filtering", WWW 2017.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fastfedrec.evaluation import read_test_negatives
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ml-1m.test.negative"
    ...     _ = path.write_text("(0,25)\t1064\t174\n(1,133)\t1072\t3154\n")
    ...     read_test_negatives(path)
    {0: array([1064,  174]), 1: array([1072, 3154])}
    """
    candidates: dict[int, NDArray[np.int64]] = {}
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            pair, *items = line.rstrip().split("\t")
            match = _PAIR.fullmatch(pair)
            if match is None or not all(re.fullmatch(r"\d{1,18}", item) for item in items):
                raise ValueError(
                    f"{path}, line {number}, must be '(user,item)' and items, separated by tabs, got {line[:60]!r}; "
                    "for other formats pass candidates as a dict or a frame"
                )
            if int(match[1]) in candidates:
                raise ValueError(f"{path}, line {number}, must be of a new user, got user {match[1]} twice; remove one")
            candidates[int(match[1])] = np.array(items, dtype=np.int64)
    if not candidates:
        raise ValueError(f"{path} must hold a line for each user, got none; is it the right file?")
    return candidates


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
    items: list[Any] = []
    lengths = []
    for user, of_user in zip(users, lists, strict=True):
        if isinstance(of_user, str | bytes) or not isinstance(of_user, Iterable):
            raise TypeError(f"candidates of user {user!r} must be a sequence of item ids, got {of_user!r}; pass a list")
        entries = of_user.tolist() if isinstance(of_user, np.ndarray) else list(of_user)
        items += entries
        lengths.append(len(entries))
    # Repeated candidates of a user count once.
    listed = [user for user, length in zip(users, lengths, strict=True) for _ in range(length)]
    return Interactions.from_arrays(listed, items, duplicates="max")


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
