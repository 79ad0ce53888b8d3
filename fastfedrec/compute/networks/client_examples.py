"""What the clients of a network train on: what they did, and items drawn among those they have not seen."""

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

#: Draws of one client in a round, for the order of its examples: two of each word of its stream.
MAX_DRAWS = 2**36


@dataclass(frozen=True)
class Events(Remade):
    """What users did, user by user, each with its context where there is a log.

    Parameters
    ----------
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's events begin.
    items : ndarray of shape (n_events,), int32
        Columns of the interactions; an item may occur more than once.
    contexts : ndarray of shape (n_events,), int64, or None
        Rows of the log.
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
        for name, array in checked.items():
            object.__setattr__(self, name, array)

    def first(self, n: int) -> Self:
        """Keep the first events of each user.

        Parameters
        ----------
        n : int
            At least 0: the largest number of events of one user.

        Returns
        -------
        Events
            This object where no user has more.
        """
        n, lengths = check_integer("n", n, low=0), np.diff(self.indptr)
        if lengths.max(initial=0) <= n:
            return self
        kept = np.arange(len(self.items)) - np.repeat(self.indptr[:-1], lengths) < n
        indptr = np.concatenate([[0], np.cumsum(np.minimum(lengths, n))])
        return type(self)(indptr, self.items[kept], None if self.contexts is None else self.contexts[kept])

    @classmethod
    def from_interactions(cls, interactions: RowsLike) -> Self:
        """Take every stored interaction as an event, without context; `Interactions.binarize` keeps the positive ones.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
            Values do not matter.

        Returns
        -------
        Events
            Shares its arrays with `Interactions`, and copies what others may write to.
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
        """Take rows of a log as events.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Whose users and items are meant; the users' order is its own.
        users, items : array_like of shape (n_rows,)
            External ids.
        rows : array_like of int, or None
            Numbers of the rows in the whole log, where only some of it is given; None numbers them from 0.

        Returns
        -------
        Events
            Of a user in the order of the log.

        Raises
        ------
        KeyError
            An id that the interactions do not have.

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
                f"users, items and rows must have one entry a row, got {len(of_user)}, {len(of_item)} and "
                f"{len(contexts)} ({contexts.dtype})"
            )
        order = np.argsort(of_user, kind="stable")
        lengths = np.bincount(of_user, minlength=interactions.n_users)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        return cls(indptr, of_item[order].astype(np.int32), contexts[order].astype(np.int64))


@dataclass(frozen=True)
class ClientExamples:
    """What some clients train on: items with labels, client by client; made by `draw_examples`.

    Parameters
    ----------
    users : ndarray of shape (n_clients,), int64
        Whose they are, as rows of the features' users.
    global_user_ids : ndarray of shape (n_clients,), uint64
        Names of the clients' random streams.
    indptr : ndarray of shape (n_clients + 1,), int64
        Where each client's examples begin; a client may have none.
    items : ndarray of shape (n_examples,), int32
        Columns of the interactions.
    labels : ndarray of shape (n_examples,), float32
        1 for a positive, 0 for a negative.
    contexts : ndarray of shape (n_examples,), int64
        Rows of the log; 0 where there is none.
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
    """Take clients' events as positives, and draw negatives among the items that each has not visited.

    Parameters
    ----------
    visited : Interactions, SciPy sparse matrix or array, or array of shape (n_users, n_items)
        What is never a negative; as many users and items as the features have.
    events : Events
        The positives.
    users : array_like of shape (n_clients,), int
        The clients, as rows of `visited`; distinct.
    negatives : int
        Negatives of each positive, at least 0.  They are distinct within a client, and fewer where too few items are
        left; a negative has the context of its positive.
    key : Key
        Source of the randomness; it is not used up.
    purpose : str
        A client's stream is (purpose, round, global user id): its draws do not depend on the other clients.
    round : int
        Below 2**32.
    n_threads : int
        0 for all processors; the result does not depend on it.

    Returns
    -------
    ClientExamples
        One client for each of `users`, in their order; its positives come first.

    Raises
    ------
    ValueError
        A row that is out of range, or stands twice.

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
        raise ValueError("users must be distinct: a client has one stream of random bits a round")
    if len(events.indptr) != visited.n_users + 1:
        raise ValueError(f"events must be of {visited.n_users} users, those of visited, got {len(events.indptr) - 1}")
    check_rows("events.items", events.items, visited.n_items)
    negatives = check_integer("negatives", negatives, low=0, high=2**31 - 1)
    n_positives = np.diff(events.indptr)[users]
    wanted = np.minimum(negatives * n_positives, visited.n_items - visited.interactions_per_user()[users])
    global_user_ids = visited.global_user_ids[users]
    words, word_starts = key.ragged_words(purpose, global_user_ids, wanted, round=round, n_threads=n_threads)
    indptr = np.concatenate([[0], np.cumsum(n_positives + wanted)])
    items, labels = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    contexts = np.zeros(indptr[-1], dtype=np.int64)
    _kernel.draw_examples(
        *(visited.indptr, visited.indices, events.indptr, events.items),
        np.empty(0, dtype=np.int64) if events.contexts is None else events.contexts,
        *(users, words, word_starts, indptr, items, labels, contexts, visited.n_items),
    )
    return ClientExamples(users, global_user_ids, indptr, items, labels, contexts)
