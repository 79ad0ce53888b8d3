"""What the server of FedGNN's published variant receives of each client."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Messages:
    """What the server of the published variant receives of some users, each by itself, and what it knows beside it.

    Parameters
    ----------
    round : int
        Of the messages.
    users : ndarray of shape (n_users,), uint64
        Global ids of the senders.
    indptr : ndarray of shape (n_users + 1,), int64
        Where each user's rows begin.
    items : ndarray of shape (n_rows,), int64
        Columns of the items that rows are of, ascending for each user: own items and others.
    rows : ndarray of shape (n_rows, n_factors), int64
        Clipped gradients with noise, in steps.
    shared : ndarray of shape (n_users, n_factors ** 2 + 2 * n_factors), int64
        Those by W and the attention.
    weights : ndarray of shape (n_factors, n_factors), float64
        W, as the server sent it.
    attention : ndarray of shape (2, n_factors), float64
        As the server sent it.
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
        """The messages of several groups of users in one round.

        Parameters
        ----------
        parts : sequence of Messages
            At least one.

        Returns
        -------
        Messages
            One group after the other.
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
