"""Splits of interactions: the last of each user, a random share, folds, entries; what is held out is drawn by a key."""

from collections.abc import Iterator

import numpy as np

from fastfedrec._kernels.evaluation import splits as _kernel
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.randomness import Key, _as_uniform, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.csr import check_indptr, check_integers
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions


def leave_one_out(
    interactions: Interactions, *, key: Key | None, latest: bool = False
) -> tuple[Interactions, Interactions]:
    """Hold out one interaction of each user who has at least two.

    Parameters
    ----------
    interactions : Interactions
        Every stored interaction counts, whatever its value: `binarize` first where low ratings should not.
    key : Key or None
        Source of the choice, which each user's own stream makes: it does not depend on the other users or on shards.
        None draws a new entropy key.
    latest : bool
        Hold out the interaction with the greatest timestamp (among equals, the key chooses) instead of a random one.

    Returns
    -------
    train : Interactions
        Same users, items, ids and features; a user with fewer than two interactions stays whole here.
    test : Interactions
        One interaction of every other user, on the same axes.

    Raises
    ------
    ValueError
        `latest` where the timestamp of a user with at least two interactions is missing.

    See Also
    --------
    random_split : Holds out a fraction.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import leave_one_out
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "a"], timestamps=[5, 9, 7])
    >>> train, test = leave_one_out(data, key=Key.from_seed(1), latest=True)
    >>> train
    <Interactions: 2 users x 2 items, 2 interactions>
    >>> test.to_scipy().toarray()
    array([[0., 1.],
           [0., 0.]], dtype=float32)
    """
    check_instance("interactions", interactions, Interactions, "use Interactions.from_arrays")
    key = resolve_key(key)
    lengths = interactions.interactions_per_user()
    tested = np.flatnonzero(lengths >= 2)
    candidates = np.repeat(lengths >= 2, lengths)
    if check_flag("latest", latest) and len(tested):
        candidates &= _is_latest(interactions, candidates, lengths)
    where = np.flatnonzero(candidates)
    ends = np.concatenate([[0], np.cumsum(candidates)])[interactions.indptr]
    words = key.words_by_user("evaluation.leave_one_out", interactions.global_user_ids[tested], size=1)[:, 0]
    held_out = np.zeros(interactions.n_interactions, dtype=bool)
    held_out[where[ends[tested] + _below(words, np.diff(ends)[tested])]] = True
    return _apart(interactions, held_out)


