"""The messages of single clients to the server of FedGNN's published variant."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Messages:
    """Messages of some users to the server of the published variant, with the server's parameters.

    Parameters
    ----------
    round : int
        Number of the round.
    users : ndarray of shape (n_users,), uint64
        Global ids of the senders.
    indptr : ndarray of shape (n_users + 1,), int64
        Start of each user's rows.
    items : ndarray of shape (n_rows,), int64
        Items of the rows, ascending for each user: the user's items and others.
    rows : ndarray of shape (n_rows, n_factors), int64
        Clipped gradients of item embeddings with noise, in steps.
    shared : ndarray of shape (n_users, n_factors ** 2 + 2 * n_factors), int64
        Clipped gradients of W and of the attention with noise, in steps.
    weights : ndarray of shape (n_factors, n_factors), float64
        Broadcast weights W.
    attention : ndarray of shape (2, n_factors), float64
        Broadcast attention vectors.
    """

    round: int
    users: NDArray[np.uint64]
    indptr: NDArray[np.int64]
    items: NDArray[np.int64]
    rows: NDArray[np.int64]
    shared: NDArray[np.int64]
    weights: NDArray[np.float64]
    attention: NDArray[np.float64]

    @classmethod
    def joined(cls, parts: "Sequence[Messages]") -> "Messages":
        """Join the messages of several groups of users in one round.

        Parameters
        ----------
        parts : sequence of Messages
            At least one group.

        Returns
        -------
        Messages
            All messages, in the order of the groups.
        """
        lengths = np.concatenate([np.diff(part.indptr) for part in parts])
        return replace(
            parts[0],
            users=np.concatenate([part.users for part in parts]),
            indptr=np.concatenate([[0], np.cumsum(lengths)]),
            items=np.concatenate([part.items for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            shared=np.concatenate([part.shared for part in parts]),
        )
