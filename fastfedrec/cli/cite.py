"""The command ``fastfedrec cite``: references for the package and its systems."""

import argparse
from collections.abc import Callable
from typing import Any

from fastfedrec.cli.completion import complete_system
from fastfedrec.core.version import __version__

__all__ = ["add_cite"]

_PACKAGE = f'The fastfedrec developers, "fastfedrec: private federated recommenders, compiled", version {__version__}.'
_BIBTEX = f"""@software{{fastfedrec,
  title = {{fastfedrec: private federated recommenders, compiled}},
  author = {{{{The fastfedrec developers}}}},
  version = {{{__version__}}},
  license = {{Apache-2.0}},
}}"""


def add_cite(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "cite",
        run_cite,
        "Print references for this package, and for the papers that a system implements or is based on.",
        ["fastfedrec cite", "fastfedrec cite fmf-ldp dp-gram"],
    )
    names = command.add_argument("names", nargs="*", metavar="SYSTEM", help="systems to cite")
    names.completer = complete_system  # type: ignore[attr-defined]


def run_cite(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the references."""
    from fastfedrec.systems.described import describe_system

    systems = [describe_system(name) for name in arguments.names]
    if arguments.json:
        works = {system["name"]: system["references"] for system in systems}
        return {"package": _PACKAGE, "bibtex": _BIBTEX, "systems": works}
    return "\n\n".join([_PACKAGE, _BIBTEX, *map(_works, systems)])


def _works(system: dict[str, Any]) -> str:
    works = system["references"] or ["it has no reference of its own: cite the package"]
    return "\n".join([f"{system['class']}:", *(f"- {work}" for work in works)])
