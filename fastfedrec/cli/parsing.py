"""Argument parser with defaults and examples in its help, and errors that suggest the intended option."""

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastfedrec.cli.inputs import UsageError
from fastfedrec.core.names import SYSTEMS
from fastfedrec.core.text import did_you_mean
from fastfedrec.systems.registry import system_class

__all__ = ["WRITTEN", "ExtendIds", "Parser", "name_options", "options_of", "refuse_shared_files"]

#: Remedies for options of other commands.
_ELSEWHERE = {
    "--by": "divide the data first, with fastfedrec split --by, and pass --train and --test",
    "--out": "fastfedrec compare writes tables and plots",
}
#: Options with a file that a command writes.
WRITTEN = {"--card", "--html", "--ledger", "--markdown", "--out", "--plot"}
# Prefix of an id that begins with "-"; arguments of a process never contain it.
_ESCAPE = "\0"
_EMPTY_VARIABLE = " (a variable of the shell may be empty)"


class ExtendIds(argparse.Action):
    """Append ids to the list of an option; ids may begin with "-", unless they are options of the command."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Append the ids without their escapes."""
        ids = [text.removeprefix(_ESCAPE) for text in values]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *ids])


class Help(argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of examples, and shows the default of each option."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.default not in (None, argparse.SUPPRESS, []) and action.default is not False
        if action.help is None or not has_default:
            return action.help
        return f"{action.help} (default: {str(action.default).replace('%', '%%')})"


class Parser(argparse.ArgumentParser):
    """Parser that raises errors instead of exiting, accepts no abbreviated options, and lists examples in its help."""

    def __init__(self, *, examples: Sequence[str] = (), **arguments: Any):
        text = "\n".join(["examples:", *(f"  {line}" for line in examples)]) if examples else None
        super().__init__(allow_abbrev=False, formatter_class=Help, epilog=text, **arguments)
        self.examples = list(examples)

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` instead of printing the usage."""
        if "expected one argument" in message or "expected at least one argument" in message:
            message += " (write a value that begins with - after =, as --option=-value)"
        raise UsageError(f"{message}; see {self.prog} --help")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Keep a value "--" of an option, as in --exclude=--, which argparse omits in some versions of Python."""
        if not action.option_strings or arg_strings != ["--"]:
            return super()._get_values(action, arg_strings)  # type: ignore[misc]
        value = self._get_value(action, "--")
        self._check_value(action, value)
        return value if action.nargs in (None, argparse.OPTIONAL) else [value]

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse a blank path, which `Path` would read as the current folder."""
        if action.type is Path and not arg_string.strip():
            raise argparse.ArgumentError(action, f"expected a path, got {arg_string!r}{_EMPTY_VARIABLE}")
        return super()._get_value(action, arg_string)  # type: ignore[misc]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            problem = "unknown command" if isinstance(action, argparse._SubParsersAction) else "invalid choice:"
            problem += f" {value!r}"
            raise argparse.ArgumentError(action, f"{problem}{did_you_mean(value, names)}; there are {', '.join(names)}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Name the arguments that belong to no option, of which argparse would not show a blank one."""
        parsed, extra = self.parse_known_args(args, namespace)
        if extra:
            words = " ".join(word if word.strip() else repr(word) for word in extra)
            self.error(f"unrecognized arguments: {words}{_hint_for_word(extra[0])}")
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Check for unknown options first, since argparse would report missing required options instead."""
        if args is not None and self._subparsers is None:
            args = self._check_words(args)
        return super().parse_known_args(args, namespace)

    def _check_words(self, args: Sequence[str]) -> list[str]:
        """Escape ids that look like options, and refuse unknown and repeated options."""
        options, words, given = self._option_string_actions, list(args), set()
        in_ids = False
        for position, word in enumerate(words):
            name, equals, _ = word.partition("=")
            if word == "--":
                break
            if name in options or (word[:2] in options and word[2:].isdecimal()):  # as -n5
                action = options[name if name in options else word[:2]]
                in_ids = isinstance(action, ExtendIds) and not equals
                if action in given and isinstance(action, argparse._StoreAction):
                    self.error(f"{name} is given twice; leave one out")
                given.add(action)
            # A word that resembles an option is more likely a typing error than an id.
            elif in_ids and word.startswith("-") and not self._is_misspelt(name):
                words[position] = _ESCAPE + word
            elif name.startswith("--") and " " not in name:
                hint = " (write an id after =, as --option=--id, or in a file)" if in_ids else ""
                self.error(f"unrecognized arguments: {word}{self._suggestion(name, args)}{hint}")
        return words

    def _is_misspelt(self, name: str) -> bool:
        """Check whether a word resembles an option."""
        return name.startswith("--") and did_you_mean(name, self._long_options()) != ""

    def _long_options(self) -> list[str]:
        return [option for option in self._option_string_actions if option.startswith("--")]

    def _suggestion(self, name: str, args: Sequence[str]) -> str:
        """Return a suggestion of the intended option."""
        options = self._option_string_actions
        # A parameter of the system, such as --epsilon, is a common mistake for --set epsilon=...
        parameter = name.lstrip("-").replace("-", "_")
        if "--set" in options:
            for system in (word for word in args if word in SYSTEMS):
                if parameter in system_class(system)._parameter_names():
                    return f" ({parameter} is a parameter of {system}: --set {parameter}=VALUE)"
        if name == "--data" and {"--users", "--items"} <= options.keys():
            return " (the command reads no data: give their size by --users and --items)"
        if name in _ELSEWHERE:
            return f" ({_ELSEWHERE[name]})"
        return did_you_mean(name, self._long_options())


def name_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace, message: str) -> str:
    """Replace names of Python arguments in an error message by the options of the command that have their values."""
    # A name in --set is a parameter of the system, whose value does not come from an option of that name.
    settings = [*(getattr(arguments, "set", None) or [])]
    for system in getattr(arguments, "system", None) or []:
        settings += getattr(system, "assignments", [])
    in_set = {str(setting).partition("=")[0] for setting in settings}
    flags = {action.dest for action in _actions_of(parser, arguments) if action.nargs == 0}
    for name, option in options_of(parser, arguments):
        for python in {name, f"n_{name}"} - in_set:
            # Short names are also words of sentences, which are arguments only before a value or a rule.
            is_word = "_" not in python
            rule, start = (" (?=must |needs )", "^") if is_word else ("", r"(?<![\w.=-])")
            message = re.sub(rf"(?<![\w.-]){python}=(None|'[^']*'|[\w.-]+)", _ValueOf(option, name in flags), message)
            message = re.sub(rf"{start}(`?){python}\1(?!\w|=|\(){rule}", option + " " * is_word, message)
    return message


class _ValueOf:
    """Replacement of ``name=value`` by the option and its value."""

    def __init__(self, option: str, is_flag: bool):
        self.option, self.is_flag = option, is_flag

    def __call__(self, match: re.Match[str]) -> str:
        if self.is_flag and match[1] in ("True", "False"):
            return self.option if match[1] == "True" else f"no {self.option}"
        return f"no {self.option}" if match[1] == "None" else f"{self.option} {match[1].strip(chr(39))}"


def options_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the name and the long option of each argument of the command, and of its subcommand."""
    for action in _actions_of(parser, arguments):
        if (option := next((text for text in action.option_strings if text.startswith("--")), None)) is not None:
            yield action.dest, option


def _actions_of(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[argparse.Action]:
    """Yield the arguments of the command, and of its subcommand."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield action
        elif (command := getattr(arguments, action.dest, None)) in action.choices:
            yield from _actions_of(action.choices[command], arguments)


def refuse_shared_files(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Raise if a file that the command writes is also another argument, which would be lost."""
    named: dict[str, tuple[str, Any]] = {}
    for action in sorted(_actions_of(parser, arguments), key=lambda action: not WRITTEN & {*action.option_strings}):
        name = next(iter(action.option_strings[-1:]), str(action.metavar or action.dest))
        value = getattr(arguments, action.dest, None)
        for path in value if isinstance(value, list) else [value]:
            # Other texts, such as the name of a system, are files only by chance.
            is_written = name in WRITTEN
            if not isinstance(path, str | Path) or not (is_written or os.path.isfile(path)):
                continue
            if (other := named.get(os.path.realpath(path))) is not None:
                raise UsageError(f"{other[0]} {other[1]} is also {name}, and would replace it; name another file")
            # A command with a folder of outputs names the files in it after itself.
            in_folder = named.get(os.path.realpath(Path(path).parent))
            if in_folder is not None and Path(path).stem == arguments.command:
                raise UsageError(
                    f"{name} {path} is in the folder of {in_folder[0]}, and would be replaced; name another folder"
                )
            if is_written:
                named[os.path.realpath(path)] = name, path


def _hint_for_word(word: str) -> str:
    """Return a remedy for a word that belongs to no option."""
    if not word.strip():
        return _EMPTY_VARIABLE
    if "@" in word:
        return " (separate metrics by commas, as hr@10,ndcg@10)"
    if word in SYSTEMS:
        return " (fastfedrec compare takes several systems, each after its own --system)"
    return ""
