"""The server's side of one round: each message is held against the rules before it counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastfedrec.rounds.system import FederatedSystem, Update, find_violation

__all__ = ["Heard", "Rejection", "RoundReceiver"]


@dataclass(frozen=True)
class Rejection:
    """A message that was not used, by name.

    Parameters
    ----------
    round : int
        The round the server was in.
    sender : str
        As the message claims.
    reason : str
        Why it counts as a zero update.
    """

    round: int
    sender: str
    reason: str


@dataclass(frozen=True)
class Heard:
    """What came of some senders' messages, to be joined with what came of others'.

    Parameters
    ----------
    total : Update
        The sum of what was accepted.
    rejections : tuple of Rejection
        What was not.
    answered : frozenset of str
        Whose message was accepted.
    """

    total: Update
    rejections: tuple[Rejection, ...]
    answered: frozenset[str]


@dataclass
class RoundReceiver:
    """The server's side of one round: checks what arrives, adds up what is sound, names what is not.

    A bad, late, repeated or missing message never stops the round; it counts as a zero update.

    Parameters
    ----------
    system : FederatedSystem
        Gives the rules and the merge.
    state : object
        The state that was broadcast.
    round : int
        The open round.
    expected : mapping of str to int
        Each sender asked, and the number of users it stands for.

    Attributes
    ----------
    total : Update
        The sum of what was accepted.
    rejections : list of Rejection
        In order of arrival; missing senders last.
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
            Anything a stranger sent.

        Returns
        -------
        bool
            Whether it was accepted.
        """
        try:
            reason = self._reason_to_reject(message)
        except Exception as error:  # whatever a hostile object does when looked at, the round goes on
            reason = f"could not be read ({type(error).__name__})"
        if reason is not None:
            sender = getattr(message, "sender", None)
            self.rejections.append(Rejection(self.round, sender if type(sender) is str else "unknown", reason))
            return False
        self._answered.add(message.sender)
        self.total = self.system.merge(self.total, message)
        return True

    def heard(self) -> Heard:
        """What has come so far, to be added by another receiver of the same round.

        Returns
        -------
        Heard
            Without the system and the state, so that it is as small as an update.
        """
        return Heard(self.total, tuple(self.rejections), frozenset(self._answered))

    def add(self, heard: Heard) -> None:
        """Add what another receiver of this round has checked and summed, where messages were sent to.

        Parameters
        ----------
        heard : Heard
            Of senders who are expected here, and from whom nothing has come yet.
        """
        if heard.total.round != self.round or heard.answered & self._answered or heard.answered - set(self.expected):
            raise ValueError(f"heard must be of round {self.round} and of senders who have not answered")
        self.total = self.system.merge(self.total, heard.total)
        self.rejections += heard.rejections
        self._answered |= heard.answered

    def close(self) -> Update:
        """End the round and name who did not answer.

        Returns
        -------
        Update
            The sum of what was accepted; the zero update if nothing was.
        """
        for sender in self.expected:
            if sender not in self._answered:
                self.rejections.append(Rejection(self.round, sender, "no acceptable message arrived"))
        return self.total

    def _accepts_count(self, n_clients: int, n_expected: int) -> bool:
        """Whether an answer counts for those who were asked: a shard that answers does so for all of its users."""
        return n_clients == n_expected

    def _reason_to_reject(self, message: Any) -> str | None:
        if type(message) is not Update:
            return f"must be an Update, got {type(message).__name__}"
        if type(message.sender) is not str or message.sender not in self.expected:
            return f"the sender {message.sender!r} was not asked in this round"
        if type(message.round) is not int or message.round != self.round:
            return f"it answers round {message.round!r}, and round {self.round} is open (late or replayed)"
        if message.sender in self._answered:
            return "the sender has answered this round before (replayed)"
        n_expected = self.expected[message.sender]
        if type(message.n_clients) is not int or not self._accepts_count(message.n_clients, n_expected):
            return f"it claims {message.n_clients!r} clients, and {n_expected} were asked"
        if violation := find_violation(self.system.rules(self.state, message.n_clients), message.arrays):
            return violation
        return self.system.inconsistency(self.state, message)
