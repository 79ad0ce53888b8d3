"""A fit that ends well changes a model in one step; one that does not leaves nothing but what it has spent.

`fit` runs on a new model with the same parameters, and the model takes over all of it when it is done.  What a fit has
done to people's data before it failed cannot be undone, so it stays on the model, and every later ledger has it.
"""

import copy
import functools
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastfedrec.accounting import Ledger
from fastfedrec.accounting.events import Event
from fastfedrec.core.docstrings import complete_docstring

Model = TypeVar("Model")
P = ParamSpec("P")

#: What a `fit` takes, and in its docstring does not describe otherwise.
_PARAMETERS = """\
key : Key or None
    Source of every draw; None draws one from entropy.  An entropy key serves one fit.
n_threads : int
    0 for all; the model does not depend on it.
show_progress : bool
    Draw a progress bar (needs tqdm).
ledger : Ledger or None
    An earlier ledger on the same people, to which this fit is added; None starts one.
engine : Engine or None
    Where shards run; None runs one shard in this process."""


@dataclass(frozen=True)
class Unfinished:
    """What a fit that did not finish has done to people's data.

    Parameters
    ----------
    ledger : Ledger
        Of that fit alone.
    note : str
        Distinct from all others: a ledger that has this note has the cost too.
    run : str or None
        Name of the kept run that the fit was a part of, wherever its folder is: who resumes it has these rounds too.
    """

    ledger: Ledger
    note: str
    run: str | None

    def add_to(self, ledger: Ledger) -> None:
        """Make a ledger tell of this fit, once."""
        if self.note in ledger.notes:
            return
        for event, times in self.ledger.events.items():
            ledger.events[event] += times
        ledger.is_simulation |= self.ledger.is_simulation
        for note in self.ledger.notes:
            ledger.note(note)


class Account:
    """The ledger that a fit writes to, and where it stood before.

    Parameters
    ----------
    ledger : Ledger
        The caller's, or a new one; it gets what earlier fits of the same model have spent without finishing.
    unfinished : tuple of Unfinished
        Those fits.
    simulation : bool
        Whether the noise comes from a seed.
    run : str or None
        Name of the run, if it is kept in a checkpoint.
    """

    def __init__(
        self,
        ledger: Ledger,
        unfinished: tuple[Unfinished, ...] = (),
        *,
        simulation: bool = False,
        run: str | None = None,
    ):
        self.unfinished, self.simulation, self.run = unfinished, simulation, run
        self._closed: Unfinished | None = None
        self._parts: tuple[Unfinished, ...] = ()  # earlier fits that were parts of the run that this one resumes
        self.open(ledger)

    def open(self, ledger: Ledger) -> Ledger:
        """Begin to write to a ledger."""
        for fit in self.unfinished:
            fit.add_to(ledger)
        self.ledger, self._before, self._notes = ledger, Counter(ledger.events), set(ledger.notes)
        return ledger

    def resume(self, ledger: Ledger) -> Ledger:
        """Write to the ledger of the run that is resumed from the checkpoint; all of it counts as this fit's."""
        others = tuple(fit for fit in self.unfinished if self.run is None or fit.run != self.run)
        parts = self._parts + tuple(fit for fit in self.unfinished if fit not in others)
        before: Counter[Event] = Counter()
        for fit in others:
            if fit.note not in ledger.notes:
                fit.add_to(ledger)
                before.update(fit.ledger.events)
        notes = {note for fit in others for note in fit.ledger.notes}
        # One step, so that an interruption leaves an account of this run or of none.
        self.unfinished, self._parts, self.ledger, self._before, self._notes = others, parts, ledger, before, notes
        return ledger

    def spent(self) -> Ledger:
        """Return what was recorded since the account was opened."""
        spent = Ledger(self.ledger.delta)
        # A correction may have restated a round of before; the total is what counts, and no event is negative.
        spent.events = +(Counter(self.ledger.events) - self._before)
        return spent

    def close(self, name: str) -> Unfinished:
        """State in the ledger that the fit of a `name` did not finish, and return what it has spent, once."""
        if self._closed is not None:
            return self._closed
        spent = self.spent()
        for part in self._parts:  # which may have come further, if an older copy of the folder was put back
            spent.events |= part.ledger.events
        spent.is_simulation = self.simulation
        # The number tells it from any other such fit, so that no ledger counts it twice.
        note = f"a fit of {name} that did not finish ({secrets.token_hex(4)}): what it had spent is included"
        spent.notes = [text for text in self.ledger.notes if text not in self._notes] + [note] * bool(spent.events)
        closed = Unfinished(spent, note, self.run)
        if spent.events:
            self.ledger.note(note)
        self._closed = closed
        return closed


