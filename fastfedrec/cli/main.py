"""The command line: ``fastfedrec demo``, ``fit``, ``evaluate``, ``recommend``, ``account`` and more."""

import argparse
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.cli.account import add_account
from fastfedrec.cli.audit import add_audit
from fastfedrec.cli.cite import add_cite
from fastfedrec.cli.compare import add_compare
from fastfedrec.cli.completion import complete
from fastfedrec.cli.demo import add_demo
from fastfedrec.cli.docs import add_docs
from fastfedrec.cli.doctor import add_doctor
from fastfedrec.cli.evaluate import add_evaluate
from fastfedrec.cli.fit import add_fit
from fastfedrec.cli.inputs import UsageError
from fastfedrec.cli.ledger import add_ledger
from fastfedrec.cli.outputs import ClosedOutputError, any_terminal, close_output, show
from fastfedrec.cli.parsing import Parser, name_options, options_of, refuse_shared_files
from fastfedrec.cli.recommend import add_recommend
from fastfedrec.cli.reproduce import add_reproduce
from fastfedrec.cli.shuffler import add_shuffler
from fastfedrec.cli.split import add_split
from fastfedrec.cli.sweep import add_sweep
from fastfedrec.cli.systems import add_systems
from fastfedrec.core.interface import in_shell
from fastfedrec.core.version import __version__

__all__ = ["main"]

_EXAMPLES = (
    "fastfedrec systems",
    "fastfedrec fit dp-gram --data generated:5000x300 --set epsilon=2 --out model.npz --no-users",
    "fastfedrec ledger model.npz --html ledger.html",
    "fastfedrec docs",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None
        Arguments without the program's name; None takes the arguments of the process.

    Returns
    -------
    int
        Exit status: 0 for success; 2 for an error, with one line on standard error; 130 for an interrupt; 141 if the
        reader of the output closed it before the command finished, without a message.
    """
    # An error of the parser itself has no --debug.
    debug, arguments = False, None
    with any_terminal():
        try:
            parser = build_parser()
            complete(parser)
            arguments = parser.parse_args(argv)
            debug = arguments.debug
            refuse_shared_files(parser, arguments)
            with in_shell(), warnings.catch_warnings():
                warnings.showwarning = _warning_printer()
                answer = arguments.run(arguments)
            if answer is not None:
                with suppress(ClosedOutputError):  # the command's work is complete
                    show(answer)
        except ClosedOutputError:
            return 141  # 128 + SIGPIPE, the status of a program that the signal ends
        except KeyboardInterrupt as error:
            _print_error("interrupted")
            _print_spent_budget(error)
            return 130
        except Exception as error:
            if debug:
                traceback.print_exc()
            # A KeyError's text is the repr of its message.
            message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            if isinstance(error, OSError) and error.filename is not None and error.strerror:
                named = options_of(parser, arguments) if arguments is not None else ()
                of_path = (text for name, text in named if str(getattr(arguments, name, None)) == str(error.filename))
                message = f"{next(of_path, 'file')} {error.filename}: {error.strerror}; check the path"
            elif arguments is not None and not isinstance(error, UsageError):
                message = name_options(parser, arguments, message)
            _print_error(f"error: {' '.join(message.split()) or type(error).__name__}")
            _print_spent_budget(error)
            return 2
        finally:
            close_output()
    return 0


def _print_error(text: str) -> None:
    with suppress(ClosedOutputError):
        show(f"fastfedrec: {text}", file=sys.stderr)


def _print_spent_budget(error: BaseException) -> None:
    """Print the privacy cost of the finished rounds of a fit that failed."""
    ledger = getattr(error, "ledger", None)
    if isinstance(ledger, Ledger) and ledger.events:
        _print_error("there is no model, but this privacy budget is spent:\n\n" + ledger.summary())


def _warning_printer() -> Callable[..., None]:
    """Return a function that prints each warning of a command once; numbers in it may differ between seeds."""
    printed: set[str] = set()

    def print_warning(message: Warning | str, *_: Any) -> None:
        text = re.sub("[0-9]+", "0", str(message))
        if text not in printed:
            printed.add(text)
            _print_error(f"warning: {message}")

    return print_warning


def build_parser() -> Parser:
    """Return the parser of all commands.

    Returns
    -------
    Parser
        Parser of a namespace with `run`, a function of the namespace that returns the output: text, a document for
        JSON, or None if it printed everything itself.
    """
    parser = Parser(prog="fastfedrec", description="Private federated recommenders, compiled.", examples=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"fastfedrec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Options of every command.
    common = Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print only one JSON document")
    common.add_argument(
        "--quiet", action="store_true", help="print only the answer, warnings and errors, without progress and remarks"
    )
    common.add_argument("--debug", action="store_true", help="print the traceback of an error")

    def add(name: str, run: Any, text: str, examples: Sequence[str] = ()) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common], help=text, description=text, examples=examples)
        command.set_defaults(run=run)
        return command

    add_demo(add)
    add_fit(add)
    add_split(add)
    add_evaluate(add)
    add_compare(add)
    add_recommend(add)
    add_ledger(add)
    add_account(commands, common)
    add_audit(add)
    add_reproduce(add)
    add_sweep(add)
    add_systems(add)
    add_cite(add)
    add_docs(add)
    add_doctor(add)
    add_shuffler(add)
    return parser
