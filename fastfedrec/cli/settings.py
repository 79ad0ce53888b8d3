"""--system and --set: several systems, each with its parameters."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastfedrec.cli.completion import complete_set, complete_system
from fastfedrec.cli.inputs import UsageError, natural, split_assignments
from fastfedrec.core.check import check_epsilon
from fastfedrec.core.warn import warn
from fastfedrec.systems.registry import SYSTEMS, system_class

__all__ = ["Choice", "SystemSettings", "add_choice", "add_systems", "warn_of_defaults"]


@dataclass
class Choice:
    """Number of privately chosen items that a system is fitted on, and epsilon of the choice."""

    n: int
    epsilon: float


@dataclass
class SystemSettings:
    """Name of a system, its assignments by --set, and its optional private choice of items."""

    name: str
    assignments: list[str] = field(default_factory=list)
    choice: Choice | None = None


class _AddSystem(argparse.Action):
    """Append the settings of a system."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), SystemSettings(values)])


class _AddValues(argparse.Action):
    """Add assignments to the settings of the preceding system."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        _last(namespace, "--set").assignments.extend(values)


class _AddChoice(argparse.Action):
    """Add a private choice of items to the settings of the preceding system."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        settings = _last(namespace, "--choose")
        if settings.choice is not None:
            raise UsageError(f"--choose is given twice for --system {settings.name}; leave one out")
        try:
            n = natural(values[0])
            settings.choice = Choice(n, check_epsilon("EPSILON", float(values[1])))
        except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
            raise UsageError(
                f"--choose must be N EPSILON, such as 2000 0.5, got {' '.join(values)!r}: {error}"
            ) from None
        if not n:
            raise UsageError("--choose must keep at least 1 item, got 0")


# --set and --choose apply to the --system before them, so the order of options matters.
def _last(namespace: Any, option: str) -> SystemSettings:
    if not namespace.system:
        raise UsageError(f"{option} must follow the --system that it belongs to")
    return namespace.system[-1]


def add_systems(command: argparse.ArgumentParser, values: str, text: str) -> None:
    """Add the arguments of systems and their parameters; `values` and `text` are the metavar and help of --set."""
    system = command.add_argument(
        "--system", action=_AddSystem, default=[], metavar="SYSTEM", help=f"repeatable: {', '.join(SYSTEMS)}"
    )
    setting = command.add_argument("--set", nargs="+", action=_AddValues, metavar=values, help=text)
    system.completer, setting.completer = complete_system, complete_set  # type: ignore[attr-defined]


def warn_of_defaults(systems: Sequence[SystemSettings]) -> None:
    """Warn of systems without --set before a system with it, if they have these parameters as well."""
    # Several --system before one --set look like a list that shares the values.
    for position, system in enumerate(systems):
        later = next((other for other in systems[position:] if other.assignments), None)
        if system.assignments or later is None or later.name == system.name:  # the same name twice is a comparison
            continue
        shared = split_assignments(later.assignments).keys() & set(system_class(system.name)._parameter_names())
        if shared:
            warn(
                f"--system {system.name} has its default {' and '.join(sorted(shared))}, since --set belongs to the "
                f"--system before it, {later.name}; repeat --set after --system {system.name}, also to keep the default"
            )


def add_choice(command: argparse.ArgumentParser) -> None:
    """Add the argument of a private choice of items for the preceding system."""
    command.add_argument(
        "--choose", nargs=2, action=_AddChoice, metavar=("N", "EPSILON"),
        help="fit the preceding system only on N items, which are chosen with differential privacy at EPSILON; this "
        "adds to its cost, and all other items rank last",
    )  # fmt: skip
