"""The checkpoint of a `fit` with rounds, which runs again from its start with the recorded messages of each round.

A fit between two rounds depends on its data, its key and the messages alone, so the repeated fit has the same bits.  It
asks no client for a recorded round, and its ledger has each round once, also one that has some of the rounds already.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fastfedrec.accounting import Ledger, Note, RoundTraffic
from fastfedrec.accounting.events import Event
from fastfedrec.accounting.notes import note_from_json, note_to_json
from fastfedrec.core.files import write_text
from fastfedrec.core.kept_files import DamagedFileError, checking, is_kept, read_document, write_document
from fastfedrec.core.randomness import Key
from fastfedrec.rounds.receiver import PartialRound, RoundReceiver
from fastfedrec.rounds.round_records import RoundRecords
from fastfedrec.rounds.run_account import RunAccount
from fastfedrec.rounds.system import FederatedSystem

__all__ = ["StoredFit"]

_LEDGER = "ledger.json"
_BEFORE = "before.json"
_MISSING_NOTE = "The ledger includes costs that were in the ledger of a run when it was interrupted."
_RECORD = re.compile(r"round-(\d+)-(\d+)")


class StoredFit(RoundRecords):
    """Key, ledger and records of the rounds of one fit, in a folder that only its owner can read."""

    #: Whether a fit has opened the folder; the fit of an inner model then uses it as it is.
    is_open = False
    #: Whether the caller passed the ledger, and may pass it to a fit that resumes the run.
    has_shared_ledger = False
    #: Number of the current phase of rounds, counted from 0.
    _phase = -1
    #: The charges of the run to the ledger of the fit.
    account: RunAccount
    _written: str | None = None  # digest of the ledger in the folder

    def open(self, key: Key | None) -> Key:
        """Return the key of the run, which a new run draws or takes from the caller."""
        key = self.resolve_key(key)
        self.is_open = True
        return key

    def next_phase(self) -> None:
        """Count the phases of rounds, which a repeated fit runs in the same order."""
        self._phase += 1

    # ---- the ledger -------------------------------------------------------------------------------------------------

    def open_account(self, ledger: Ledger) -> None:
        """Add all costs in the folder to a ledger: those of the run, and those that its ledger had before."""
        charged, path = Counter[Event](), self.folder / _LEDGER
        if is_kept(path):
            with checking(path, self._remedy):
                text = path.read_text()
                # The figures of a long run may take longer to compute than `from_json` allows.
                stored = Ledger.from_json(text, check_costs=False)
                if json.loads(text)["digest"] != stored.digest():
                    raise ValueError("its digest differs from that of its content")
            charged = stored.runs.pop(str(self.run), charged)
            stored.events -= charged
            self._add_missing(ledger, stored)
        self.account = RunAccount(ledger, str(self.run), charged)

    def _add_missing(self, ledger: Ledger, stored: Ledger) -> None:
        """Add costs that the ledger of the interrupted run had before, since the caller may pass another ledger."""
        total = ledger.events.total()
        for run, events in stored.runs.items():
            ledger._set_run(run, ledger._of_run(run) | events)
        ledger.events.update(stored.events - (ledger.events - ledger._of_run(self.run)))
        if ledger.events.total() > total:
            ledger.note(_MISSING_NOTE, "choice")

    def charge(self, ledger: Ledger) -> None:
        """Write the ledger with the open round, before any message of the round exists."""
        self.account.end_replay()
        if self._written == (digest := ledger.digest()):
            return
        write_text(self.folder / _LEDGER, ledger.to_json(), private=True)
        self._written = digest

    def uncharged(self, ledger: Ledger, plan: Mapping[Event, int]) -> Counter[Event]:
        """Return the events of a plan of the whole run that the ledger does not have."""
        return Counter(plan) - ledger._of_run(self.run)

    def costs_before(self) -> list[tuple[Ledger, Note]]:
        """Return ledger and note of each unfinished fit of the model before this run, which the run includes."""
        path = self.folder / _BEFORE
        if not is_kept(path):
            return []
        with checking(path, self._remedy):
            fits = read_document(path, ("fits",))["fits"]
            return [(Ledger.from_dict(ledger, check_costs=False), note_from_json(note)) for ledger, note in fits]

    def keep_costs_before(self, fits: Sequence[tuple[Ledger, Note]]) -> None:
        """Write the unfinished fits of the model before this run."""
        if fits:
            entries = [(ledger.to_dict(), note_to_json(note)) for ledger, note in fits]
            write_document(self.folder / _BEFORE, {"fits": entries})

    # ---- rounds -----------------------------------------------------------------------------------------------------

    def recall_round(self, receiver: RoundReceiver, shards: Mapping[str, Any]) -> bool:
        """Pass the recorded messages of a round to its receiver, and the devices their state; False without record."""
        recorded = self.recall(self._phase, receiver)
        if recorded is None:
            self._check_last(receiver.round)
            return False
        receiver.add(recorded[0])
        self._recall_devices(receiver.system, receiver.round, shards)
        return True

    def keep_round(
        self,
        system: FederatedSystem,
        partial: PartialRound,
        traffic: RoundTraffic,
        shards: Mapping[str, Any],
        ledger: Ledger,
    ) -> None:
        """Record the messages of a round and the state of devices, before the server's step may draw noise."""
        self.charge(ledger)  # fewer clients than requested may have answered, who hide each other less
        # The record is last: without it, the round is repeated from the devices of the round before.
        self._keep_devices(system, partial.total.round, shards)
        self.keep(self._phase, partial, traffic)

    def _check_last(self, round_number: int) -> None:
        """Raise if there are records of later rounds than the first one without a record."""
        matches = filter(None, (_RECORD.fullmatch(path.name) for path in self.folder.iterdir()))
        last = max(((int(match[1]), int(match[2])) for match in matches), default=(-1, -1))
        if last > (self._phase, round_number):
            name = f"round-{self._phase}-{round_number}"
            path = self.folder / "round-{}-{}".format(*last)
            raise DamagedFileError(path, f"the earlier record {name} of its run is missing", self._remedy)

    # Two files take turns, since a fit may read devices of the last two rounds: after divergence it returns to the
    # earlier one.
    def _devices_name(self, round_number: int) -> str:
        return f"devices-{self._phase}-{round_number % 2}"

    def _keep_devices(self, system: FederatedSystem, round_number: int, shards: Mapping[str, Any]) -> None:
        arrays = {
            f"{position}.{name}": array
            for position, sender in enumerate(shards)
            for name, array in system.pack_devices(sender).items()
        }
        if arrays:
            self._write(self._devices_name(round_number), {"round": round_number}, arrays)

    def _recall_devices(self, system: FederatedSystem, round_number: int, shards: Mapping[str, Any]) -> None:
        stored = self._read(name := self._devices_name(round_number), ("round",))
        if stored is None or stored[0]["round"] != round_number:
            return
        with checking(self.folder / name, self._remedy):
            for position, (sender, shard) in enumerate(shards.items()):
                prefix = f"{position}."
                arrays = {name.removeprefix(prefix): a for name, a in stored[1].items() if name.startswith(prefix)}
                system.put_devices(sender, system.unpack_devices(arrays, round_number + 1, shard))
