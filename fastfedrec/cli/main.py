"""The command line: ``fastfedrec demo``, ``fit``, ``evaluate``, ``recommend``, ``account`` and all others."""

import argparse
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from fastfedrec.accounting import Ledger
from fastfedrec.cli.account import add_account
from fastfedrec.cli.audit import add_audit
from fastfedrec.cli.demo import add_demo
from fastfedrec.cli.doctor import add_doctor
from fastfedrec.cli.evaluate import add_evaluate
from fastfedrec.cli.fit import add_fit
from fastfedrec.cli.inputs import UsageError
from fastfedrec.cli.recommend import add_recommend
from fastfedrec.cli.reproduce import add_reproduce
from fastfedrec.cli.shuffler import add_shuffler
from fastfedrec.cli.sweep import add_sweep
from fastfedrec.core.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None
        Arguments without the program's name; None takes the process's own.

    Returns
    -------
    int
        0; 2 after an error, which is one line on standard error; 130 where it was interrupted.
    """
    debug = False
    try:
        arguments = _build_parser().parse_args(argv)
        debug = arguments.debug
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            arguments.run(arguments)
    except KeyboardInterrupt as error:
        print("fastfedrec: interrupted", file=sys.stderr)
        _show_what_was_spent(error)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        # A KeyError's text is the repr of its message.
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        print(f"fastfedrec: error: {' '.join(message.split()) or type(error).__name__}", file=sys.stderr)
        _show_what_was_spent(error)
        return 2
    return 0


def _show_what_was_spent(error: BaseException) -> None:
    """After a fit that did not finish: what its rounds have cost all the same."""
    ledger = getattr(error, "ledger", None)
    if isinstance(ledger, Ledger) and ledger.events:
        print("fastfedrec: the model is not there, but this was spent:\n\n" + ledger.summary(), file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any) -> None:
    print(f"fastfedrec: warning: {message}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print a page and exit; takes no abbreviated options."""

    def __init__(self, **arguments: Any):
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _build_parser() -> _Parser:
    parser = _Parser(prog="fastfedrec", description="Private federated recommenders, compiled.")
    parser.add_argument("--version", action="version", version=f"fastfedrec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = _Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def add(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common], help=text, description=text)
        command.set_defaults(run=run)
        return command

    add_demo(add)
    add_fit(add)
    add_evaluate(add)
    add_recommend(add)
    add_account(commands, common)
    add_audit(add)
    add_reproduce(add)
    add_sweep(add)
    add_doctor(add)
    add_shuffler(add)
    return parser
