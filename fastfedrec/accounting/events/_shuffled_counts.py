"""Counts of shuffled messages, among which users hide by fake messages."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from fastfedrec.accounting._poisson_counts import MAX_MEAN, MAX_MESSAGES, counts_loss
from fastfedrec.accounting.events._crowd import CrowdEvent, count_honest, share_of_honest
from fastfedrec.accounting.events._event import Event, EventLoss, View, check_name, store
from fastfedrec.core.check import check_choice, check_integer, check_real
from fastfedrec.core.numbers import float_up


@dataclass(frozen=True)
class ShuffledCounts(CrowdEvent):
    """Messages of every user that name one cell each, with the senders removed by a shuffler, and fake messages.

    Parameters
    ----------
    mechanism : str
        Name, for the ledger.
    fake_rate : float
        Mean number of fake messages about each cell that one user sends.  Fake messages have independent Poisson
        numbers for each cell, do not depend on data, and cannot be told from other messages.
    n_messages : int
        A user sends messages about its data with some number c in each of at most ``n_messages // c**2`` cells.
    n_users : int
        Number of users who were requested; each sends fake messages, with and without data.
    honest_fraction : float
        Share of the users, in [0, 1], who send fake messages and do not reveal them.
    neighboring : {"replace", "zero_out"}
        Neighbouring relation: one user's data are replaced by any others, or by none, so that it sends fakes alone.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"shuffle"}
        The shuffler is trusted with all messages: it must mix them, and not reveal their senders.  Without it there is
        no guarantee.
    distance : float
        Total-variation distance of all fake messages from Poisson numbers.

    Notes
    -----
    The adversary sees the number of messages about each cell.  The fakes of one user about a cell add up to a Poisson
    number over users, so the privacy loss is the one of a shifted Poisson number ([1]_, [2]_), in each of a user's
    cells.  Its distribution is exact, up to rounding upwards.

    References
    ----------
    .. [1] Ghazi, Kumar, Manurangsi, Pagh, "Private counting from anonymous messages: near-optimal accuracy with
       vanishing communication overhead", ICML 2020.
    .. [2] Cheu, Zhilyaev, "Differentially private histograms in the shuffle model from fake users", IEEE S&P 2022.
    """

    mechanism: str
    fake_rate: float
    n_messages: int
    n_users: int
    honest_fraction: float = 1.0
    neighboring: Literal["replace", "zero_out"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["shuffle"] = "shuffle"
    distance: float = 0.0
    _has_open_messages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name(self)
        choices = ("neighboring", ("replace", "zero_out")), ("privacy_unit", ("user",)), ("trust", ("shuffle",))
        for name, allowed in choices:
            check_choice(name, getattr(self, name), allowed)
        store(
            self,
            fake_rate=check_real("fake_rate", self.fake_rate, low=0.0, exclusive=True),
            n_messages=check_integer("n_messages", self.n_messages, low=1, high=MAX_MESSAGES),
            n_users=check_integer("n_users", self.n_users, low=0),
            honest_fraction=check_real("honest_fraction", self.honest_fraction, low=0.0, high=1.0),
            distance=check_real("distance", self.distance, low=0.0, high=1.0),
        )

    @property
    def n_honest_users(self) -> int:
        """Number of honest users, rounded down, whose fake messages count.

        Returns
        -------
        int
            At least 0.
        """
        return count_honest(self.n_users, self.honest_fraction)

    @property
    def _n_honest(self) -> int:
        return self.n_honest_users

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        # A count of 0 shows that a user with a message there is gone, so all divergences are infinite.
        return np.full(len(orders), np.inf)

    def _loss(self) -> EventLoss:
        mean = -float_up(-min(Fraction(self.fake_rate) * self.n_honest_users, Fraction(MAX_MEAN)))
        loss = counts_loss(mean, self.n_messages, self.neighboring)
        return (lambda _: loss), 1

    def _seen_by(self, view: View) -> Event | None:
        # A party that knows the senders can tell a user's messages from the fakes of others.
        if view == "server" or not self.n_honest_users:
            return None
        return replace(self, neighboring="replace")

    def _in_crowd(self, n_users: int, n_honest: int) -> "ShuffledCounts":
        share = share_of_honest(n_honest, n_users) if n_honest > 0 else 0.0
        return replace(self, n_users=n_users, honest_fraction=share)

    def _without_crowd(self) -> Event:
        return replace(super()._without_crowd(), distance=0.0)  # which grows with the number of users

    def _details(self) -> str:
        return (
            f", up to {self.n_messages:,} messages a user about data, {self.n_users:,} users, "
            f"{self.n_honest_users:,} of them honest{super()._details()}"
        )

    def _protection(self, view: View) -> str:
        return "fake messages and shuffling" if view == "shuffled_server" else "fake messages"

    def _exposure(self, view: View) -> str:
        if view == "server" and self.n_honest_users:
            return "it sees the sender of each message, and fake messages hide data only behind a shuffler"
        return super()._exposure(view) if view == "key_holder" else "no honest user sent a fake message"
