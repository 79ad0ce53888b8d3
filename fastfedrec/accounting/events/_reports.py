"""Reports of every user, local or shuffled: the same messages, protected by the device alone or by a crowd as well."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from fastfedrec.accounting.blanket import largest_response_loss
from fastfedrec.accounting.events._crowd import CrowdEvent, count_honest, share_of_honest
from fastfedrec.accounting.events._event import Event, EventLoss, View, check_name, store
from fastfedrec.accounting.shuffle import shuffled_loss, split_reports, zero_out_loss
from fastfedrec.core.check import check_choice, check_epsilon, check_flag, check_integer, check_real


class Reports(CrowdEvent):
    """Base class of local and shuffled reports, which users randomize on their own devices."""

    epsilon: float
    n_reports: int
    n_users: int

    def _check_fields(self, relations: tuple[str, ...], trust: str) -> None:
        """Check the fields that both kinds have."""
        for name, choices in (("neighboring", relations), ("privacy_unit", ("user",)), ("trust", (trust,))):
            check_choice(name, getattr(self, name), choices)
        store(
            self,
            epsilon=check_epsilon("epsilon", self.epsilon),
            n_reports=check_integer("n_reports", self.n_reports, low=0),
            n_users=check_integer("n_users", self.n_users, low=0),
        )

    def _pure_cost(self) -> tuple[float, int] | None:
        # Shuffled reports count with their local guarantee, which needs no shuffler.
        return self.epsilon, self.n_reports

    def _unshuffled(self) -> "LocalReports":
        """Return the reports with their local guarantee alone."""
        return LocalReports(self.mechanism, self.epsilon, self.n_reports, self.n_users)

    def _in_crowd(self, n_users: int, n_honest: int) -> "Reports":
        """Return the same reports in another crowd."""
        return replace(self, n_users=n_users)

    def _details(self) -> str:
        return f", {self.n_reports:,} reports a user and round, {self.n_users:,} users{super()._details()}"


@dataclass(frozen=True)
class LocalReports(Reports):
    """Randomized reports of every user, protected on the user's own device.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer.
    epsilon : float
        Epsilon of one report, in nats, exact for the sampler that ran (rounded up).
    n_reports : int
        Number of reports of one user in one round.
    n_users : int
        Number of users who were requested.
    separable : bool
        Whether each report is a binary response that is useful alone, about a subject that is drawn independently of
        the user's data.  Then a shuffler may break the link between any two reports, and hides each among the reports
        of the other users.
    neighboring : {"replace"}
        Neighbouring relation: one user's data are replaced by any others.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"local"}
        Only the user's own device is trusted.
    """

    mechanism: str
    epsilon: float
    n_reports: int
    n_users: int
    separable: bool = False
    neighboring: Literal["replace"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["local"] = "local"

    def __post_init__(self) -> None:
        check_name(self)
        store(self, separable=check_flag("separable", self.separable))
        self._check_fields(("replace",), "local")

    def _seen_by(self, view: View) -> Event:
        # A crowd needs at least two honest users; otherwise the local guarantee is all that holds.
        if view == "server" or not self.separable or self.n_users < 2:
            return self._unshuffled()
        return self._shuffled()

    def _dp_event(self, dp: Any) -> tuple[Any, int]:
        return self._pure_dp_event(dp)

    def _shuffled(self, honest_fraction: float = 1.0) -> "ShuffledReports":
        """Return the reports behind a shuffler, which may break the link between any two of them."""
        return ShuffledReports(self.mechanism, self.epsilon, self.n_reports, self.n_users, honest_fraction)


@dataclass(frozen=True)
class ShuffledReports(Reports):
    """Binary or largest responses of every user, with the senders removed by a shuffler before the server sees them.

    Parameters
    ----------
    mechanism : str
        Name of the local randomizer, binary or largest response.  Data must not choose the number of reports or their
        subjects, except for the choice of a largest response among its candidates.
    epsilon : float
        Epsilon of one report, in nats, exact for the sampler that ran (rounded up).
    n_reports : int
        Number of reports of one user in one round; no two of them can be linked.
    n_users : int
        Number of users who were requested; each sends `n_reports` reports.
    honest_fraction : float
        Share of the users, in (0, 1], who follow the protocol and do not reveal their reports.
    neighboring : {"replace", "zero_out"}
        Neighbouring relation: one user's data are replaced by any others, or by none, so that each of the user's
        reports is drawn uniformly.
    privacy_unit : {"user"}
        All data of one user.
    trust : {"shuffle"}
        The shuffler is trusted to break every link, and not to collude with the server.
    n_candidates : int
        Number of candidates of `LargestResponse`; 1 for binary response.
    """

    mechanism: str
    epsilon: float
    n_reports: int
    n_users: int
    honest_fraction: float = 1.0
    neighboring: Literal["replace", "zero_out"] = "replace"
    privacy_unit: Literal["user"] = "user"
    trust: Literal["shuffle"] = "shuffle"
    n_candidates: int = 1

    def __post_init__(self) -> None:
        check_name(self)
        self._check_fields(("replace", "zero_out"), "shuffle")
        store(self, n_candidates=check_integer("n_candidates", self.n_candidates, low=1))
        store(self, honest_fraction=check_real("honest_fraction", self.honest_fraction, low=0.0, high=1.0))
        if not self.n_honest_users:
            raise ValueError(
                f"honest_fraction times n_users must be at least 1 user, got {self.honest_fraction} of {self.n_users}"
            )

    @property
    def n_honest_users(self) -> int:
        """Number of honest users, rounded down; a report hides among these.

        Returns
        -------
        int
            At least 1.
        """
        return count_honest(self.n_users, self.honest_fraction)

    @property
    def _n_honest(self) -> int:
        return self.n_honest_users

    def _loss(self) -> EventLoss:
        uses = self.n_reports
        if self.n_candidates > 1:
            loss = largest_response_loss(self.epsilon, self.n_candidates, self.n_honest_users, self.neighboring)
        elif self.neighboring == "zero_out":
            # All reports of one user in a batch are one use.
            per_batch, uses = split_reports(self.n_reports)
            loss = zero_out_loss(self.epsilon, per_batch, self.n_honest_users)
        else:
            loss = shuffled_loss(self.epsilon, self.n_honest_users)
        return (lambda _: loss), uses

    def _seen_by(self, view: View) -> Event:
        if view == "server" or self.n_honest_users < 2:
            return self._unshuffled()
        return replace(self, neighboring="replace")

    def _in_crowd(self, n_users: int, n_honest: int) -> Reports:
        if n_honest < 1:
            return self._unshuffled()
        return replace(self, n_users=n_users, honest_fraction=share_of_honest(n_honest, n_users))

    def _protection(self, view: View) -> str:
        return "shuffling" if view == "shuffled_server" else "adding up over users"
