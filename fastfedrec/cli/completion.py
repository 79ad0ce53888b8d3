"""Shell completion of command lines, if argcomplete is installed."""

import argparse
import os
from typing import Any

from fastfedrec.core.names import SYSTEMS
from fastfedrec.systems.registry import system_class

__all__ = ["complete", "complete_set", "complete_system"]


def complete(parser: argparse.ArgumentParser) -> None:
    """Print completions and exit if a shell requests them; without argcomplete there are none."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser)


def complete_system(**_: Any) -> list[str]:
    """Return completions of SYSTEM."""
    return list(SYSTEMS)


def complete_set(**_: Any) -> list[str]:
    """Return completions of --set: parameters of the preceding system."""
    # argcomplete passes the line and the cursor's position in environment variables.
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", 0))]
    for word in reversed(line.split()):
        if word in SYSTEMS:
            return [f"{parameter}=" for parameter in system_class(word)._parameter_names()]
    return []
