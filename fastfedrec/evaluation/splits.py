"""Splits of each user's interactions: one of each, a random part, folds; what is held out is drawn by a key.

Splits by time are in `temporal_split`, of users in `user_holdout`, and as published in `published_folds`.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.evaluation import splits as _kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.csr import check_indptr, check_integers
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.evaluation._timed_rows import TimedRows

__all__ = ["KFold", "LeaveOneOut", "RandomHoldout", "Split", "Splitter", "hold_out"]


@dataclass(frozen=True, eq=False)
class Split:
    """What a model is fitted on, and what it is tested by.

    It unpacks to train and test, and where there is a part `given`, to train, test and given: who takes a split of new
    users for one of known users is told.

    Parameters
    ----------
    train : Interactions
        To fit a model on.
    test : Interactions
        What the model has not seen.
    given : Interactions or None
        What a model may know of users who are not in `train`, on the axes of `test`.
    """

    train: Interactions
    test: Interactions
    given: Interactions | None = None

    def __iter__(self) -> Iterator[Interactions]:
        yield from (self.train, self.test) if self.given is None else (self.train, self.test, self.given)


class Splitter(ABC):
    """A way to split interactions: a value that compares, and whose `repr` names it in results.

    A subclass is a frozen dataclass, whose fields are its parameters, with a method ``_split(data, key)``.
    """

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        given = ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({given})"

    def split(self, data: InteractionsLike, *, key: Key | None) -> Iterator[Split]:
        """Split some data.

        Parameters
        ----------
        data : Interactions, SciPy matrix or array, or frame
            As `fit` takes them.  Every stored interaction counts, whatever its value: `binarize` first where low
            ratings should not.
        key : Key or None
            Source of every choice; None draws a new entropy key.  What is chosen of a user depends on the key and the
            user's global id, not on other users or on shards, unless the class says so.

        Returns
        -------
        iterator of Split
            One for most; the class says how many.  Ids, features and, but for new users, axes are those of `data`.

        Raises
        ------
        ValueError
            Data that cannot be split so.
        """
        return self._split(as_interactions("data", data), resolve_key(key))

    @abstractmethod
    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        """What `split` returns, of what it has checked; it refuses at once, not when the first split is asked for."""


@dataclass(frozen=True, repr=False)
class LeaveOneOut(Splitter):
    """Hold out one interaction of each user who has at least two; a user with one stays whole in train.

    Parameters
    ----------
    latest : bool
        Hold out the interaction with the greatest timestamp (among equals, the key chooses) instead of a random one.
        Data where the timestamp of a user with at least two interactions is missing are refused.  Each row of a pair
        that was merged from several is an interaction of its own, and the others stay in train; with
        ``duplicates="earliest"`` a pair is its first row, and the newest item of each user is held out.

    See Also
    --------
    RandomHoldout : Holds out a share, or several.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import LeaveOneOut
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "a"], timestamps=[5, 9, 7])
    >>> train, test = next(LeaveOneOut(latest=True).split(data, key=Key.from_seed(1)))
    >>> train
    <Interactions: 2 users x 2 items, 2 interactions>
    >>> test.to_scipy().toarray()
    array([[0., 1.],
           [0., 0.]], dtype=float32)
    """

    latest: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "latest", check_flag("latest", self.latest))

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        rows = TimedRows.of(data) if self.latest else None
        indptr = data.indptr if rows is None else rows.indptr
        lengths = np.diff(indptr)
        tested = np.flatnonzero(lengths >= 2)
        candidates = np.repeat(lengths >= 2, lengths)
        if rows is not None and len(tested):
            times = _known_times(rows, candidates, "latest=True", "of users with at least 2", "use latest=False")
            starts = indptr[:-1][lengths > 0]  # reduceat misreads empty rows
            candidates &= times == np.repeat(np.maximum.reduceat(times, starts), lengths[lengths > 0])
        where = np.flatnonzero(candidates)
        ends = np.concatenate([[0], np.cumsum(candidates)])[indptr]
        words = key.words_by_user("evaluation.leave_one_out", data.global_user_ids[tested], size=1)[:, 0]
        held_out = np.zeros(len(candidates), dtype=bool)
        held_out[where[ends[tested] + _below(words, np.diff(ends)[tested])]] = True
        return iter([_apart(data, held_out) if rows is None else Split(rows.keep(~held_out), rows.keep(held_out))])


@dataclass(frozen=True, repr=False, kw_only=True)
class RandomHoldout(Splitter):
    """Hold out a random share of each user's interactions, or a number of them; at least one always stays in train.

    Parameters
    ----------
    share : float or None
        A user with m interactions gives share * m of them to the test, rounded up or down at random so that the mean
        is exact.  Between 0 and 1, neither included; give it or `n`.
    n : int or None
        A user gives so many to the test, or all but one where there are fewer.  At least 1.
    user_share : float
        The chance of each user to be tested, in (0, 1]; the others stay whole in train.

    See Also
    --------
    LeaveOneOut : Holds out one of each.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import RandomHoldout
    >>> data = Interactions.from_arrays([1, 1, 1, 1, 1, 2], [10, 11, 12, 13, 14, 10])
    >>> train, test = next(RandomHoldout(share=0.4).split(data, key=Key.from_seed(1)))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([3, 1]), array([2, 0]))
    >>> train, test = next(RandomHoldout(n=3).split(data, key=Key.from_seed(1)))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([2, 1]), array([3, 0]))
    """

    share: float | None = None
    n: int | None = None
    user_share: float = 1.0

    def __post_init__(self) -> None:
        set_ = functools.partial(object.__setattr__, self)
        _check_either("share", self.share, "n", self.n)
        if self.share is not None:
            set_("share", check_real("share", self.share, low=0.0, high=1.0, exclusive=True))
        if self.n is not None:
            set_("n", check_integer("n", self.n, low=1))
        user_share = check_real("user_share", self.user_share, low=0.0, high=1.0)
        if user_share == 0:
            raise ValueError("user_share must be greater than 0.0, got 0.0: nobody would be tested")
        set_("user_share", user_share)

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        lengths, users = data.interactions_per_user(), data.global_user_ids
        # The names of the streams are older than the class; other names would be other splits under the same key.
        words = key.words_by_user("evaluation.hold_out_entries.users", users, size=1)[:, 0]
        tested = as_uniform(words) < self.user_share
        if self.share is not None:
            held_out = hold_out(data.indptr, users, self.share, key=key) & np.repeat(tested, lengths)
        else:
            counts = np.where(tested, np.minimum(self.n or 0, np.maximum(lengths - 1, 0)), 0).astype(np.int64)
            held_out = choose_entries(data.indptr, users, counts, key.subkey("evaluation.hold_out_entries"))
        return iter([_apart(data, held_out)])


@dataclass(frozen=True, repr=False)
class KFold(Splitter):
    """Share out each user's interactions over folds, and hold out each fold once.

    Every user's interactions are dealt out in random order, beginning at a random fold: a user with m of them has
    m / n_folds, rounded up or down, in each fold.  The key's streams are of the whole data: other users, or another
    order of them, are other folds.  Data that leave a fold empty are refused.

    Parameters
    ----------
    n_folds : int
        At least 2; `split` yields as many splits.

    See Also
    --------
    RandomHoldout : Holds out one random part.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import KFold
    >>> data = Interactions.from_arrays([1, 1, 1, 2, 2, 2], [10, 11, 12, 10, 11, 12], [5, 3, 4, 1, 2, 2])
    >>> [test.interactions_per_user().tolist() for _, test in KFold(3).split(data, key=Key.from_seed(1))]
    [[1, 1], [1, 1], [1, 1]]
    """

    n_folds: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_folds", check_integer("n_folds", self.n_folds, low=2))

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        lengths = data.interactions_per_user()
        users = np.repeat(np.arange(data.n_users), lengths)
        first = key.words("evaluation.k_fold.first", size=data.n_users) % np.uint64(self.n_folds)
        words = key.words("evaluation.k_fold", size=data.n_interactions)
        place = np.empty(data.n_interactions, dtype=np.int64)
        place[np.lexsort((words, users))] = np.arange(data.n_interactions) - np.repeat(data.indptr[:-1], lengths)
        fold = (place + first.astype(np.int64)[users]) % self.n_folds
        if n_empty := self.n_folds - len(np.unique(fold)):
            raise ValueError(
                f"n_folds={self.n_folds} leaves {n_empty} folds empty, for data has {data.n_interactions} interactions "
                f"of {int((lengths > 0).sum())} users; use fewer folds"
            )
        return (_apart(data, fold == f) for f in range(self.n_folds))


def hold_out(indptr: np.ndarray, global_user_ids: np.ndarray, fraction: float, *, key: Key) -> NDArray[np.bool_]:
    """Choose the entries that `RandomHoldout` holds out of a share, of anything that lies user by user.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's entries begin.
    global_user_ids : ndarray of shape (n_users,), uint64
        Whose streams choose.
    fraction : float
        Between 0 and 1.
    key : Key
        Source of the choice.

    Returns
    -------
    ndarray of shape (indptr[-1],), bool
        True for what is held out; never all entries of a user.
    """
    fraction = check_real("fraction", fraction, low=0.0, high=1.0)
    check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
    indptr = check_indptr("indptr", indptr)
    global_user_ids = check_integers("global_user_ids", global_user_ids, np.uint64)
    if len(global_user_ids) != len(indptr) - 1:
        got = f"{len(global_user_ids)} for {len(indptr) - 1} rows"
        raise ValueError(f"global_user_ids must have one entry for each row of indptr, got {got}")
    counts = _round_at_random("evaluation.random_split.counts", global_user_ids, np.diff(indptr), fraction, key)
    return choose_entries(indptr, global_user_ids, counts, key.subkey("evaluation.random_split"))


# ---- what splits share -----------------------------------------------------------------------------------------------


def _check_either(one: str, first: object, other: str, second: object) -> None:
    """Refuse two arguments of which exactly one must be given."""
    if (first is None) == (second is None):
        raise ValueError(f"give one of {one} and {other}, got {'neither' if first is None else 'both'}")


def _apart(data: Interactions, held_out: np.ndarray) -> Split:
    """What is not held out, and what is."""
    return Split(data.keep_interactions(~held_out), data.keep_interactions(held_out))


def _known_times(rows: TimedRows, needed: np.ndarray, who: str, of: str, remedy: str) -> np.ndarray:
    """All timestamps, of which those needed are known."""
    times = rows.timestamps
    if missing := int((times[needed] == MISSING_TIMESTAMP).sum()):
        raise ValueError(
            f"{who} needs the timestamp of every interaction, but {missing} of {needed.sum()} ({of}) are missing; "
            f"drop those interactions or {remedy}"
        )
    return times


def _below(words: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    # The high half of word x bound, as `stream_below` in _chacha20.pxd; bounds below 2**31.
    bounds = bounds.astype(np.uint64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    return (((words >> half) * bounds + (((words & mask) * bounds) >> half)) >> half).astype(np.int64)


def _round_at_random(purpose: str, users: np.ndarray, lengths: np.ndarray, share: float, key: Key) -> np.ndarray:
    """Share * length of each user, rounded up or down so that the mean is exact, but never all."""
    uniform = as_uniform(key.words_by_user(purpose, users, size=1)[:, 0])
    return np.minimum(np.floor(share * lengths + uniform).astype(np.int64), np.maximum(lengths - 1, 0))


def choose_entries(
    indptr: np.ndarray, users: np.ndarray, counts: np.ndarray, subkey: np.ndarray, n_threads: int = 0
) -> np.ndarray:
    """Draw so many entries of each user's, uniformly, from the user's own stream.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's entries begin.
    users : ndarray of shape (n_users,), uint64
        Global ids.
    counts : ndarray of shape (n_users,), int64
        How many; at most those that there are.
    subkey : ndarray of shape (8,), uint32
        Of the streams, as from `Key.subkey`.
    n_threads : int
        0 for all; the result does not depend on it.

    Returns
    -------
    ndarray of shape (n_entries,), bool
        Which were drawn.

    Raises
    ------
    MemoryError
        No room for a bit a thread for each entry of the longest row.
    """
    chosen = np.zeros(indptr[-1], dtype=np.uint8)
    if chosen.size:
        n_threads = resolve_n_threads(n_threads)
        failed, longest = np.zeros(n_threads, dtype=np.int64), int(np.diff(indptr).max())
        _kernel.choose_interactions(indptr, users, counts, subkey, chosen, failed, longest, n_threads)
        if failed.any():
            raise MemoryError("no memory for a bit a thread for each interaction of the longest row; use fewer threads")
    return chosen.view(bool)
