"""A server's records of the messages of each round, from which it resumes a run."""

from dataclasses import astuple
from typing import Any

from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.check import check_integer
from fastfedrec.core.kept_files import checking
from fastfedrec.rounds.checkpoint import Checkpoint, read_traffic
from fastfedrec.rounds.receiver import PartialRound, Rejection, RoundReceiver
from fastfedrec.rounds.system import Update, find_violation

__all__ = ["RoundRecords"]

_FIELDS = ("n_clients", "answered", "traffic", "rejections")


class RoundRecords(Checkpoint):
    """One file for each round, in a folder that only its owner can read: sums before the server's noise."""

    def recall(self, phase: int, receiver: RoundReceiver) -> tuple[PartialRound, RoundTraffic] | None:
        """Return the recorded messages and traffic of a round, or None if the round has no record."""
        name = _name(phase, receiver.round)
        stored = self._read(name, _FIELDS)
        if stored is None:
            return None
        header, arrays = stored
        with checking(self.folder / name, self._remedy):
            answered = frozenset(map(_text, header["answered"]))
            if answered - set(receiver.expected):
                raise ValueError("answered must only have members of the run")
            total = Update(receiver.round, "merged", check_integer("n_clients", header["n_clients"], low=0), arrays)
            if total.n_clients > sum(receiver.expected[sender] for sender in answered):
                raise ValueError(f"n_clients must be at most the users of nodes that answered, got {total.n_clients}")
            if violation := find_violation(receiver.system.rules(receiver.state, total.n_clients), arrays):
                raise ValueError(violation)
            rejections = tuple(
                Rejection(check_integer("round", number, low=-1), _text(sender), _text(reason))
                for number, sender, reason in header["rejections"]
            )
            return PartialRound(total, rejections, answered), read_traffic(header["traffic"])

    def keep(self, phase: int, partial: PartialRound, traffic: RoundTraffic) -> None:
        """Record a round before the server draws its noise."""
        header = {
            "n_clients": partial.total.n_clients, "answered": sorted(partial.answered), "traffic": astuple(traffic),
            "rejections": [astuple(rejection) for rejection in partial.rejections],
        }  # fmt: skip
        self._write(_name(phase, partial.total.round), header, partial.total.arrays)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"names and reasons must be text, got {type(value).__name__}")
    return value


def _name(phase: int, round_number: int) -> str:
    return f"round-{phase}-{round_number}"
