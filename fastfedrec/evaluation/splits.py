"""Splits of each user's interactions into train and test: leave one out, random holdout and k folds.

A key determines the held-out interactions.  `temporal_split` splits by time, `user_holdout` splits users, and
`published_folds` reads published splits.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.evaluation import splits as _kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.calls import explains_calls
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
    """Train, test and optional given part of a data set.

    It unpacks to train and test, or to train, test and given if `given` is not None.  Code that unpacks two parts thus
    fails on a split of new users, instead of ignoring `given`.

    Parameters
    ----------
    train : Interactions
        Interactions that fit a model.
    test : Interactions
        Held-out interactions that test the model.
    given : Interactions or None
        Interactions of users outside `train` that a model may use, with the users and items of `test`.
    """

    train: Interactions
    test: Interactions
    given: Interactions | None = None

    def __iter__(self) -> Iterator[Interactions]:
        yield from (self.train, self.test) if self.given is None else (self.train, self.test, self.given)


class _Splits(Iterator[Split]):
    """The splits of some data, with a remedy for code that takes the iterator for its first split."""

    def __init__(self, splits: Iterator[Split]) -> None:
        self._splits = splits

    def __next__(self) -> Split:
        return next(self._splits)

    def __getattr__(self, name: str) -> Any:
        remedy = ""
        if name in {field.name for field in fields(Split)}:
            remedy = "; split() returns an iterator: take a split by next(splitter.split(data, key=key))"
        raise AttributeError(f"the splits of split() have no attribute {name!r}{remedy}")


class Splitter(ABC):
    """Base class of splits: values that compare by their parameters and name themselves in results by `repr`.

    A subclass is a frozen dataclass with its parameters as fields and a method ``_split(data, key)``.  Its name omits
    parameters that are None, and those with ``repr=False`` at their default.
    """

    def __repr__(self) -> str:
        parameters = [(of, getattr(self, of.name)) for of in fields(self)]  # type: ignore[arg-type]
        values = {of.name: value for of, value in parameters if of.repr or value != of.default}
        given = ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({given})"

    @explains_calls
    def split(self, data: InteractionsLike, *, key: Key | None) -> Iterator[Split]:
        """Split the data into train and test.

        Parameters
        ----------
        data : Interactions, SciPy matrix or array, or frame
            Data as for `fit`.  Every stored interaction counts, regardless of its value; call `binarize` first to
            exclude low ratings.
        key : Key or None
            Random key of the split; None draws a new entropy key.  The choice for a user depends on the key and the
            user's global id, not on other users or on shards, unless the class states otherwise.

        Returns
        -------
        iterator of Split
            One split, unless the class states another number.  Ids and features are the same as in `data`, and so are
            the users and items, unless the class splits users.

        Raises
        ------
        ValueError
            The data cannot be split this way.
        """
        return _Splits(self._split(as_interactions("data", data), resolve_key(key)))

    @abstractmethod
    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        """Return the splits of checked data; errors are raised at the call, not at the first iteration."""


@explains_calls
@dataclass(frozen=True, repr=False)
class LeaveOneOut(Splitter):
    """Hold out one interaction of each user who has at least two; a user with one has it in train.

    Parameters
    ----------
    latest : bool
        Hold out the interaction with the latest timestamp instead of a random one; among equal timestamps, the key
        chooses.  Timestamps of users with at least two interactions must not be missing.  Each original row of a merged
        user-item pair is a separate interaction, so the pair's other rows stay in train.  With
        ``duplicates="earliest"`` a pair is its first row, and the newest item of each user is held out.

    See Also
    --------
    RandomHoldout : Holds out a share of each user's interactions, or a number of them.

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
            times = _check_times(rows, candidates, "latest=True", "of users with at least 2", "use latest=False")
            starts = indptr[:-1][lengths > 0]  # reduceat misreads empty rows
            candidates &= times == np.repeat(np.maximum.reduceat(times, starts), lengths[lengths > 0])
        positions = np.flatnonzero(candidates)
        ends = np.concatenate([[0], np.cumsum(candidates)])[indptr]
        words = key.words_by_user("evaluation.leave_one_out", data.global_user_ids[tested], size=1)[:, 0]
        held_out = np.zeros(len(candidates), dtype=bool)
        held_out[positions[ends[tested] + _below(words, np.diff(ends)[tested])]] = True
        if rows is None:
            return iter([_split_by_mask(data, held_out)])
        return iter([Split(rows.keep(~held_out), rows.keep(held_out))])


