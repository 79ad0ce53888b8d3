"""--system and --set: several systems, each with parameters of its own."""

import argparse
from dataclasses import dataclass, field
from typing import Any

from fastfedrec.cli.completion import complete_set, complete_system
from fastfedrec.cli.inputs import UsageError, natural
from fastfedrec.core.check import check_epsilon
from fastfedrec.systems.registry import SYSTEMS

__all__ = ["Asked", "Choice", "add_choice", "add_systems"]


@dataclass
class Choice:
    """How many items a system is fitted on, which are chosen privately, and what the choice costs."""

    n: int
    epsilon: float


@dataclass
class Asked:
    """A system by its name, what --set gives it, and its choice of items, if it has one."""

    name: str
    assignments: list[str] = field(default_factory=list)
    choice: Choice | None = None


class _AddSystem(argparse.Action):
    """Starts the settings of one more system."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), Asked(values)])


class _AddValues(argparse.Action):
    """Gives the system that was named last some values."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        _last(namespace, "--set").assignments.extend(values)


class _AddChoice(argparse.Action):
    """Gives the system that was named last a private choice of its items."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        asked = _last(namespace, "--choose")
        if asked.choice is not None:
            raise UsageError(f"--choose is given twice for --system {asked.name}")
        try:
            n = natural(values[0])
            asked.choice = Choice(n, check_epsilon("EPSILON", float(values[1])))
        except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
            raise UsageError(f"--choose takes N EPSILON, such as 2000 0.5, got {' '.join(values)!r}: {error}") from None
        if not n:
            raise UsageError("--choose must keep an item at least, got 0")


def _last(namespace: Any, option: str) -> Asked:
    if not namespace.system:
        raise UsageError(f"{option} must follow the --system that it is about")
    return namespace.system[-1]


def add_systems(command: argparse.ArgumentParser, values: str, text: str) -> None:
    """The arguments that name systems and their parameters, `values` by name and in words."""
    system = command.add_argument(
        "--system", action=_AddSystem, default=[], metavar="SYSTEM", help=f"once for each: {', '.join(SYSTEMS)}"
    )
    setting = command.add_argument("--set", nargs="+", action=_AddValues, metavar=values, help=text)
    system.completer, setting.completer = complete_system, complete_set  # type: ignore[attr-defined]


def add_choice(command: argparse.ArgumentParser) -> None:
    """The argument that lets the system before it choose its items privately."""
    command.add_argument(
        "--choose", nargs=2, action=_AddChoice, metavar=("N", "EPSILON"),
        help="fit the system before it on N items alone, which are chosen under differential privacy at EPSILON, and "
        "add that to its cost; its other items rank last",
    )  # fmt: skip
