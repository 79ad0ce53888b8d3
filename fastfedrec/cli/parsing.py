"""The parser of arguments: help with defaults and examples, and errors that say what may have been meant."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from fastfedrec.cli.inputs import UsageError
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.text import did_you_mean
from fastfedrec.systems.registry import system_class

__all__ = ["Parser"]


class Help(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, and each option's default, where it has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_nothing = action.default is None or action.default is False or action.default in (argparse.SUPPRESS, [])
        if action.help is None or is_nothing:
            return action.help
        return f"{action.help} (default: {str(action.default).replace('%', '%%')})"


class Parser(argparse.ArgumentParser):
    """Raises where argparse would print a page and exit; takes no abbreviated options.

    Parameters
    ----------
    examples : sequence of str
        Commands that work as they stand, for the end of its help.
    **arguments : object
        As `argparse.ArgumentParser` takes them.
    """

    def __init__(self, *, examples: Sequence[str] = (), **arguments: Any):
        text = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else None
        super().__init__(allow_abbrev=False, formatter_class=Help, epilog=text, **arguments)
        self.examples = list(examples)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing a page."""
        raise UsageError(f"{message}; see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            what = "unknown command" if isinstance(action, argparse._SubParsersAction) else "invalid choice:"
            what += f" {value!r}"
            raise argparse.ArgumentError(action, f"{what}{did_you_mean(value, names)}; there are {', '.join(names)}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Look for unknown options first: argparse would name the required ones that are missing instead."""
        if args is not None and self._subparsers is None:
            for word in args:
                if word == "--":
                    break
                name = word.partition("=")[0]
                if name.startswith("--") and " " not in name and name not in self._option_string_actions:
                    self.error(f"unrecognized arguments: {word}{self._what_was_meant(name, args)}")
        return super().parse_known_args(args, namespace)

    def _what_was_meant(self, name: str, args: Sequence[str]) -> str:
        options = self._option_string_actions
        parameter = name.lstrip("-").replace("-", "_")
        if "--set" in options:
            for system in (word for word in args if word in SYSTEMS):
                if parameter in system_class(system)._parameter_names():
                    return f" ({parameter} is a parameter of {system}: --set {parameter}=VALUE)"
        if name == "--data" and {"--users", "--items"} <= options.keys():
            return " (it looks at no data: say how many with --users and --items)"
        return did_you_mean(name, (option for option in options if option.startswith("--")))
