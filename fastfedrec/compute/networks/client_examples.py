"""Training examples of a network's clients: their events, and negatives among their unvisited items."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.compute.networks import _examples as _kernel
from fastfedrec.core.arrays import Column, check_rows, distinct
from fastfedrec.core.check import check_instance, check_integer, plain_array
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike, RowsLike, as_interactions, borrow_rows
from fastfedrec.data.csr import Remade, check_indptr, check_integers, check_named_rows, own_array

__all__ = ["MAX_DRAWS", "ClientExamples", "Events", "draw_examples"]

__dir__ = __all__.copy  # dir() lists only the public names

#: Maximum number of 32-bit draws of one client in a round, two from each of the 2**35 words of its stream.
MAX_DRAWS = 2**36


@dataclass(frozen=True)
class Events(Remade):
    """Events of users in user order, each with its context if there is a log.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Start of each user's events.
    items : ndarray of shape (n_events,), int32
        Item of each event, as a column of the interactions; an item may occur more than once.
    contexts : ndarray of shape (n_events,), int64, or None
        Context of each event, as a row of the log; None without a log.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    contexts: NDArray[np.int64] | None

    def __post_init__(self) -> None:
        indptr = check_indptr("events.indptr", self.indptr)
        rows = check_named_rows(
            "events", indptr, self.items, len(indptr) - 1, np.iinfo(np.int32).max, fields=("indptr", "items")
        )
        checked = dict(zip(("indptr", "items"), map(own_array, rows), strict=True))
        if self.contexts is not None:
            checked["contexts"] = own_array(check_integers("events.contexts", self.contexts, np.int64))
            if len(checked["contexts"]) != len(checked["items"]):
                got = f"{len(checked['contexts'])} for {len(checked['items'])}"
                raise ValueError(f"events.contexts must have one entry for each of events.items, got {got}")
        # A frozen dataclass forbids assignments, so the checked copies bypass its `__setattr__`.
        for name, array in checked.items():
            object.__setattr__(self, name, array)

    def first(self, n: int) -> Self:
        """Select the first events of each user.

        Parameters
        ----------
        n : int
            Maximum number of events of one user, at least 0.

        Returns
        -------
        Events
            Selected events; this object if no user has more than `n`.
        """
        n, lengths = check_integer("n", n, low=0), np.diff(self.indptr)
        if lengths.max(initial=0) <= n:
            return self
        # The difference is the position of each event among its user's events.
        mask = np.arange(len(self.items)) - np.repeat(self.indptr[:-1], lengths) < n
        indptr = np.concatenate([[0], np.cumsum(np.minimum(lengths, n))])
        return type(self)(indptr, self.items[mask], None if self.contexts is None else self.contexts[mask])

    @classmethod
    def from_interactions(cls, interactions: RowsLike) -> Self:
        """Make an event without context from each stored interaction.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
            Interactions without regard to their values; use `Interactions.binarize` to select the positive ones.

        Returns
        -------
        Events
            Events that share their arrays with `Interactions`; arrays that other code may write to are copied.
        """
        interactions = borrow_rows("interactions", interactions)
        return cls(interactions.indptr, interactions.indices, None)

    @classmethod
    def from_log(
        cls,
        interactions: InteractionsLike,
        users: Column,
        items: Column,
        rows: Iterable[int] | np.ndarray | None = None,
    ) -> Self:
        """Make events from rows of a log.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Interactions that define the numbers of users and items.
        users, items : array_like of shape (n_rows,)
            External ids of the user and the item of each row.
        rows : array_like of int, or None
            Number of each row in the complete log, if these are only some of its rows; None for 0, 1, 2 and so on.

        Returns
        -------
        Events
            Events in the order of the log for each user.

        Raises
        ------
        KeyError
            The interactions do not have an id.

        Examples
        --------
        >>> from fastfedrec import Interactions
        >>> from fastfedrec.compute.networks.client_examples import Events
        >>> users, items = ["bob", "ann", "bob"], ["mail", "maps", "mail"]
        >>> events = Events.from_log(Interactions.from_arrays(users, items), users, items)
        >>> events.indptr, events.items, events.contexts
        (array([0, 1, 3]), array([1, 0, 0], dtype=int32), array([1, 0, 2]))
        """
        interactions = as_interactions("interactions", interactions)
        of_user, of_item = interactions.user_index(users), interactions.item_index(items)
        contexts = np.arange(len(of_user)) if rows is None else plain_array("rows", rows)
        if len({len(of_user), len(of_item), len(contexts)}) > 1 or contexts.dtype.kind not in "iu":
            raise ValueError(
                f"users, items and rows must have one entry for each row, got {len(of_user)}, {len(of_item)} and "
                f"{len(contexts)} ({contexts.dtype})"
            )
        # A stable sort by user preserves the order of the log within each user.
        order = np.argsort(of_user, kind="stable")
        lengths = np.bincount(of_user, minlength=interactions.n_users)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return cls(indptr, of_item[order].astype(np.int32), contexts[order].astype(np.int64))


