"""The server's side of one round: each message is checked against the rules before it is added."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastfedrec.core.old_names import OldAttribute, refuse_old_names
from fastfedrec.rounds.system import FederatedSystem, Update, find_violation

__all__ = ["PartialRound", "Rejection", "RoundReceiver", "count_kinds"]


# Kinds of reasons by their first words, the longer ones first.
REJECTION_KINDS = {
    "no acceptable message": "missing",
    "it answers round": "late",
    "the sender has answered": "repeated",
    "the sender": "unexpected",
    "could not be read": "unreadable",
    "unreadable": "unreadable",
    "the node refuses": "refused by the node",
    "the node failed": "failed",
    "it could not send its reports": "unsent",
    "reports were refused": "reports",
}


@dataclass(frozen=True)
class Rejection:
    """Record of a message that was rejected or missing.

    Parameters
    ----------
    round : int
        Number of the server's open round.
    sender : str
        Name of the sender as the message claims it.
    reason : str
        Reason why the message counts as a zero update.
    """

    round: int
    sender: str
    reason: str

    @property
    def kind(self) -> str:
        """Kind of the reason, for counts.

        Returns
        -------
        str
            "missing", "late", "repeated", "unexpected", "unreadable", "refused by the node", "failed", "unsent",
            "reports", or "invalid" for all other reasons.
        """
        return next((kind for words, kind in REJECTION_KINDS.items() if self.reason.startswith(words)), "invalid")


def count_kinds(rejections: Sequence[Rejection]) -> Counter[str]:
    """Count the rejections of a round by kind; a sender with a refused message is not missing as well.

    Parameters
    ----------
    rejections : sequence of Rejection
        Rejections of one round.

    Returns
    -------
    Counter of str
        Numbers by `Rejection.kind`.
    """
    # The receiver lists a sender again if all of its messages were refused.
    refused = [rejection for rejection in rejections if rejection.kind != "missing"]
    senders = {rejection.sender for rejection in refused}
    missing = [one for one in rejections if one.kind == "missing" and one.sender not in senders]
    return Counter(rejection.kind for rejection in refused + missing)


@dataclass(frozen=True)
class PartialRound:
    """Partial result of a round, which another receiver of the same round can add.

    Parameters
    ----------
    total : Update
        Sum of the accepted messages.
    rejections : tuple of Rejection
        Messages that were rejected.
    answered : frozenset of str
        Senders with an accepted message.
    """

    total: Update
    rejections: tuple[Rejection, ...]
    answered: frozenset[str]


@dataclass
class RoundReceiver:
    """The server's side of one round: it checks each message, adds the valid ones and records the rejected ones.

    A bad, late, repeated or missing message never stops the round; it counts as a zero update.

    Parameters
    ----------
    system : FederatedSystem
        System that defines the rules and the merge.
    state : object
        State that was broadcast.
    round : int
        Number of the open round.
    expected : mapping of str to int
        Number of users of each sender in the cohort.

    Attributes
    ----------
    total : Update
        Sum of the accepted messages.
    rejections : list of Rejection
        Rejected messages in order of arrival, then missing senders.
    """

    system: FederatedSystem
    state: Any
    round: int
    expected: Mapping[str, int]
    rejections: list[Rejection] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.total = self.system.zero_update(self.state, self.round)
        self._answered: set[str] = set()

    def receive(self, message: Any) -> bool:
        """Check one message and add it.

        Parameters
        ----------
        message : object
            Untrusted input.

        Returns
        -------
        bool
            True for an accepted message.
        """
        try:
            reason = self._reason_to_reject(message)
        except Exception as error:  # a hostile object may raise any error, which must not stop the round
            reason = f"could not be read ({type(error).__name__})"
        if reason is not None:
            # The name is untrusted too; a record contains it only as a plain string.
            sender = getattr(message, "sender", None)
            self.rejections.append(Rejection(self.round, sender if type(sender) is str else "unknown", reason))
            return False
        self._answered.add(message.sender)
        self.total = self.system.merge(self.total, message)
        return True

    def partial_round(self) -> PartialRound:
        """Return the partial result, for another receiver of the same round.

        Returns
        -------
        PartialRound
            Result without the system and the state, so that it is as small as an update.
        """
        return PartialRound(self.total, tuple(self.rejections), frozenset(self._answered))

    heard = OldAttribute("partial_round")

    def add(self, partial: PartialRound) -> None:
        """Add the partial result of another receiver of this round.

        Parameters
        ----------
        partial : PartialRound
            Result for expected senders that have not answered to this receiver.
        """
        is_unexpected = partial.answered & self._answered or partial.answered - set(self.expected)
        if partial.total.round != self.round or is_unexpected:
            raise ValueError(f"partial must be of round {self.round} and of expected senders who have not answered")
        # The other receiver applied the rules already, so the sum is added without a second check.
        self.total = self.system.merge(self.total, partial.total)
        self.rejections += partial.rejections
        self._answered |= partial.answered

    def close(self) -> Update:
        """End the round and record the senders that did not answer.

        Returns
        -------
        Update
            Sum of the accepted messages; the zero update if there are none.
        """
        # A sender with only rejected messages is listed again, unlike one that corrected its message.
        for sender in self.expected:
            if sender not in self._answered:
                self.rejections.append(Rejection(self.round, sender, "no acceptable message arrived"))
        return self.total

    def _accepts_count(self, n_clients: int, n_expected: int) -> bool:
        """Return whether a message of `n_clients` users is acceptable: a shard answers for all of its users."""
        return n_clients == n_expected

    def _reason_to_reject(self, message: Any) -> str | None:
        # Exact types only: a subclass could return other values at the second access than at the check.
        if type(message) is not Update:
            return f"must be an Update, got {type(message).__name__}"
        if type(message.sender) is not str or message.sender not in self.expected:
            return f"the sender {message.sender!r} is not expected in this round"
        if type(message.round) is not int or message.round != self.round:
            return f"it answers round {message.round!r}, and round {self.round} is open (late or replayed)"
        # A sender's second message in a round would add its users' contributions twice.
        if message.sender in self._answered:
            return "the sender has answered this round before (replayed)"
        n_expected = self.expected[message.sender]
        if type(message.n_clients) is not int or not self._accepts_count(message.n_clients, n_expected):
            return f"it claims {message.n_clients!r} clients, and {n_expected} were expected"
        if violation := find_violation(self.system.rules(self.state, message.n_clients), message.arrays):
            return violation
        return self.system.inconsistency(self.state, message)


refuse_old_names(__name__, Heard="PartialRound")