def transactional(fit: Callable[Concatenate[Model, P], Model]) -> Callable[Concatenate[Model, P], Model]:
    """Make a `fit` change the model in one step, after it has returned.

    Parameters
    ----------
    fit : callable
        A method that gets a model without anything of an earlier fit, sets its attributes as it goes, and opens its
        account before it does anything to people's data; what callbacks see of it is ready to use.  Its docstring says
        what is its own, and gets what all have in common.

    Returns
    -------
    callable
        The method.  Where it raises, whatever it raises, the model is as it was before, but for what was spent: that is
        in the caller's ledger, in the exception's `ledger`, and in every later ledger of the model.
    """

    @functools.wraps(fit)
    def whole(self: Any, *arguments: P.args, **options: P.kwargs) -> Any:
        state: dict[str, Any] = {}
        finished: dict[str, Any] = {}
        try:
            try:
                working = self._unfitted()
                state = working.__dict__
                _fit_and_finish(fit, working, *arguments, **options)
                finished = _without_account(state)
                self.__dict__ = finished  # the one step
            except BaseException as error:
                _keep_what_was_spent(self, state, finished, error)
                raise
        except BaseException as error:  # as a second Ctrl-C, while the first one was handled
            _keep_what_was_spent(self, state, finished, error)
            raise
        return self

    model = fit.__qualname__.split(".")[0]
    whole.__doc__ = complete_docstring(fit, _PARAMETERS, f"{model}\n    This model, fitted.")
    return whole


def fit_inside(model: Any, *arguments: Any, **options: Any) -> None:
    """Fit a new model as a part of another's `fit`, whose transaction keeps what is spent where it fails.

    Parameters
    ----------
    model : Recommender
        Not fitted.
    *arguments, **options : object
        Of its `fit`; the ledger is one in which the outer `fit` has opened its account.
    """
    _fit_and_finish(type(model).fit.__wrapped__, model, *arguments, **options)
    model.__dict__ = _without_account(vars(model))


def _fit_and_finish(fit: Callable[..., Any], model: Any, *arguments: Any, **options: Any) -> None:
    parameters = model._copied_parameters()  # before anything is spent: not everything can be copied
    fit(model, *arguments, **options)
    model._finish(parameters)


def _without_account(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a model keeps of a fit; `state` keeps the account until the model has all of it."""
    kept = {name: value for name, value in state.items() if name not in ("_account_", "_unfinished_")}
    account = state.get("_account_")
    unfinished = state.get("_unfinished_", ()) if account is None else account.unfinished
    return kept | ({"_unfinished_": unfinished} if unfinished else {})


def _keep_what_was_spent(model: Any, state: dict[str, Any], finished: dict[str, Any], error: BaseException) -> None:
    """Add to a model what a fit with this state has spent, unless the model has it already."""
    if finished and model.__dict__ is finished:
        return
    account = state.get("_account_")
    fit = (Account(Ledger()) if account is None else account).close(type(model).__name__)
    with suppress(AttributeError):  # of a class that lets nothing be added
        error.ledger = fit.ledger  # type: ignore[attr-defined]
    if account is None or not fit.ledger.events or any(known is fit for known in model._unfinished_):
        return
    changed = vars(model) | {"_unfinished_": (*account.unfinished, fit)}
    if "ledger_" in changed and fit.note not in changed["ledger_"].notes:
        changed["ledger_"] = copy.deepcopy(changed["ledger_"])  # others may hold the old one
        fit.add_to(changed["ledger_"])
    model.__dict__ = changed