@dataclass(frozen=True)
class ClientExamples:
    """Labelled items of some clients in client order; made by `draw_examples`.

    Parameters
    ----------
    users : ndarray of shape (n_clients,), int64
        User of each client, as a row of the features' users.
    global_user_ids : ndarray of shape (n_clients,), uint64
        Global user ids, which name the clients' random streams.
    indptr : ndarray of shape (n_clients + 1,), int64
        Start of each client's examples; a client may have none.
    items : ndarray of shape (n_examples,), int32
        Item of each example, as a column of the interactions.
    labels : ndarray of shape (n_examples,), float32
        Label of each example: 1 for a positive, 0 for a negative.
    contexts : ndarray of shape (n_examples,), int64
        Context of each example, as a row of the log; 0 without a log.
    """

    users: NDArray[np.int64]
    global_user_ids: NDArray[np.uint64]
    indptr: NDArray[np.int64]
    items: NDArray[np.int32]
    labels: NDArray[np.float32]
    contexts: NDArray[np.int64]


def draw_examples(
    visited: RowsLike,
    events: Events,
    users: Any,
    negatives: int,
    *,
    key: Key,
    purpose: str = "client_examples.negatives",
    round: int = 0,
    n_threads: int = 0,
) -> ClientExamples:
    """Make positives from clients' events, and draw negatives among the items that each client has not visited.

    Parameters
    ----------
    visited : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        Visited items of each user, which are never negatives.  The features have the same users and items.
    events : Events
        Events of all users, which are the positives.
    users : array_like of shape (n_clients,), int
        Clients, as distinct rows of `visited`.
    negatives : int
        Number of negatives for each positive, at least 0.  Negatives are distinct within a client, so a client with few
        unvisited items has fewer.  A negative has the context of its positive.
    key : Key
        Key of the random draws; the call does not claim it.
    purpose : str
        Purpose of the draws.  A client's stream is (purpose, round, global user id), so its draws do not depend on the
        other clients.
    round : int
        Number of the round, below 2**32.
    n_threads : int
        Number of threads; 0 for all processors.  The result does not depend on it.

    Returns
    -------
    ClientExamples
        Examples of each client in the order of `users`; a client's positives come first.

    Raises
    ------
    ValueError
        A row is out of range or occurs twice.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.compute.networks.client_examples import Events, draw_examples
    >>> data = Interactions.from_arrays(["ann", "ann", "bob"], ["a", "b", "c"])
    >>> examples = draw_examples(data, Events.from_interactions(data), [1, 0], 2, key=Key.from_seed(1))
    >>> examples.indptr, examples.labels
    (array([0, 3, 6]), array([1., 0., 0., 1., 1., 0.], dtype=float32))
    >>> examples.items[[0, 5]]
    array([2, 2], dtype=int32)
    """
    visited = borrow_rows("visited", visited)
    check_instance("events", events, Events, "use Events.from_interactions or Events.from_log")
    check_instance("key", key, Key, "use Key.from_entropy() or Key.from_seed(n)")
    users = check_rows("users", users, visited.n_users)
    if len(distinct(users)) < len(users):
        raise ValueError(f"users must be distinct, got {len(users)} rows of {len(distinct(users))} clients")
    if len(events.indptr) != visited.n_users + 1:
        raise ValueError(
            f"events must be of the {visited.n_users} users of visited, got {len(events.indptr) - 1} users"
        )
    check_rows("events.items", events.items, visited.n_items)
    negatives = check_integer("negatives", negatives, low=0, high=2**31 - 1)
    n_positives = np.diff(events.indptr)[users]
    # A client cannot have more distinct negatives than unvisited items.
    n_negatives = np.minimum(negatives * n_positives, visited.n_items - visited.interactions_per_user()[users])
    global_user_ids = visited.global_user_ids[users]
    # The first draws of a shuffle of the unvisited items take one word each.
    words, word_starts = key.ragged_words(purpose, global_user_ids, n_negatives, round=round, n_threads=n_threads)
    indptr = np.concatenate([[0], np.cumsum(n_positives + n_negatives)])
    items, labels = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    contexts = np.zeros(indptr[-1], dtype=np.int64)
    _kernel.draw_examples(
        *(visited.indptr, visited.indices, events.indptr, events.items),
        np.empty(0, dtype=np.int64) if events.contexts is None else events.contexts,
        *(users, words, word_starts, indptr, items, labels, contexts, visited.n_items),
    )
    return ClientExamples(users, global_user_ids, indptr, items, labels, contexts)
