"""The parser of arguments: help with defaults and examples, and errors that say what may have been meant."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from fastfedrec.cli.inputs import UsageError
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.text import did_you_mean
from fastfedrec.systems.registry import system_class

__all__ = ["ExtendIds", "Parser"]

_ESCAPE = "\0"  # before an id that begins with "-": no argument of a process holds it


class ExtendIds(argparse.Action):
    """Adds ids to those that were given before; ids may begin with "-", unless they are options of the command."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Take the ids as they were written."""
        ids = [text.removeprefix(_ESCAPE) for text in values]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *ids])


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
        if "expected one argument" in message or "expected at least one argument" in message:
            message += " (one that begins with - is written behind =, as --option=-value)"
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
            args = self._check_words(args)
        return super().parse_known_args(args, namespace)

    def _check_words(self, args: Sequence[str]) -> list[str]:
        """The same words, with ids escaped that argparse would take for options; unknown and repeated ones raise."""
        options, words, given = self._option_string_actions, list(args), set()
        in_ids = False
        for place, word in enumerate(words):
            name, equals, _ = word.partition("=")
            if word == "--":
                break
            if name in options or (word[:2] in options and word[2:].isdecimal()):  # as -n5
                action = options[name if name in options else word[:2]]
                in_ids = isinstance(action, ExtendIds) and not equals
                if action in given and isinstance(action, argparse._StoreAction):
                    self.error(f"{name} is given twice; leave one out")
                given.add(action)
            elif in_ids and word.startswith("-") and not self._is_misspelt(name):
                words[place] = _ESCAPE + word
            elif name.startswith("--") and " " not in name:
                hint = " (an id is written behind =, as --option=--id, or in a file)" if in_ids else ""
                self.error(f"unrecognized arguments: {word}{self._what_was_meant(name, args)}{hint}")
        return words

    def _is_misspelt(self, name: str) -> bool:
        """Whether a word is much like an option."""
        return name.startswith("--") and did_you_mean(name, self._long_options()) != ""

    def _long_options(self) -> list[str]:
        return [option for option in self._option_string_actions if option.startswith("--")]

    def _what_was_meant(self, name: str, args: Sequence[str]) -> str:
        options = self._option_string_actions
        parameter = name.lstrip("-").replace("-", "_")
        if "--set" in options:
            for system in (word for word in args if word in SYSTEMS):
                if parameter in system_class(system)._parameter_names():
                    return f" ({parameter} is a parameter of {system}: --set {parameter}=VALUE)"
        if name == "--data" and {"--users", "--items"} <= options.keys():
            return " (it looks at no data: say how many with --users and --items)"
        return did_you_mean(name, self._long_options())
