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
    checkpoint : str or None
        Where the fit goes on, if it is resumed: then its rounds are not another's.
    """

    ledger: Ledger
    note: str
    checkpoint: str | None

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
    checkpoint : str or None
        Where the fit is kept, if it is.
    """

    def __init__(
        self,
        ledger: Ledger,
        unfinished: tuple[Unfinished, ...] = (),
        *,
        simulation: bool = False,
        checkpoint: str | None = None,
    ):
        self.unfinished, self.simulation, self.checkpoint = unfinished, simulation, checkpoint
        self.open(ledger)

    def open(self, ledger: Ledger) -> Ledger:
        """Begin to write to a ledger."""
        for fit in self.unfinished:
            fit.add_to(ledger)
        self.ledger, self._before, self._notes = ledger, Counter(ledger.events), set(ledger.notes)
        return ledger

    def resume(self, ledger: Ledger) -> Ledger:
        """Write to the ledger of the run that is resumed from the checkpoint; all of it counts as this fit's."""
        self.unfinished = tuple(fit for fit in self.unfinished if fit.checkpoint != self.checkpoint)
        self.ledger, self._before, self._notes = ledger, Counter(), set()
        for fit in self.unfinished:
            if fit.note not in ledger.notes:
                fit.add_to(ledger)
                self._before.update(fit.ledger.events)
            self._notes |= {*fit.ledger.notes}
        return ledger

    def close(self, name: str) -> Unfinished:
        """Say in the ledger that the fit of a `name` did not finish; what it has spent."""
        spent = Ledger(self.ledger.delta)
        # A correction may have restated a round of before; the total is what counts, and no event is negative.
        spent.events = +(Counter(self.ledger.events) - self._before)
        spent.is_simulation = self.simulation
        # The number tells it from any other such fit, so that no ledger counts it twice.
        note = f"a fit of {name} that did not finish ({secrets.token_hex(4)}): what it had spent is included"
        if spent.events:
            self.ledger.note(note)
        spent.notes = [text for text in self.ledger.notes if text not in self._notes]
        return Unfinished(spent, note, self.checkpoint)


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
        try:
            working = self._unfitted()
            state = working.__dict__
            fit(working, *arguments, **options)
            working._finish()
            self.__dict__ = state  # the one step
        except BaseException as error:
            if self.__dict__ is not state:
                _keep_what_was_spent(self, state.get("_account_"), error)
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
    type(model).fit.__wrapped__(model, *arguments, **options)
    model._finish()


def _keep_what_was_spent(model: Any, account: Account | None, error: BaseException) -> None:
    fit = (Account(Ledger()) if account is None else account).close(type(model).__name__)
    with suppress(AttributeError):  # of a class that lets nothing be added
        error.ledger = fit.ledger  # type: ignore[attr-defined]
    if account is None or not fit.ledger.events:
        return
    state = vars(model) | {"_unfinished_": (*account.unfinished, fit)}
    if "ledger_" in state and fit.note not in state["ledger_"].notes:
        state["ledger_"] = copy.deepcopy(state["ledger_"])  # others may hold the old one
        fit.add_to(state["ledger_"])
    model.__dict__ = state
