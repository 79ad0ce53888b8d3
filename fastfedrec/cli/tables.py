"""Text and Parquet files as --data: tables and lists of items by user, recognized by their content."""

import argparse
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from fastfedrec.cli.outputs import show
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.merging import DUPLICATES
from fastfedrec.data.times import UNITS
from fastfedrec.datasets import load_adjacency, load_table
from fastfedrec.datasets.adjacency import is_adjacency
from fastfedrec.datasets.table_files import find_layout, is_parquet, table_columns

__all__ = ["add_columns", "column_options", "holds_lists", "is_table", "note_lists", "read_lists", "read_table"]

_COLUMNS = ("user", "item", "value", "timestamp")
# Number of bytes at a file's start that show its kind.
_N_PEEKED = 4096
# First bytes of Parquet, gzip, zstandard, UTF-16 and UTF-32.
_MARKS = (b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")


def add_columns(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the format of a table in --data."""
    group = command.add_argument_group(
        "columns of a table",
        "names in its header, or positions from 0 with --no-header; usual names are recognized",
    )
    group.add_argument("--user", metavar="COLUMN", help="column of user ids")
    group.add_argument("--item", metavar="COLUMN", help="column of item ids")
    group.add_argument("--value", metavar="COLUMN", help="column of ratings or counts")
    group.add_argument("--timestamp", metavar="COLUMN", help="column of times: whole numbers, or ISO 8601")
    group.add_argument("--timestamp-unit", choices=UNITS, help="unit of dates and times, since 1970 (default: s)")
    group.add_argument(
        "--time-format", metavar="FORM",
        help="format of other times, as '%%d/%%m/%%Y %%H:%%M', or s, ms, us, ns for numbers with a fraction",
    )  # fmt: skip
    group.add_argument(
        "--separator", metavar="TEXT", help=r"text between two fields, as ',' '::' or '\t'; default: detected"
    )
    group.add_argument(
        "--duplicates", choices=DUPLICATES,
        help="rule that merges the values of repeated user-item pairs (default: sum, with a warning)",
    )  # fmt: skip
    group.add_argument(
        "--drop-missing-ids",
        action="store_true",
        help="drop rows without a user or item; a warning counts them",
    )
    group.add_argument("--comment", metavar="TEXT", help="start of comment lines, as '#'")
    group.add_argument("--no-header", action="store_true", help="the first line is a row")
    group.add_argument("--no-quotes", action="store_true", help="double quotes are part of the text")
    command.add_argument(
        "--adjacency", action="store_true",
        help="not a table: each line has a user and all of its items, as '0 4 7 9'; detected if all are numbers",
    )  # fmt: skip


def is_table(path: Path) -> bool:
    """Check whether a file is text, plain or compressed, or Parquet, by its first bytes."""
    # The name decides only if there is no file, so that the error message is about a table.
    if not path.is_file():
        return re.search(r"\.(([ct]sv|txt|inter)(\.(gz|zst))?|parquet|pq)$", path.name.lower()) is not None
    if path.suffix.lower() in (".gz", ".zst", ".parquet", ".pq"):
        return True
    with open(path, "rb") as file:
        start = file.read(_N_PEEKED)
    if start.startswith(_MARKS):
        return True
    return not zipfile.is_zipfile(path) and not start.startswith(b"PK") and b"\0" not in start


def column_options(arguments: argparse.Namespace) -> list[str]:
    """Return the given options that apply only to tables."""
    options = (*_COLUMNS, "separator", "timestamp_unit", "time_format", "comment", "duplicates")
    named = [role for role in options if getattr(arguments, role, None) is not None]
    return [f"--{role.replace('_', '-')}" for role in named] + [
        f"--{flag}"
        for flag in ("no-header", "no-quotes", "drop-missing-ids")
        if getattr(arguments, flag.replace("-", "_"), False)
    ]


def holds_lists(arguments: argparse.Namespace, path: str) -> bool | None:
    """Check whether each line of a text file has a user and all of its items; None if its content does not show it."""
    options = column_options(arguments)
    if arguments.adjacency and (conflicting := [name for name in options if name != "--separator"]):
        raise ValueError(
            f"{conflicting[0]} is for tables, which have a row for each user and item; leave --adjacency out"
        )
    if arguments.adjacency:
        return True
    # Options of a table's columns show that the file is a table.
    return is_adjacency(Path(path)) if not options and _is_text(path) else False


def _is_text(path: str) -> bool:
    """Check whether a file exists and is not Parquet."""
    return Path(path).is_file() and not is_parquet(Path(path))


def note_lists(arguments: argparse.Namespace, path: str) -> None:
    """Print that a file is read as lists of items by user."""
    if not arguments.quiet:
        show(f"fastfedrec: {path}: each line has a user and its items (--adjacency)", file=sys.stderr)


def read_lists(
    arguments: argparse.Namespace, path: str, catalogue: dict[str, Any], of_ratings: str | None
) -> Interactions:
    """Read a file with a user and all of its items in each line."""
    if of_ratings:
        raise ValueError(
            f"{of_ratings} fits ratings, but each line of {path} has a user and its items; name a file with ratings"
        )
    if not arguments.adjacency:
        note_lists(arguments, path)
    separator = None if arguments.separator is None else arguments.separator.replace(r"\t", "\t")
    return load_adjacency(path, separator=separator, **catalogue)


def read_table(
    arguments: argparse.Namespace, path: str, catalogue: dict[str, Any], of_ratings: str | None
) -> Interactions:
    """Read a table, and print the columns that were detected."""
    header = not arguments.no_header
    options: dict[str, Any] = {role: getattr(arguments, role) for role in _COLUMNS}
    if not header:
        for role, text in options.items():
            if text is not None and not re.fullmatch("[0-9]+", text):
                raise ValueError(
                    f"--{role} must be a column's position from 0 with --no-header, got {text!r}; count the columns"
                )
        options = {role: text if text is None else int(text) for role, text in options.items()}
    separator = None if arguments.separator is None else arguments.separator.replace(r"\t", "\t")
    options |= {"separator": separator, "header": header, "quotes": not arguments.no_quotes}
    options |= {"timestamp_unit": arguments.timestamp_unit or "s", "time_format": arguments.time_format}
    options |= {"comment": arguments.comment, "missing_ids": "drop" if arguments.drop_missing_ids else "error"}
    # A header of numbers is most likely a first row of data.
    if header and options["user"] is None and _is_text(path):
        names = table_columns(path, separator, quotes=options["quotes"], comment=arguments.comment)
        if all(re.fullmatch(r"[0-9.]*", name) for name in names):
            # Ratings and times usually follow the two ids; a reader who copies the remedy must not lose them.
            further = " --value 2" * (len(names) in (3, 4)) + " --timestamp 3" * (len(names) == 4)
            raise ValueError(
                f"{path}: its first line, {' '.join(names)[:60].strip()!r}, names no columns; pass --no-header --user "
                f"0 --item 1{further} if it is a row, or --adjacency if each line has a user and all of its items"
            )
    layout = find_layout(path, **options)
    columns = {role: layout.names[position] for role, position in layout.places.items()}
    if of_ratings and "value" not in columns:
        raise ValueError(
            f"{of_ratings} fits ratings, but no column of {path} is recognized as 'value', out of {layout.names}; name "
            "it with --value"
        )
    if options["user"] is None and columns != {role: role for role in columns} and not arguments.quiet:
        show(f"fastfedrec: {path}: {', '.join(f'--{role} {name}' for role, name in columns.items())}", file=sys.stderr)
    return load_table(path, **options, duplicates=arguments.duplicates, **catalogue)