def _is_latest(interactions: Interactions, candidates: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether each interaction has its user's greatest timestamp."""
    times = interactions.timestamps
    if times is None:
        times = np.full(interactions.n_interactions, MISSING_TIMESTAMP)
    if missing := int((times[candidates] == MISSING_TIMESTAMP).sum()):
        raise ValueError(
            f"latest=True needs the timestamp of every interaction, but {missing} of {candidates.sum()} (of users with "
            "at least 2) are missing; drop those interactions or use latest=False"
        )
    starts = interactions.indptr[:-1][lengths > 0]  # reduceat misreads empty rows
    return times == np.repeat(np.maximum.reduceat(times, starts), lengths[lengths > 0])


def _below(words: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    # The high half of word x bound, as `stream_below` in _chacha20.pxd; bounds below 2**31.
    bounds = bounds.astype(np.uint64)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    return (((words >> half) * bounds + (((words & mask) * bounds) >> half)) >> half).astype(np.int64)


def random_split(
    interactions: Interactions, *, test_fraction: float, key: Key | None
) -> tuple[Interactions, Interactions]:
    """Hold out a fraction of every user's interactions.

    A user with n interactions gives test_fraction * n of them to the test, rounded up or down at random so that the
    mean is exact, but never all: at least one stays in train.  Which ones is uniform.

    Parameters
    ----------
    interactions : Interactions
        Every stored interaction counts, whatever its value.
    test_fraction : float
        Between 0 and 1, neither included.
    key : Key or None
        Source of the choice, which each user's own stream makes: it does not depend on the other users or on shards.
        None draws a new entropy key.

    Returns
    -------
    train : Interactions
        Same users, items, ids and features.
    test : Interactions
        The rest, on the same axes.

    See Also
    --------
    leave_one_out : Holds out one of each.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import random_split
    >>> data = Interactions.from_arrays([1, 1, 1, 1, 1, 2], [10, 11, 12, 13, 14, 10])
    >>> train, test = random_split(data, test_fraction=0.4, key=Key.from_seed(1))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([3, 1]), array([2, 0]))
    """
    check_instance("interactions", interactions, Interactions, "use Interactions.from_arrays")
    fraction = check_real("test_fraction", test_fraction, low=0.0, high=1.0, exclusive=True)
    held_out = hold_out(interactions.indptr, interactions.global_user_ids, fraction, key=resolve_key(key))
    return _apart(interactions, held_out)


def _apart(interactions: Interactions, held_out: np.ndarray) -> tuple[Interactions, Interactions]:
    """What is not held out, and what is."""
    return interactions.keep_interactions(~held_out), interactions.keep_interactions(held_out)


def hold_out(indptr: np.ndarray, global_user_ids: np.ndarray, fraction: float, *, key: Key) -> np.ndarray:
    """Choose the entries that `random_split` holds out, of anything that lies user by user.

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
    lengths = np.diff(indptr)
    uniform = _as_uniform(key.words_by_user("evaluation.random_split.counts", global_user_ids, size=1)[:, 0])
    counts = np.minimum(np.floor(fraction * lengths + uniform).astype(np.int64), np.maximum(lengths - 1, 0))
    return _choose_entries(indptr, global_user_ids, counts, key.subkey("evaluation.random_split"))


def _choose_entries(
    indptr: np.ndarray, users: np.ndarray, counts: np.ndarray, subkey: np.ndarray, n_threads: int = 0
) -> np.ndarray:
    """So many entries of each user's, drawn uniformly from the user's own stream, as a mask."""
    chosen = np.zeros(indptr[-1], dtype=np.uint8)
    if chosen.size:
        n_threads = resolve_n_threads(n_threads)
        failed, longest = np.zeros(n_threads, dtype=np.int64), int(np.diff(indptr).max())
        _kernel.choose_interactions(indptr, users, counts, subkey, chosen, failed, longest, n_threads)
        if failed.any():
            raise MemoryError("no memory for a bit a thread for each interaction of the longest row; use fewer threads")
    return chosen.view(bool)


def k_fold(
    interactions: Interactions, *, n_folds: int = 5, key: Key | None
) -> Iterator[tuple[Interactions, Interactions]]:
    """Split interactions into folds, and hold out each fold once.

    Every user's interactions are dealt out over the folds in random order, beginning at a random fold: a user with n of
    them has n / n_folds, rounded up or down, in each fold.

    Parameters
    ----------
    interactions : Interactions
        Every stored interaction counts, whatever its value.
    n_folds : int
        At least 2.
    key : Key or None
        Source of the folds; None draws a new entropy key.

    Returns
    -------
    iterator of tuple of Interactions
        For each fold what is left, and the fold itself, with the same users, items, ids and features.

    See Also
    --------
    random_split : Holds out one random part.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import k_fold
    >>> data = Interactions.from_arrays([1, 1, 1, 2, 2, 2], [10, 11, 12, 10, 11, 12], [5, 3, 4, 1, 2, 2])
    >>> [test.interactions_per_user().tolist() for _, test in k_fold(data, n_folds=3, key=Key.from_seed(1))]
    [[1, 1], [1, 1], [1, 1]]
    """
    check_instance("interactions", interactions, Interactions, "use Interactions.from_arrays")
    n_folds = check_integer("n_folds", n_folds, low=2)
    key = resolve_key(key)
    lengths = interactions.interactions_per_user()
    users = np.repeat(np.arange(interactions.n_users), lengths)
    first = key.words("evaluation.k_fold.first", size=interactions.n_users) % np.uint64(n_folds)
    words = key.words("evaluation.k_fold", size=interactions.n_interactions)
    place = np.empty(interactions.n_interactions, dtype=np.int64)
    place[np.lexsort((words, users))] = np.arange(interactions.n_interactions) - np.repeat(
        interactions.indptr[:-1], lengths
    )
    fold = (place + first.astype(np.int64)[users]) % n_folds
    return (_apart(interactions, fold == f) for f in range(n_folds))


def hold_out_entries(
    interactions: Interactions, *, user_fraction: float = 0.2, n_entries: int = 5, key: Key | None
) -> tuple[Interactions, Interactions]:
    """Hold out a few random interactions of some random users.

    Parameters
    ----------
    interactions : Interactions
        Every stored interaction counts, whatever its value.
    user_fraction : float
        The chance of each user to be tested, in (0, 1].
    n_entries : int
        Interactions that a tested user gives, uniformly; one at least stays in train.
    key : Key or None
        Source of the choice, which each user's own stream makes: it does not depend on the other users or on shards.
        None draws a new entropy key.

    Returns
    -------
    train : Interactions
        Same users, items, ids and features.
    test : Interactions
        The rest, on the same axes.

    See Also
    --------
    random_split : Holds out a fraction of every user's.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import hold_out_entries
    >>> data = Interactions.from_arrays([1, 1, 1, 1, 2], [10, 11, 12, 13, 10])
    >>> train, test = hold_out_entries(data, user_fraction=1.0, n_entries=2, key=Key.from_seed(1))
    >>> train.interactions_per_user(), test.interactions_per_user()
    (array([2, 1]), array([2, 0]))
    """
    check_instance("interactions", interactions, Interactions, "use Interactions.from_arrays")
    fraction = check_real("user_fraction", user_fraction, low=0.0, high=1.0)
    n_entries = check_integer("n_entries", n_entries, low=1)
    key = resolve_key(key)
    lengths, users = interactions.interactions_per_user(), interactions.global_user_ids
    tested = _as_uniform(key.words_by_user("evaluation.hold_out_entries.users", users, size=1)[:, 0]) < fraction
    counts = np.where(tested, np.minimum(n_entries, np.maximum(lengths - 1, 0)), 0).astype(np.int64)
    subkey = key.subkey("evaluation.hold_out_entries")
    return _apart(interactions, _choose_entries(interactions.indptr, users, counts, subkey))
