"""What a shell is told that a line could go on with, where argcomplete is installed."""

import argparse
import os
from typing import Any

from fastfedrec.core.names import SYSTEMS
from fastfedrec.systems.registry import system_class

__all__ = ["complete", "complete_set", "complete_system"]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what a line could go on with, and end; without argcomplete it gets no answer.

    Parameters
    ----------
    parser : ArgumentParser
        Of all commands.
    """
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser)


def complete_system(**_: Any) -> list[str]:
    """What SYSTEM may be."""
    return list(SYSTEMS)


def complete_set(**_: Any) -> list[str]:
    """What --set may name, of the system that stands before it."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", 0))]
    for word in reversed(line.split()):
        if word in SYSTEMS:
            return [f"{parameter}=" for parameter in system_class(word)._parameter_names()]
    return []
