"""The command ``fastfedrec cite``: what to cite for the package, and for the systems that were run."""

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
    """Describe the command to the parser of `main`."""
    command = add(
        "cite",
        run_cite,
        "What to cite: this package, and the works that a system is from or stands on.",
        ["fastfedrec cite", "fastfedrec cite fmf-ldp dp-gram"],
    )
    names = command.add_argument("names", nargs="*", metavar="SYSTEM", help="the systems that were run")
    names.completer = complete_system  # type: ignore[attr-defined]


def run_cite(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Answer."""
    from fastfedrec.systems.described import describe_system

    found = [describe_system(name) for name in arguments.names]
    if arguments.json:
        works = {system["name"]: system["references"] for system in found}
        return {"package": _PACKAGE, "bibtex": _BIBTEX, "systems": works}
    return "\n\n".join([_PACKAGE, _BIBTEX, *map(_works, found)])


def _works(system: dict[str, Any]) -> str:
    works = system["references"] or ["no work of others is named for it: cite the package"]
    return "\n".join([f"{system['class']}:", *(f"- {work}" for work in works)])
