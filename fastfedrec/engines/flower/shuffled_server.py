"""The Flower engine behind a shuffler: nodes say that they have sent, and all reports of a round come at once."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.events import Event, LocalReports
from fastfedrec.core.randomness import Key
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.engines.shuffling.reports import decode_reports
from fastfedrec.engines.shuffling.shuffler import ShufflerClient, ShufflerError
from fastfedrec.rounds.receiver import Rejection, RoundReceiver
from fastfedrec.rounds.system import FederatedSystem, Update

if TYPE_CHECKING:
    from flwr.app import Message

__all__ = ["ShuffledFlowerEngine"]

_NAME = "shuffler"
_BYTES_PER_REPORT = 8  # at most
_PAUSE = 1.0  # seconds until a shuffler that is away is looked for again


@dataclass
class _BatchReceiver(RoundReceiver):
    """A round with one answer, for as many users as were heard."""

    min_crowd: int = 1

    def _accepts_count(self, n_clients: int, n_expected: int) -> bool:
        return self.min_crowd <= n_clients <= n_expected


class ShuffledFlowerEngine(FlowerEngine):
    """As `FlowerEngine`, and the ledger counts on the shuffler in those rounds alone in which a batch came from it."""

    def __init__(
        self, *arguments: Any, shuffler: ShufflerClient, min_crowd: int, honest_fraction: float, **options: Any
    ):
        super().__init__(*arguments, **options)
        self._shuffler, self._min_crowd, self._honest_fraction = shuffler, min_crowd, honest_fraction

    def _receiver(
        self, system: FederatedSystem, state: Any, round_number: int, expected: Mapping[str, int]
    ) -> RoundReceiver:
        return _BatchReceiver(system, state, round_number, {_NAME: sum(expected.values())}, min_crowd=self._min_crowd)

    def _amend(self, ledger: Ledger, event: Event, n_heard: int) -> None:
        if isinstance(event, LocalReports) and n_heard >= self._min_crowd:
            ledger.confirm_shuffled(event, self._min_crowd, self._honest_fraction)
        else:
            super()._amend(ledger, event, n_heard)
            ledger.note("a round's reports left their users and no batch came: it is counted as without a shuffler")

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int
    ) -> Iterable[Update]:
        state, round_number = receiver.state, receiver.round
        question = self._question(state, round_number)
        deadline = time.monotonic() + self._round_timeout
        replies: list[tuple[str, Message]] = []
        while True:
            is_last = time.monotonic() > deadline
            batch, complaint = b"", None
            try:
                if self._open(state, round_number):  # released to this server before it was killed
                    batch = self._release(round_number, 0)
                    break
                replies = self._exchange(question, handles)
                batch = self._fetch(replies, round_number, is_last)
                break
            except ShufflerError as error:
                complaint = Rejection(round_number, _NAME, str(error)[:500])
                if is_last or error.is_final:
                    break
            time.sleep(_PAUSE)
        self._count(question, replies, len(batch))
        for name, reply in replies:
            reason, _ = self._complaint(reply, round_number) or ("", False)
            self.rejections += [Rejection(round_number, name, reason)] if reason else []
        if complaint is not None:
            self.rejections.append(complaint)
            return
        try:
            reports = decode_reports(batch, self._deployment.n_coordinates(state))
            yield self._deployment.add_up(state, *reports, round_number, _NAME)
        except ValueError as error:
            self.rejections.append(Rejection(round_number, _NAME, str(error)[:500]))

    def _open(self, state: Any, round_number: int) -> bool:
        """Before anybody is asked: a shuffler that is set up for something else gets no report at all."""
        about = self._shuffler.about()
        n_coordinates = self._deployment.n_coordinates(state)
        wanted = {"n_reports": self._deployment.check_separable(), "n_coordinates": n_coordinates}
        if about["min_crowd"] < self._min_crowd or any(about[name] != wanted[name] for name in wanted):
            wanted["min_crowd"] = self._min_crowd
            raise ShufflerError(f"the shuffler is set up for {about}, and the server for {wanted}", is_final=True)
        return self._shuffler.open(self._request["run"], round_number)

    def _fetch(self, replies: list[tuple[str, "Message"]], round_number: int, is_last: bool) -> bytes:
        """The batch; a ShufflerError where some of it has not come or was lost, and all are to be asked once more."""
        told = [(name, self._complaint(reply, round_number)) for name, reply in replies]
        if not is_last and any(complaint is not None and complaint[1] for _, complaint in told):
            raise ShufflerError("not every node reached it")
        sent = sum(self.members[name] for name, complaint in told if complaint is None)
        if sent < self._min_crowd:
            raise ShufflerError(f"{sent} users have sent reports, and a batch takes {self._min_crowd}", is_final=True)
        return self._release(round_number, 0 if is_last else sent)

    def _release(self, round_number: int, n_users: int) -> bytes:
        most = _BYTES_PER_REPORT * self._deployment.check_separable() * sum(self.members.values())
        return self._shuffler.release(self._request["run"], round_number, n_users, max_bytes=most)

    def _complaint(self, reply: "Message", round_number: int) -> tuple[str, bool] | None:
        """Why a node's reports are not with the shuffler, and whether to ask it again; None where they are."""
        try:
            _, told = self._content(reply, 4096)
            if told.get("unsent") is not None:
                return f"it could not send its reports: {str(told['unsent'])[:400]}", told.get("again") is True
            return None if told["round"] == round_number else (f"it answers round {told['round']!r}", False)
        except Exception as error:  # whatever a hostile message does when looked at, the others are heard
            return (str(error)[:500] if type(error) is ValueError else f"unreadable ({type(error).__name__})"), False
