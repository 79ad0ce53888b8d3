"""The Flower engine with a shuffler: nodes confirm their reports, and the shuffler sends all reports of a round."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.events import Event, LocalReports
from fastfedrec.core.randomness import Key
from fastfedrec.engines.flower.server import FlowerEngine
from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.refusals import ShufflerError
from fastfedrec.engines.shuffling.reports import decode_reports
from fastfedrec.engines.shuffling.sealing import SEALED_BYTES, ServerKeys
from fastfedrec.rounds.receiver import Rejection, RoundReceiver
from fastfedrec.rounds.system import FederatedSystem, Update

if TYPE_CHECKING:
    from flwr.app import Message

__all__ = ["ShuffledFlowerEngine"]

# The shuffler's name in rejections and records.
_NAME = "shuffler"
# Maximum size of an encoded report that is not sealed.
_BYTES_PER_REPORT = 8
_UNSEALED_NOTE = (
    "The shuffler reads reports, since the run has unsealed=True. It must not be the server, and against the shuffler "
    "only the local guarantee holds."
)
# Seconds until the next attempt to reach the shuffler.
_RETRY_INTERVAL = 1.0


@dataclass
class _BatchReceiver(RoundReceiver):
    """Receiver of a round with one message, a batch of at least `min_crowd` users."""

    min_crowd: int = 1

    def _accepts_count(self, n_clients: int, n_expected: int) -> bool:
        return self.min_crowd <= n_clients <= n_expected


class ShuffledFlowerEngine(FlowerEngine):
    """A `FlowerEngine` with a shuffler; the ledger uses the shuffler's guarantee only for rounds with a batch."""

    def __init__(
        self,
        *arguments: Any,
        shuffler: ShufflerClient,
        min_crowd: int,
        honest_fraction: float,
        keys: ServerKeys | None = None,
        **options: Any,
    ):
        super().__init__(*arguments, **options)
        self._shuffler, self._min_crowd, self._honest_fraction = shuffler, min_crowd, honest_fraction
        # Keys that open sealed reports; None if the shuffler reads them.
        self._keys = keys
        # Name of the key of the open round, and the number of nodes that sent their reports in it.
        self._key_name, self._n_senders = "", 0

    def _receiver(
        self, system: FederatedSystem, state: Any, round_number: int, expected: Mapping[str, int]
    ) -> RoundReceiver:
        return _BatchReceiver(system, state, round_number, {_NAME: sum(expected.values())}, min_crowd=self._min_crowd)

    def _amend(self, ledger: Ledger, event: Event, n_heard: int) -> None:
        if self._keys is None:
            ledger.note(_UNSEALED_NOTE, "assumption")
        if isinstance(event, LocalReports) and n_heard >= self._min_crowd:
            ledger.confirm_shuffled(event, self._min_crowd, self._honest_fraction)
        else:
            super()._amend(ledger, event, n_heard)
            # Reports that were sent may have been seen without a batch of other users around them.
            ledger.note(
                "A round had no batch after its reports were sent. The ledger counts this round without a shuffler.",
                "choice",
            )

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int
    ) -> Iterable[Update]:
        state, round_number = receiver.state, receiver.round
        question = self._question(state, round_number)
        deadline = time.monotonic() + self._round_timeout
        replies: list[tuple[str, Message]] = []
        while True:
            is_last = time.monotonic() > deadline
            batch, failure = b"", None
            try:
                if self._open(state, round_number):  # released before this server was killed
                    batch = self._release(round_number, 0)
                    break
                replies = self._exchange(question, handles)
                batch = self._fetch(replies, round_number, is_last)
                break
            except ShufflerError as error:
                failure = Rejection(round_number, _NAME, str(error)[:500])
                if is_last or error.is_final:
                    break
            time.sleep(_RETRY_INTERVAL)
        self._count(question, replies, len(batch))
        self._n_senders = len(replies)
        for name, reply in replies:
            reason, _ = self._reason_unsent(reply, round_number) or ("", False)
            self._n_senders -= bool(reason)
            self.rejections += [Rejection(round_number, name, reason)] if reason else []
        if failure is not None:
            self.rejections.append(failure)
            return
        try:
            rounds = self._deployment.separable()
            index, bit = self._read_batch(batch, rounds.n_coordinates(state), round_number)
            # After refused reports, the rest of a user's number is dropped: the crowd counts whole users.
            n_users = len(index) // rounds.n_reports
            kept = slice(n_users * rounds.n_reports)
            yield rounds.collect_reports(state, index[kept], bit[kept], round_number, sender=_NAME, n_clients=n_users)
        except ValueError as error:
            self.rejections.append(Rejection(round_number, _NAME, str(error)[:500]))

    def _count_answers(self, receiver: RoundReceiver) -> int:
        return self._n_senders

    def _read_batch(self, batch: bytes, n_coordinates: int, round_number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the reports of a batch, and record refused ones."""
        if self._keys is None:
            return decode_reports(batch, n_coordinates)
        run = self._request["run"]
        reports = self._keys.unseal(self._key_name, batch, n_coordinates=n_coordinates, run=run, round=round_number)
        for reason, n in reports.refused.items():
            self.rejections.append(Rejection(round_number, _NAME, f"reports were refused: {n} {reason}"))
        return reports.index, reports.bit

    def _open(self, state: Any, round_number: int) -> bool:
        """Check the shuffler's configuration and open the round; return whether its batch is already released."""
        # This is before the request to nodes, so a shuffler with another configuration gets no report.
        about = self._shuffler.about()
        rounds = self._deployment.separable()
        expected = {"n_reports": rounds.n_reports, "n_coordinates": rounds.n_coordinates(state)}
        if about["min_crowd"] < self._min_crowd or any(about[name] != expected[name] for name in expected):
            expected["min_crowd"] = self._min_crowd
            raise ShufflerError(f"the shuffler is configured for {about}, and the server for {expected}", is_final=True)
        self._key_name = about.get("server_key", "")
        names = ("",) if self._keys is None else self._keys.names
        if self._key_name not in names:
            expects = "reads reports" if self._keys is None else f"has the keys {[name[:16] for name in names]}"
            raise ShufflerError(
                f"the shuffler's key of the server is {self._key_name[:16]!r}, and this run {expects}; start the "
                "shuffler with --server-key and the public key of the server, or with --unsealed",
                is_final=True,
            )
        return self._shuffler.open(self._request["run"], round_number)

    def _fetch(self, replies: list[tuple[str, "Message"]], round_number: int, is_last: bool) -> bytes:
        """Return the batch; raise ShufflerError if reports are missing and the round should be requested again."""
        failures = [(name, self._reason_unsent(reply, round_number)) for name, reply in replies]
        if not is_last and any(failure is not None and failure[1] for _, failure in failures):
            raise ShufflerError("not every node reached the shuffler")
        n_sent = sum(self.members[name] for name, failure in failures if failure is None)
        if n_sent < self._min_crowd:
            raise ShufflerError(
                f"a batch must have at least {self._min_crowd} users, got reports of {n_sent}", is_final=True
            )
        # At the deadline any batch of at least `min_crowd` users is accepted.
        return self._release(round_number, 0 if is_last else n_sent)

    def _release(self, round_number: int, n_users: int) -> bytes:
        n_bytes = _BYTES_PER_REPORT if self._keys is None else SEALED_BYTES
        max_bytes = n_bytes * self._deployment.separable().n_reports * sum(self.members.values())
        return self._shuffler.release(self._request["run"], round_number, n_users, max_bytes=max_bytes)

    def _reason_unsent(self, reply: "Message", round_number: int) -> tuple[str, bool] | None:
        """Return why a node's reports are not with the shuffler and whether to retry, or None if they are."""
        try:
            _, values = self._content(reply, 4096)
            if values.get("unsent") is not None:
                return f"it could not send its reports: {str(values['unsent'])[:400]}", values.get("again") is True
            return None if values["round"] == round_number else (f"it answers round {values['round']!r}", False)
        except Exception as error:  # a hostile message must not stop the run, whatever error it causes
            return (str(error)[:500] if type(error) is ValueError else f"unreadable ({type(error).__name__})"), False
