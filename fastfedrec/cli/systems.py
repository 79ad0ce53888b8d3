"""The command ``fastfedrec systems``: systems and baselines with their trust model, guarantee and parameters."""

import argparse
from collections.abc import Callable
from typing import Any

from fastfedrec.cli.completion import complete_system
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.text import format_table

__all__ = ["add_systems"]

_LEGEND = (
    "trust: the party that a user must trust. local: only the user's device; shuffle: a shuffler that breaks the link "
    "between reports and senders, and sees data of shuffled-gram; central: the server; entity: the user's entity, "
    "such as a hospital; aggregator: an "
    "honest share of the nodes, which add noise to masked numbers; none: there is no guarantee, and before other "
    "entries, there is none by default"
)


def add_systems(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "systems",
        run_systems,
        "List systems and baselines with trust model, guarantee, parameters and defaults.",
        ["fastfedrec systems", "fastfedrec systems dp-gram fmf-ldp", "fastfedrec systems --json"],
    )
    names = command.add_argument("names", nargs="*", metavar="SYSTEM", help="systems to list; default: all")
    names.completer = complete_system  # type: ignore[attr-defined]


def run_systems(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the list, and a description of each system."""
    from fastfedrec.systems.described import describe_system

    systems = [describe_system(name) for name in arguments.names or SYSTEMS]
    if arguments.json:
        return {"systems": systems}
    # The overview comes first; each system's parameters follow.
    overview = format_table(
        ("system", "trust", "summary"), [(s["name"], ", ".join(s["trust"]), s["summary"]) for s in systems]
    )
    return "\n\n\n".join([f"{overview}\n\n{_LEGEND}", *map(_describe, systems)])


def _describe(system: dict[str, Any]) -> str:
    rows = [(p["name"], repr(p["default"]), p["description"]) for p in system["parameters"]]
    table = format_table(("parameter", "default", ""), rows) if rows else "It has no parameters."
    head = f"{system['name']} ({system['class']}), trust: {', '.join(system['trust'])}"
    return "\n\n".join([head, system["summary"], system["guarantee"], table])
