"""Files of ledgers, in JSON, that several fits add to."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fastfedrec.accounting import Budget, Ledger
from fastfedrec.accounting.events import Event
from fastfedrec.accounting.views import OBSERVERS, parties_of, show_costs
from fastfedrec.cli.inputs import UsageError
from fastfedrec.core.files import check_destination, write_text
from fastfedrec.core.folder_lock import FolderInUseError, FolderLock

__all__ = ["fit_sentence", "open_ledger", "read_json_ledger"]

# Maximum size of a ledger's file in bytes.
_MAX_JSON_BYTES = 2**26
_DELTA = Ledger().delta  # of systems without a delta


def read_json_ledger(path: Path) -> Ledger:
    """Return the ledger of a file in JSON."""
    if path.stat().st_size > _MAX_JSON_BYTES:
        raise ValueError(
            f"{path} must have at most {_MAX_JSON_BYTES} bytes, got {path.stat().st_size}; pass a ledger's .json"
        )
    try:
        return Ledger.from_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be JSON in UTF-8, got {error.reason}; pass a ledger's .json") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@contextmanager
def open_ledger(path: Path | None, budget: float | None, delta: float | None) -> Iterator[Ledger | None]:
    """Yield the ledger of a file for a fit, and write it back even if the fit fails; None without a file.

    A missing file is created with the budget and the delta of the system, once an event is recorded.
    """
    if path is None:
        if budget is not None:
            raise UsageError("--budget needs --ledger FILE, which keeps the cost of earlier fits; name a file")
        yield None
        return
    if path.suffix.lower() != ".json":
        raise UsageError(f"--ledger {path} must end in .json; name such a file")
    check_destination(path, "--ledger")
    ledger = Ledger(delta or _DELTA, budget)
    # Of two simultaneous fits the second one would write a file without the cost of the first.
    with _lock(path):
        if path.exists():
            ledger = read_json_ledger(path)
        if budget is not None and ledger.budget != Budget(budget, ledger.delta):
            kept = "no budget" if ledger.budget is None else f"{ledger.budget}"
            raise UsageError(
                f"--budget {budget:g} must be the budget of {path}, which has {kept}; a budget is fixed before the "
                "first fit, so omit --budget, or begin another file with other users"
            )
        try:
            yield ledger
        finally:
            if ledger.events:
                write_text(path, ledger.to_json() + "\n")


def fit_sentence(path: Path, ledger: Ledger, earlier: Mapping[Event, int]) -> str:
    """Return the cost of one fit, the cost of all runs in its ledger's file, and the remaining budget."""
    alone = Ledger(ledger.delta)
    alone.events.update(Counter(ledger.events) - Counter(earlier))
    costs = [
        show_costs({view: one.epsilon(view) for view in OBSERVERS}, parties_of(one.events)) for one in (alone, ledger)
    ]
    sentence = f"Epsilon of this fit alone: {costs[0]}; of all runs in {path}: {costs[1]}."
    if ledger.budget is None:
        return sentence
    # The remaining epsilon is never rounded up.
    noisy, pure = (math.floor(1000 * ledger.remaining(use=use)) / 1000 for use in ("gaussian", "pure"))
    return (
        f"{sentence} Within the budget of {ledger.budget.epsilon:g}, one further fit may cost {noisy:g} with Gaussian "
        f"noise, or {pure:g} with pure releases."
    )


def _lock(path: Path) -> FolderLock:
    """Return the lock of a ledger's file, which a folder next to it holds."""
    try:
        return FolderLock(path.with_name(f"{path.name}.lock"))
    except FolderInUseError:
        raise UsageError(f"--ledger {path} is in use by another fit; wait until that fit ends") from None
