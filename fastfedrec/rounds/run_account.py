"""The charges of a run with a checkpoint to a ledger that may have some of them already."""

from collections import Counter
from collections.abc import Mapping

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.events import Event

__all__ = ["RunAccount"]


class RunAccount:
    """Writes the events of one run to a ledger, which always has at least those that processes recorded before.

    A resumed run records its rounds again.  The ledger has the maximum of both numbers for each event of the run, so it
    neither lacks a round nor has one twice, at any moment.

    Parameters
    ----------
    ledger : Ledger
        Ledger of the fit, with the events of the run that it has already.
    run : str
        Name of the run.
    charged : Counter
        Events of the run in its folder.
    """

    def __init__(self, ledger: Ledger, run: str, charged: Counter[Event]):
        self.ledger, self.run = ledger, run
        # A ledger with more events than the folder has been used with a later copy of the folder.
        self._is_older = bool(ledger._of_run(run) - charged)
        self._floor, self._recorded = ledger._of_run(run) | charged, Counter[Event]()
        ledger._set_run(run, self._floor)

    def record(self, event: Event, *, simulation: bool = False) -> None:
        """Record an event, before its messages leave the clients."""
        if self._added({event: 1}):
            self.ledger.record(event, simulation=simulation)
            # The event is in the ledger, but not yet in the run.
            self.ledger.runs[self.run][event] += 1
        self.ledger.is_simulation |= simulation
        self._recorded[event] += 1

    def amend(self, event: Event, n_reporting_users: int) -> None:
        """Correct the last record of an event: fewer users answered than requested."""
        self._recorded[event] -= 1
        self._recorded[self.ledger._amended(event, n_reporting_users)] += 1
        self.ledger._set_run(self.run, self._floor | self._recorded)

    def check_budget(self, plan: Mapping[Event, int]) -> None:
        """Refuse events of the run that do not fit in the ledger's budget, without those that it has."""
        self.ledger.check_budget(self._added(plan))

    def note(self, text: str, kind: str | None = None) -> None:
        """Add a note to the ledger."""
        self.ledger.note(text, kind)

    def end_replay(self) -> None:
        """Keep the records of this process alone: it has recorded all rounds of the interrupted one."""
        if self._floor and not self._is_older:
            self._floor.clear()
            self.ledger._set_run(self.run, self._recorded)

    def _added(self, plan: Mapping[Event, int]) -> Counter[Event]:
        """Return the events of a plan that the ledger does not have."""
        return (self._floor | (self._recorded + Counter(plan))) - self.ledger._of_run(self.run)
