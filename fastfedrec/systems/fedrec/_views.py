"""What each party of FedRec and FedRec++ received in a round, recorded for tests and attacks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.systems.fedrec.devices import RATED, VIRTUAL, WITHHELD, Spoken

PLAIN, PUBLISHED, ADDITIVE = 0, 1, 2  # as in the kernel


@dataclass(frozen=True)
class Messages:
    """Vectors that one kind of party received.

    Parameters
    ----------
    senders : ndarray of shape (n,), uint64
        Global ids of the users they came from; a denoiser that takes its own gradients from its sum is a sender too.
    receivers : ndarray of shape (n,), uint64
        Global ids of the denoisers; 0 where the server received.
    items : ndarray of shape (n,), int32
        What they are about.
    values : ndarray of shape (n, n_factors + 1), uint64
        As sent: integers modulo 2^64, the last of which counts the user.
    """

    senders: NDArray[np.uint64]
    receivers: NDArray[np.uint64]
    items: NDArray[np.int32]
    values: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.items)

    def select(self, mask: np.ndarray) -> Self:
        """Some of the messages.

        Parameters
        ----------
        mask : ndarray of shape (n,)
            True where kept, or positions.

        Returns
        -------
        Messages
            In the given order.
        """
        return type(self)(self.senders[mask], self.receivers[mask], self.items[mask], self.values[mask])

    def add_up(self, by: str, n_items: int) -> Self:
        """One message for each (sender or receiver, item): the sum of theirs.

        Parameters
        ----------
        by : {"senders", "receivers"}
            Whose sums.
        n_items : int
            Size of the catalogue.

        Returns
        -------
        Messages
            By that party, then by item.
        """
        if not len(self):
            return self
        parties, index = np.unique(getattr(self, by), return_inverse=True)
        cells = index * n_items + self.items
        order = np.argsort(cells, kind="stable")
        starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
        found = cells[order][starts]
        owners = parties[found // n_items]
        values = np.add.reduceat(self.values[order], starts, axis=0)
        return type(self)(owners, owners, (found % n_items).astype(np.int32), values)

    @classmethod
    def joined(cls, parts: "Sequence[Messages]") -> "Messages":
        """All messages of several lists.

        Parameters
        ----------
        parts : sequence of Messages
            At least one.

        Returns
        -------
        Messages
            One list after the other.
        """
        if len(parts) == 1:
            return parts[0]
        names = ("senders", "receivers", "items", "values")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class RecordedRound:
    """Everything that was sent in one round.

    Parameters
    ----------
    round : int
        Which one.
    server : Messages
        What users sent to the server.
    denoisers : Messages
        What users sent to denoisers.
    item_factors : ndarray of shape (n_items, n_factors), float64
        What the server sent to everybody.
    regularization : float
        Of the gradients; everybody knows it.
    scale : float
        How many steps a gradient of 1 is; everybody knows it.
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
            Also of items that nobody spoke of.
        """
        return len(self.item_factors)

    def denoiser_sums(self) -> Messages:
        """What each denoiser sends to the server: for each item that it heard of, the sum.

        Returns
        -------
        Messages
            From denoisers, by denoiser and item.
        """
        return self.denoisers.add_up("receivers", self.n_items)

    @classmethod
    def of_shards(cls, parts: "Sequence[RecordedRound]") -> "RecordedRound":
        """Join the records that several shards made of one round.

        Parameters
        ----------
        parts : sequence of RecordedRound
            Of the same round.

        Returns
        -------
        RecordedRound
            Of all users.
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
    spoken: Spoken,
    messages: np.ndarray,
    regularization: float,
    scale: float,
) -> RecordedRound:
    """Sort what the kernel wrote into what each party received; `users` and `roles` are those of each spoken item."""
    kinds = spoken.kinds
    said = (roles > 0) & (kinds != WITHHELD)
    to_server = said if sharing != PUBLISHED else said & (roles == 1)
    if sharing == PUBLISHED:
        to_denoiser = said & np.where(roles == 2, kinds == RATED, kinds == VIRTUAL)
    else:
        to_denoiser = said & (sharing == ADDITIVE)
    receivers = state.denoisers[state.rows(users)] if sharing != PLAIN else np.zeros(len(users), dtype=np.uint64)
    server = Messages(
        users[to_server], np.zeros(to_server.sum(), dtype=np.uint64), spoken.items[to_server], messages[0][to_server]
    )
    denoisers = Messages(
        users[to_denoiser], receivers[to_denoiser], spoken.items[to_denoiser], messages[1][to_denoiser]
    )
    return RecordedRound(round_number, server, denoisers, state.item_factors, regularization, scale)
