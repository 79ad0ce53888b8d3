"""Transactions of fits: a successful fit changes a model in one step, and a failed one leaves only its privacy cost.

`fit` runs on a new model with the same parameters, and the model takes over its attributes at the end.  The releases of
a failed fit cannot be undone, so their cost stays with the model and enters every later ledger.
"""

import copy
import functools
import inspect
import re
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastfedrec.accounting import Ledger, Note
from fastfedrec.accounting.events import Event
from fastfedrec.accounting.views import OBSERVERS, parties_of, show_costs, stated_cost
from fastfedrec.core.calls import explains_calls
from fastfedrec.core.docstrings import complete_docstring
from fastfedrec.core.files import check_path
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.rounds.stored_fit import StoredFit

# The note of a run in a ledger of several runs.
_RUN = re.compile(r"Run (\d+) of this ledger")

Model = TypeVar("Model")
P = ParamSpec("P")

#: The common parameters of `fit`, which complete its docstring.
_PARAMETERS = """\
key : Key or None
    Source of every draw; None draws a key from entropy, which serves one fit.
n_threads : int
    Number of threads, 0 for all; the model does not depend on it.
show_progress : bool
    Whether to draw a progress bar (needs tqdm).
ledger : Ledger or None
    An earlier ledger on the same users, to which this fit is added; None creates one.
engine : Engine or None
    Engine that runs the shards; None runs one shard in this process.
checkpoint : path-like or None
    Folder that stores the key, the ledger and every round; a fit with the same inputs resumes its run, and ends with
    the same bits; a callback is called for recorded rounds, too.  It holds sums without noise, so only its owner may
    read it."""


@dataclass(frozen=True)
class Unfinished:
    """The privacy cost of a fit that did not finish.

    Parameters
    ----------
    ledger : Ledger
        Ledger of that fit alone.
    note : Note
        A unique note: a ledger with this note includes the cost.
    """

    ledger: Ledger
    note: Note

    def without(self, run: str | None) -> "Unfinished | None":
        """Return the cost without the events of a run, or None if it has no other events."""
        if run not in self.ledger.runs:
            return self
        rest = copy.deepcopy(self.ledger)
        rest._set_run(run, {})
        return replace(self, ledger=rest) if rest.events else None

    def add_to(self, ledger: Ledger) -> None:
        """Add this fit to a ledger, unless it has it."""
        if self.note in ledger.notes:
            return
        ledger.events += self.ledger.events - sum(self.ledger.runs.values(), Counter())
        for run, events in self.ledger.runs.items():  # the ledger may have some of these
            ledger._set_run(run, ledger._of_run(run) | events)
        ledger.is_simulation |= self.ledger.is_simulation
        for note in self.ledger.notes:
            ledger.note(note)


class Account:
    """The ledger that a fit writes to, and its state before the fit.

    Parameters
    ----------
    ledger : Ledger
        The caller's, or a new one; it gets the costs of unfinished fits of the same model.
    unfinished : tuple of Unfinished
        Earlier fits of the model that did not finish.
    simulation : bool
        Whether the noise comes from a seed.
    stored : StoredFit or None
        Checkpoint of the run: its earlier fits are parts of this one, which makes the same rounds.
    """

    def __init__(
        self,
        ledger: Ledger,
        unfinished: tuple[Unfinished, ...] = (),
        *,
        simulation: bool = False,
        stored: StoredFit | None = None,
    ):
        self.simulation, self.run = simulation, None if stored is None else stored.run
        if stored is not None:
            known = {fit.note for fit in unfinished}
            earlier = (Unfinished(*costs) for costs in stored.costs_before())
            unfinished += tuple(fit for fit in earlier if fit.note not in known)
        # A resumed run repeats its rounds with the same bits, so an earlier fit of it costs nothing else.
        parts = [fit for fit in unfinished if self.run in fit.ledger.runs]
        self.unfinished = tuple(rest for fit in unfinished if (rest := fit.without(self.run)) is not None)
        self._closed: Unfinished | None = None
        self._is_shared = stored is None or stored.has_shared_ledger
        for fit in self.unfinished:
            fit.add_to(ledger)
        self._charged = ledger._of_run(self.run)
        if stored is not None:
            stored.keep_costs_before([(fit.ledger, fit.note) for fit in self.unfinished])
            for fit in parts:
                ledger._set_run(str(self.run), ledger._of_run(self.run) | fit.ledger._of_run(self.run))
            stored.open_account(ledger)
        self.ledger = ledger
        # The events of the run that the ledger has are a part of this fit.
        self._before, self._notes = Counter(ledger.events) - ledger._of_run(self.run), set(ledger.notes)

    def spent(self) -> Ledger:
        """Return the cost since the account was opened."""
        spent = Ledger(self.ledger.delta)
        # A correction may have restated an earlier round; only the total matters, and no count is negative.
        spent.events = +(Counter(self.ledger.events) - self._before)
        return spent

    def number_run(self, name: str) -> None:
        """Note the cost of a finished fit of a `name` alone, if the ledger holds earlier runs on the same users."""
        spent = self.spent().events
        if not self._before or not spent:
            return
        of_run = self._sentence(f" of this ledger, of {name},", spent)
        # A ledger that has all events of a resumed run may have its note, too.
        if spent == self._charged and any(_RUN.match(note) and note.endswith(of_run) for note in self.ledger.notes):
            return
        numbers = [int(run[1]) for note in self.ledger.notes if (run := _RUN.match(note))]
        sentences = [f"Run {max(numbers, default=1) + 1}{of_run}"]
        if not numbers:
            sentences.insert(0, self._sentence("Run 1 of this ledger", self._before))
        for sentence in sentences:
            self.ledger.note(sentence, "guarantee")

    def forget_run(self) -> None:
        """Remove the name of a finished run from a ledger that no other fit has."""
        if not self._is_shared:
            self.ledger.runs.pop(str(self.run), None)

    def _sentence(self, subject: str, events: Counter[Event]) -> str:
        """Return a sentence with the cost of one run of the ledger."""
        delta = self.ledger.delta
        costs = {view: stated_cost(events, view, delta).epsilon for view in OBSERVERS}
        cost = show_costs(costs, parties_of(events))
        price = "has no guarantee" if cost == "none" else f"costs epsilon {cost} at delta {delta:g}"
        return f"{subject} {price}, without the other runs."

    def close(self, name: str) -> Unfinished:
        """Note in the ledger that a fit of a `name` did not finish, and return its cost, once."""
        if self._closed is not None:
            return self._closed
        spent = self.spent()
        if self.run is not None:
            spent.runs[self.run] = self.ledger._of_run(self.run) & spent.events
        spent.is_simulation = self.simulation
        # The random number makes the note unique, so that no ledger counts the fit twice.
        note = Note(f"The ledger includes the cost of a fit of {name} that failed ({secrets.token_hex(4)}).", "choice")
        spent.notes = [text for text in self.ledger.notes if text not in self._notes] + [note] * bool(spent.events)
        closed = Unfinished(spent, note)
        if spent.events:
            self.ledger.note(note)
        self._closed = closed
        return closed


