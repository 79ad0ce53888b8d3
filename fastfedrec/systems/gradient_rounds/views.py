"""The messages that each party of FedRec and FedRec++ received in a round, recorded for tests and attacks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.systems.gradient_rounds.devices import RATED, VIRTUAL, WITHHELD, ReportedItems

__all__ = ["ADDITIVE", "PLAIN", "PUBLISHED", "Messages", "RecordedRound", "record_round"]

PLAIN, PUBLISHED, ADDITIVE = 0, 1, 2  # the kernel's codes


@dataclass(frozen=True)
class Messages:
    """Vectors that the parties of one kind received.

    Parameters
    ----------
    senders : ndarray of shape (n,), uint64
        Global ids of the senders; a denoiser that subtracts its own gradients from its sum is a sender too.
    receivers : ndarray of shape (n,), uint64
        Global ids of the denoisers; 0 for the server.
    items : ndarray of shape (n,), int32
        Columns of the reported items.
    values : ndarray of shape (n, n_factors + 1), uint64
        Messages: integers modulo 2^64; the last one counts the user.
    """

    senders: NDArray[np.uint64]
    receivers: NDArray[np.uint64]
    items: NDArray[np.int32]
    values: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.items)

    def select(self, mask: np.ndarray) -> Self:
        """Select messages.

        Parameters
        ----------
        mask : ndarray of shape (n,)
            Boolean mask, or positions.

        Returns
        -------
        Messages
            Selected messages, in the order of `mask`.
        """
        return type(self)(self.senders[mask], self.receivers[mask], self.items[mask], self.values[mask])

    def add_up(self, by: str, n_items: int) -> Self:
        """Sum the messages of each (sender or receiver, item).

        Parameters
        ----------
        by : {"senders", "receivers"}
            Party to group by.
        n_items : int
            Size of the catalogue.

        Returns
        -------
        Messages
            Sums, sorted by party and then by item.
        """
        if not len(self):
            return self
        parties, index = np.unique(getattr(self, by), return_inverse=True)
        # Sorted by (party, item), each run of equal numbers is one sum.
        cells = index * n_items + self.items
        order = np.argsort(cells, kind="stable")
        starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
        pairs = cells[order][starts]
        owners = parties[pairs // n_items]
        values = np.add.reduceat(self.values[order], starts, axis=0)
        return type(self)(owners, owners, (pairs % n_items).astype(np.int32), values)

    @classmethod
    def joined(cls, parts: "Sequence[Messages]") -> "Messages":
        """Concatenate several lists of messages.

        Parameters
        ----------
        parts : sequence of Messages
            At least one list.

        Returns
        -------
        Messages
            All messages, in the order of the lists.
        """
        if len(parts) == 1:
            return parts[0]
        names = ("senders", "receivers", "items", "values")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class RecordedRound:
    """All messages of one round.

    Parameters
    ----------
    round : int
        Number of the round.
    server : Messages
        Messages from users to the server.
    denoisers : Messages
        Messages from users to denoisers.
    item_factors : ndarray of shape (n_items, n_factors), float64
        Item factors that the server broadcast.
    regularization : float
        Public L2 penalty in the gradients.
    scale : float
        Public number of steps of a gradient of 1.
    """

    round: int
    server: Messages
    denoisers: Messages
    item_factors: NDArray[np.float64]
    regularization: float
    scale: float

    @property
    def n_items(self) -> int:
        """Size of the catalogue.

        Returns
        -------
        int
            Number of items, including those that no user reported.
        """
        return len(self.item_factors)

    def denoiser_sums(self) -> Messages:
        """Compute the messages from denoisers to the server, each a sum for one item.

        Returns
        -------
        Messages
            Sums, sorted by denoiser and then by item.
        """
        return self.denoisers.add_up("receivers", self.n_items)

    @classmethod
    def of_shards(cls, parts: "Sequence[RecordedRound]") -> "RecordedRound":
        """Join the records of several shards for one round.

        Parameters
        ----------
        parts : sequence of RecordedRound
            Records of the same round.

        Returns
        -------
        RecordedRound
            The record of all users.
        """
        return replace(
            parts[0],
            server=Messages.joined([part.server for part in parts]),
            denoisers=Messages.joined([part.denoisers for part in parts]),
        )


def record_round(
    sharing: int,
    round_number: int,
    state: Any,
    users: np.ndarray,
    roles: np.ndarray,
    reported: ReportedItems,
    messages: np.ndarray,
    regularization: float,
    scale: float,
) -> RecordedRound:
    """Sort the kernel's messages by the party that received them; `users` and `roles` are per reported item."""
    kinds = reported.kinds
    # Role 0 is outside the cohort.
    is_sent = (roles > 0) & (kinds != WITHHELD)
    to_server = is_sent if sharing != PUBLISHED else is_sent & (roles == 1)
    if sharing == PUBLISHED:
        to_denoiser = is_sent & np.where(roles == 2, kinds == RATED, kinds == VIRTUAL)
        # A denoiser sums others' virtual items, and subtracts its own rated ones.
    else:
        to_denoiser = is_sent & (sharing == ADDITIVE)
    receivers = state.denoisers[state.rows(users)] if sharing != PLAIN else np.zeros(len(users), dtype=np.uint64)
    server = Messages(
        users[to_server], np.zeros(to_server.sum(), dtype=np.uint64), reported.items[to_server], messages[0][to_server]
    )
    denoisers = Messages(
        users[to_denoiser], receivers[to_denoiser], reported.items[to_denoiser], messages[1][to_denoiser]
    )
    return RecordedRound(round_number, server, denoisers, state.item_factors, regularization, scale)
