"""Arguments of the command line: the parser, parameters of systems, and the account of a planned run.

An input has one argument in each line.  Commands that read or write files are only parsed.
"""

import contextlib
import functools
import io

from fastfedrec.accounting import UnsupportedEventError
from fastfedrec.cli.inputs import UsageError, make_system
from fastfedrec.cli.main import build_parser
from fastfedrec.systems.registry import SYSTEMS
from fuzz.target import ACCOUNTS_BYTES, Finding, Target

ACCOUNTS = ("run_reports", "run_gaussian")


@functools.cache
def parser():
    """Return the parser, which takes longer to make than to use."""
    return build_parser()


def seeds():
    """Return the accounts, other commands, and a command for each system."""
    lines = [
        "recommend model.npz --users 1 2 --k 5 --quiet", "evaluate fmf-ldp --data x.csv --top-items 20 --threads 2",
        "account reports --users 50000 --rounds 20 --epsilon 0.5 --delta 1e-6 --json",
        "account gaussian --noise-multiplier 1 --neighboring replace --users 4800 --cohort 20 --rounds 100",
        "account gaussian --noise-multiplier 2 --neighboring add_remove --sampling-probability 0.01 --rounds 1000",
    ]  # fmt: skip
    lines += [f"fit {name} --data generated:30x20 --set n_rounds=2 epsilon=1.5" for name in SYSTEMS]
    return ["\n".join(line.split()).encode() for line in lines]


def read(content, _folder):
    """Parse the arguments, make the system, and run a command that needs no file."""
    argv = content.decode("utf-8", "replace").split("\n")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            arguments = parser().parse_args(argv)
        except SystemExit as error:  # of argparse: 0 for a help text, 2 for an error with a message
            if error.code not in (0, 2) or (error.code == 2 and not errors.getvalue().strip()):
                raise Finding(f"exit status {error.code}: {errors.getvalue()!r}") from error
            return None
        if hasattr(arguments, "system") and hasattr(arguments, "set"):
            make_system(arguments.system, arguments.set)
        if arguments.run.__name__ in ACCOUNTS and arguments.plot is None:
            return arguments.run(arguments)
        return None


WORDS = (
    b"--set", b"--users", b"--rounds", b"--epsilon", b"--delta", b"--cohort", b"--noise-multiplier", b"--help",
    b"--version", b"nan", b"inf", b"-1", b"1e308", b"1e-308", b"9" * 25, b"True", b"None", b"'auto'", b"[[1]]",
    b"\xd9\xa1", b"=", b"--json", b"--details", b"--neighboring", b"zero_out", b"--sampling-probability",
)  # fmt: skip
# A table has an account for each power of ten of the rounds.
TARGET = Target(
    read=read, errors=(ValueError, TypeError, UsageError, UnsupportedEventError), seeds=seeds, words=WORDS,
    max_bytes=2**10, memory_bytes=ACCOUNTS_BYTES, seconds=15,
)  # fmt: skip