def transactional(fit: Callable[Concatenate[Model, P], Model]) -> Callable[Concatenate[Model, P], Model]:
    """Make a `fit` change the model in one step, after it has returned.

    Parameters
    ----------
    fit : callable
        A method that gets a model without attributes of an earlier fit, and opens its account before it reads users'
        data.  Callbacks may see a model that is ready to use.  The common parameters complete its docstring.

    Returns
    -------
    callable
        The method.  If it raises, the model is unchanged except for the cost, which is in the caller's ledger, in the
        exception's `ledger`, and in every later ledger of the model.
    """
    fit = explains_calls(fit)

    @functools.wraps(fit)
    def whole(self: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        state: dict[str, Any] = {}
        finished: dict[str, Any] = {}
        try:
            try:
                working = self._unfitted()
                state = working.__dict__
                # A second process would draw the same noise, so the folder of a checkpoint is locked.
                with _locked(fit, options):
                    _fit_and_finish(fit, working, *arguments, **options)
                _number_run(type(self).__name__, state, options)
                if "_account_" in state:
                    state["_account_"].forget_run()
                finished = _without_account(state)
                self.__dict__ = finished  # the one step
            except BaseException as error:
                _keep_what_was_spent(self, state, finished, error)
                raise
        except BaseException as error:  # such as a second Ctrl-C while the first one is handled
            _keep_what_was_spent(self, state, finished, error)
            raise
        return self

    model = fit.__qualname__.rpartition(".")[0] or "Recommender"  # a function that several classes share has no class
    whole.__doc__ = complete_docstring(fit, _PARAMETERS, f"{model}\n    This model, fitted.")
    return whole


def fit_inside(model: Any, *arguments: Any, **options: Any) -> None:
    """Fit a new model as a part of another model's `fit`, which has opened its account in the ledger that is passed."""
    _fit_and_finish(type(model).fit.__wrapped__, model, *arguments, **options)
    model.__dict__ = _without_account(vars(model))


def _fit_and_finish(fit: Callable[..., Any], model: Any, *arguments: Any, **options: Any) -> None:
    """Fit a model and mark it as fitted."""
    parameters = model._copied_parameters()  # first, since a value that cannot be copied must not cost anything
    fit(model, *arguments, **options)
    model._finish(parameters)


def _locked(fit: Callable[..., Any], options: dict[str, Any]) -> AbstractContextManager[Any]:
    """Lock the folder of a checkpoint for the time of a fit that takes one."""
    checkpoint = options.get("checkpoint") if "checkpoint" in inspect.signature(fit).parameters else None
    return nullcontext() if checkpoint is None else FolderLock(check_path("checkpoint", checkpoint))


def _number_run(name: str, state: dict[str, Any], options: dict[str, Any]) -> None:
    """Note the cost of a finished fit in a ledger that the caller passed."""
    if options.get("ledger") is not None and "_account_" in state:
        state["_account_"].number_run(name)


def _without_account(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a finished fit without its account; unfinished fits stay."""
    fitted = {name: value for name, value in state.items() if name not in ("_account_", "_unfinished_")}
    account = state.get("_account_")
    unfinished = state.get("_unfinished_", ()) if account is None else account.unfinished
    return fitted | ({"_unfinished_": unfinished} if unfinished else {})


def _keep_what_was_spent(model: Any, state: dict[str, Any], finished: dict[str, Any], error: BaseException) -> None:
    """Add the cost of a fit with this state to a model, unless the model has it already."""
    if finished and model.__dict__ is finished:
        return
    account = state.get("_account_")
    fit = (Account(Ledger()) if account is None else account).close(type(model).__name__)
    with suppress(AttributeError):  # some exception classes allow no new attributes
        error.ledger = fit.ledger  # type: ignore[attr-defined]
    if account is None or not fit.ledger.events or any(known is fit for known in model._unfinished_):
        return
    changed = vars(model) | {"_unfinished_": (*account.unfinished, fit)}
    if "ledger_" in changed and fit.note not in changed["ledger_"].notes:
        changed["ledger_"] = copy.deepcopy(changed["ledger_"])  # a caller may hold the old ledger
        fit.add_to(changed["ledger_"])
    model.__dict__ = changed
