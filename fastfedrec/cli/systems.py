"""The command ``fastfedrec systems``: what there is to fit, whom it asks to trust, and its parameters."""

import argparse
from collections.abc import Callable
from typing import Any

from fastfedrec.cli.completion import complete_system
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.text import format_table

__all__ = ["add_systems"]

_LEGEND = (
    "trust: whom the guarantee asks to trust. local: nobody but one's own device; shuffle: one who breaks the link "
    "between reports and senders; central: the server; entity: one's own, such as a hospital; none: there is no "
    "guarantee, where others follow unless it is asked for"
)


def add_systems(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "systems",
        run_systems,
        "Systems and baselines: whom each asks to trust, its guarantee, its parameters and their defaults.",
        ["fastfedrec systems", "fastfedrec systems dp-gram fmf-ldp", "fastfedrec systems --json"],
    )
    names = command.add_argument("names", nargs="*", metavar="SYSTEM", help="only these; without any, all")
    names.completer = complete_system  # type: ignore[attr-defined]


def run_systems(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Answer."""
    from fastfedrec.systems.described import describe_system

    found = [describe_system(name) for name in arguments.names or SYSTEMS]
    if arguments.json:
        return {"systems": found}
    overview = format_table(
        ("system", "trust", "what it is"), [(s["name"], ", ".join(s["trust"]), s["summary"]) for s in found]
    )
    return "\n\n\n".join([f"{overview}\n\n{_LEGEND}", *map(_describe, found)])


def _describe(system: dict[str, Any]) -> str:
    rows = [(p["name"], repr(p["default"]), p["description"]) for p in system["parameters"]]
    table = format_table(("parameter", "default", ""), rows) if rows else "It has no parameters."
    head = f"{system['name']} ({system['class']}), trust: {', '.join(system['trust'])}"
    return "\n\n".join([head, system["summary"], system["guarantee"], table])