@explains_calls
@dataclass(frozen=True, repr=False, kw_only=True)
class RandomHoldout(Splitter):
    """Hold out a share of each user's interactions, or a number of them; at least one always stays in train.

    Parameters
    ----------
    share : float or None
        Share of each user's interactions in the test, in (0, 1).  For a user with m interactions, share * m is rounded
        up or down at random so that the mean is exact.  Give either `share` or `n`.
    n : int or None
        Number of each user's interactions in the test, at least 1; at most all but one of the user's interactions.
    user_share : float
        Probability that a user is tested, in (0, 1].  All interactions of untested users are in train.
    latest : bool
        Hold out the interactions with the latest timestamps instead of random ones; among equal timestamps, the key
        chooses.  ``RandomHoldout(n=5, latest=True)`` tests the last five of each user.  Timestamps of users with at
        least two interactions must not be missing.  Each original row of a merged user-item pair is a separate
        interaction.

    See Also
    --------
    LeaveOneOut : Holds out one interaction of each user.
    TemporalSplit : Holds out all interactions from one moment on, the same for all users.

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
    >>> timed = Interactions.from_arrays([1, 1, 1, 1], [10, 11, 12, 13], timestamps=[4, 9, 1, 8])
    >>> next(RandomHoldout(n=2, latest=True).split(timed, key=Key.from_seed(1))).test.timestamps
    array([9, 8])
    """

    share: float | None = None
    n: int | None = None
    user_share: float = 1.0
    latest: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        set_ = functools.partial(object.__setattr__, self)
        _check_either("share", self.share, "n", self.n)
        if self.share is not None:
            set_("share", check_real("share", self.share, low=0.0, high=1.0, exclusive=True))
        if self.n is not None:
            set_("n", check_integer("n", self.n, low=1))
        user_share = check_real("user_share", self.user_share, low=0.0, high=1.0)
        if user_share == 0:
            raise ValueError("user_share must be greater than 0.0, got 0.0; at 0.0 no user would be tested")
        set_("user_share", user_share)
        set_("latest", check_flag("latest", self.latest))

    def _split(self, data: Interactions, key: Key) -> Iterator[Split]:
        rows = TimedRows.of(data) if self.latest else None
        indptr, users = data.indptr if rows is None else rows.indptr, data.global_user_ids
        lengths = np.diff(indptr)
        if rows is not None:
            # All users are checked, so that the key does not decide whether data are refused.
            _check_times(
                rows, np.repeat(lengths >= 2, lengths), "latest=True", "of users with at least 2", "use latest=False"
            )
        # The purpose `evaluation.hold_out_entries` differs from the class name; renaming it would change every split.
        words = key.words_by_user("evaluation.hold_out_entries.users", users, size=1)[:, 0]
        tested = as_uniform(words) < self.user_share
        if self.share is not None:
            purpose = "evaluation.random_split"
            counts = _round_at_random(f"{purpose}.counts", users, lengths, self.share, key)
        else:
            purpose = "evaluation.hold_out_entries"
            counts = np.minimum(self.n or 0, np.maximum(lengths - 1, 0)).astype(np.int64)
        counts[~tested] = 0
        if rows is not None:
            held_out = rows.latest(users, counts, purpose, key)
            return iter([Split(rows.keep(~held_out), rows.keep(held_out))])
        return iter([_split_by_mask(data, choose_entries(indptr, users, counts, key.subkey(purpose)))])


