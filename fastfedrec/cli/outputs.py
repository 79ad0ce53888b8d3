"""What several commands print, and what they say where something optional is missing."""

import importlib.util
import json
import sys
from typing import Any

from fastfedrec.core.text import NOT_COVERED
from fastfedrec.data.interactions import Interactions

EPSILON_LEGEND = (
    "epsilon: of a user in the whole run, in nats: against a server that sees who sent what, the same behind a "
    "shuffler,\nand the public; 'none' is no guarantee\n" + NOT_COVERED
)


def missing_extra(module: str, loss: str) -> str | None:
    """Say what is lost without an optional package, and how to install it; None where it is there."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"{loss}: {module} is not installed; pip install 'fastfedrec[cli]'"


def has_extra(module: str, loss: str) -> bool:
    """Whether an optional package is there; where not, standard error has been told what is lost."""
    if problem := missing_extra(module, loss):
        print(f"fastfedrec: {problem}", file=sys.stderr)
    return problem is None


def can_show_progress() -> bool:
    """Whether there is a progress bar; where not, standard error has been told."""
    return has_extra("tqdm", "no progress bar")


def make_axes() -> tuple[Any, Any]:
    """A figure of one plot, and its axes; without pyplot, so that nothing global is touched and no display needed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib: pip install 'fastfedrec[plot]'") from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    return figure, figure.subplots()


def describe(data: Interactions) -> dict[str, int]:
    """The sizes of data, for JSON."""
    return {"n_users": data.n_users, "n_items": data.n_items, "n_interactions": data.n_interactions}


def print_json(document: dict[str, Any]) -> None:
    """The one document of a command with --json; what JSON has no number for is an error."""
    print(json.dumps(document, indent=2, allow_nan=False))
