"""Shuffled messages of one of two kinds, where an earlier release chose the kind."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from fastfedrec.accounting._largest_loss import largest_loss
from fastfedrec.accounting._loss import Loss
from fastfedrec.accounting.events._crowd import CrowdEvent, share_of_honest
from fastfedrec.accounting.events._event import Event, EventLoss, View, check_name, store
from fastfedrec.accounting.events._reports import ShuffledReports
from fastfedrec.accounting.events._shuffled_counts import ShuffledCounts


@dataclass(frozen=True)
class ChosenMessages(CrowdEvent):
    """Reports or counts of every user through a shuffler, whichever kind an earlier release of the run chose.

    Parameters
    ----------
    mechanism : str
        Name, for the ledger.
    epsilon : float
        Epsilon of one report, in nats, if reports were chosen.
    n_reports : int
        Number of reports of one user, if reports were chosen.
    fake_rate : float
        Mean number of fake messages about each cell that one user sends, if counts were chosen.
    n_messages : int
        If counts were chosen, a user sends messages about its data with some number c in each of at most
        ``n_messages // c**2`` cells.
    n_users : int
        Number of users who were requested.
    honest_fraction : float
        Share of the users, in [0, 1], who follow the protocol and do not reveal their messages.
    neighboring : {"replace", "zero_out"}
        Neighbouring relation: one user's data are replaced by any others, or by none.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"shuffle"}
        The shuffler is trusted with all messages: it must mix them, and not reveal their senders.
    n_candidates : int
        Number of candidates of `LargestResponse`, which makes the reports; 1 for binary response.
    distance : float
        Total-variation distance of all fake messages from Poisson numbers.

    See Also
    --------
    ShuffledReports : Reports that are randomized on the device, and shuffled.
    ShuffledCounts : Plain messages among fake messages.

    Notes
    -----
    The cost is that of a pair whose delta is the larger one of both kinds, at each epsilon.  The pair dominates both
    kinds.  Therefore it may stand for the chosen kind in a composition, whatever release chose it [1]_.
    A ledger records the same event for both choices, so the number and the costs of events are fixed beforehand.

    References
    ----------
    .. [1] Zhu, Dong, Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022.
    """

    mechanism: str
    epsilon: float
    n_reports: int
    fake_rate: float
    n_messages: int
    n_users: int
    honest_fraction: float = 1.0
    neighboring: Literal["replace", "zero_out"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["shuffle"] = "shuffle"
    n_candidates: int = 1
    distance: float = 0.0
    _has_open_messages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name(self)
        counts = self._counts
        names = ("fake_rate", "n_messages", "n_users", "honest_fraction", "distance")
        store(self, **{name: getattr(counts, name) for name in names})
        if self._n_honest:
            reports = self._reports
            store(self, **{name: getattr(reports, name) for name in ("epsilon", "n_reports", "n_candidates")})

    @classmethod
    def of(cls, mechanism: str, reports: ShuffledReports, counts: ShuffledCounts) -> "ChosenMessages":
        """Return the event of one of two kinds of messages of the same users.

        Parameters
        ----------
        mechanism : str
            Name, for the ledger.
        reports : ShuffledReports
            Event if reports were chosen.
        counts : ShuffledCounts
            Event if counts were chosen.

        Returns
        -------
        ChosenMessages
            Event for either choice.

        Raises
        ------
        ValueError
            The events differ in their users, honest share or relation.
        """
        for name in ("n_users", "honest_fraction", "neighboring"):
            if (one := getattr(reports, name)) != (other := getattr(counts, name)):
                raise ValueError(f"counts.{name} must be the one of the reports, {one!r}, got {other!r}")
        return cls(
            mechanism, reports.epsilon, reports.n_reports, counts.fake_rate,
            counts.n_messages, counts.n_users, counts.honest_fraction, counts.neighboring,
            n_candidates=reports.n_candidates, distance=counts.distance,
        )  # fmt: skip

    @property
    def _counts(self) -> ShuffledCounts:
        """The event if counts were chosen."""
        return ShuffledCounts(
            self.mechanism, self.fake_rate, self.n_messages, self.n_users, self.honest_fraction, self.neighboring,
            self.privacy_unit, self.trust, self.distance,
        )  # fmt: skip

    @property
    def _reports(self) -> ShuffledReports:
        """The event if reports were chosen, which takes at least one honest user."""
        return ShuffledReports(
            self.mechanism, self.epsilon, self.n_reports, self.n_users, self.honest_fraction, self.neighboring,
            self.privacy_unit, self.trust, self.n_candidates,
        )  # fmt: skip

    @property
    def n_honest_users(self) -> int:
        """Number of honest users, rounded down, among whose messages a user hides.

        Returns
        -------
        int
            At least 0.
        """
        return self._counts.n_honest_users

    @property
    def _n_honest(self) -> int:
        return self.n_honest_users

    def _divergences(self, orders: np.ndarray) -> np.ndarray:
        return self._counts._divergences(orders)

    def _loss(self) -> EventLoss:
        loss = _largest_loss(replace(self, mechanism=""))
        return (lambda _: loss), 1

    def _seen_by(self, view: View) -> Event | None:
        # A party that knows the senders can tell a user's counted messages from the fakes of others.
        return None if self._counts._seen_by(view) is None else replace(self, neighboring="replace")

    def _in_crowd(self, n_users: int, n_honest: int) -> "ChosenMessages":
        share = share_of_honest(n_honest, n_users) if n_honest > 0 else 0.0
        return replace(self, n_users=n_users, honest_fraction=share)

    def _without_crowd(self) -> Event:
        return replace(super()._without_crowd(), distance=0.0)  # which grows with the number of users

    def _details(self) -> str:
        return f", or {self.n_reports:,} reports a user{self._counts._details()}"

    def _protection(self, view: View) -> str:
        return f"{self._counts._protection(view)}, or noise of each report"

    def _exposure(self, view: View) -> str:
        return self._counts._exposure(view)


@lru_cache(maxsize=16)
def _largest_loss(event: ChosenMessages) -> Loss:
    """Return the loss of a pair that dominates both kinds."""
    alternatives = []
    for kind in (event._counts, event._reports):
        loss, uses = kind._loss()
        assert callable(loss)
        alternatives.append((loss(0.0), uses))
    return largest_loss([(loss, uses) for loss, uses in alternatives if uses])