@explains_calls
@dataclass(frozen=True, repr=False)
class KFold(Splitter):
    """Partition each user's interactions into folds, and hold out each fold once.

    Each user's interactions are assigned to folds cyclically, in random order and from a random first fold: a user with
    m of them has m / n_folds, rounded up or down, in each fold.  The random streams cover the whole data set: with
    other users, or another order of users, the folds differ.  Data that leave a fold empty are refused.

    Parameters
    ----------
    n_folds : int
        Number of folds, and of splits that `split` yields; at least 2.

    See Also
    --------
    RandomHoldout : Holds out one random part of each user's interactions.

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
        # The position of each interaction in a random order of its user's interactions.
        position = np.empty(data.n_interactions, dtype=np.int64)
        position[np.lexsort((words, users))] = np.arange(data.n_interactions) - np.repeat(data.indptr[:-1], lengths)
        fold = (position + first.astype(np.int64)[users]) % self.n_folds
        if n_empty := self.n_folds - len(np.unique(fold)):
            raise ValueError(
                f"n_folds={self.n_folds} leaves {n_empty} folds empty, for data has {data.n_interactions} interactions "
                f"of {int((lengths > 0).sum())} users; use fewer folds"
            )
        return (_split_by_mask(data, fold == f) for f in range(self.n_folds))


def hold_out(indptr: np.ndarray, global_user_ids: np.ndarray, fraction: float, *, key: Key) -> NDArray[np.bool_]:
    """Choose the entries that ``RandomHoldout(share=fraction)`` holds out, for any entries that are sorted by user.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Start of each user's entries, and the number of entries.
    global_user_ids : ndarray of shape (n_users,), uint64
        Global ids; each selects the user's random stream.
    fraction : float
        Share of each user's entries, in [0, 1].
    key : Key
        Random key of the choice.

    Returns
    -------
    ndarray of shape (indptr[-1],), bool
        True for held-out entries; at least one entry of each user is False.
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


# ---- helpers of several splits ---------------------------------------------------------------------------------------


def _check_either(first_name: str, first: object, second_name: str, second: object) -> None:
    """Check that exactly one of two arguments is given."""
    if (first is None) == (second is None):
        raise ValueError(f"give one of {first_name} and {second_name}, got {'neither' if first is None else 'both'}")


def _split_by_mask(data: Interactions, held_out: np.ndarray) -> Split:
    """Return the split with the interactions of a mask as test and all other interactions as train."""
    return Split(data.keep_interactions(~held_out), data.keep_interactions(held_out))


def _check_times(rows: TimedRows, needed: np.ndarray, caller: str, group: str, remedy: str) -> np.ndarray:
    """Return all timestamps after a check that none of the needed ones is missing."""
    times = rows.timestamps
    if missing := int((times[needed] == MISSING_TIMESTAMP).sum()):
        raise ValueError(
            f"{caller} needs the timestamp of every interaction, but {missing} of {needed.sum()} ({group}) are "
            f"missing; drop those interactions or {remedy}"
        )
    return times


def _below(words: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return integers below the bounds, uniform up to bound / 2**64, from random 64-bit words."""
    # The high 64 bits of word x bound, as `stream_below` in _chacha20.pxd; bounds are below 2**31.
    bounds = bounds.astype(np.uint64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    return (((words >> half) * bounds + (((words & mask) * bounds) >> half)) >> half).astype(np.int64)


def _round_at_random(purpose: str, users: np.ndarray, lengths: np.ndarray, share: float, key: Key) -> np.ndarray:
    """Return share * length of each user, rounded at random to the exact mean, and at most length - 1."""
    # floor(x + U) with uniform U in [0, 1) has mean x.
    uniform = as_uniform(key.words_by_user(purpose, users, size=1)[:, 0])
    return np.minimum(np.floor(share * lengths + uniform).astype(np.int64), np.maximum(lengths - 1, 0))


def choose_entries(
    indptr: np.ndarray, users: np.ndarray, counts: np.ndarray, subkey: np.ndarray, n_threads: int = 0
) -> np.ndarray:
    """Draw a number of entries of each user, uniformly without replacement, from the user's random stream.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Start of each user's entries, and the number of entries.
    users : ndarray of shape (n_users,), uint64
        Global ids; each selects the user's random stream.
    counts : ndarray of shape (n_users,), int64
        Number of entries to draw of each user, from 0 to the number of the user's entries.
    subkey : ndarray of shape (8,), uint32
        Subkey of the random streams, as from `Key.subkey`.
    n_threads : int
        Number of threads, 0 for all processors.  The result does not depend on it.

    Returns
    -------
    ndarray of shape (n_entries,), bool
        True for drawn entries.

    Raises
    ------
    MemoryError
        The bitmap of the longest row, one bit for each entry and thread, does not fit into memory.
    """
    chosen = np.zeros(indptr[-1], dtype=np.uint8)
    if chosen.size:
        n_threads = resolve_n_threads(n_threads)
        failed, longest = np.zeros(n_threads, dtype=np.int64), int(np.diff(indptr).max())
        _kernel.choose_interactions(indptr, users, counts, subkey, chosen, failed, longest, n_threads)
        if failed.any():
            raise MemoryError(
                "the bitmap of the longest row, one bit for each interaction and thread, does not fit into memory; use "
                "fewer threads"
            )
    return chosen.view(bool)
