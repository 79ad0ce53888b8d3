"""Text of the user's own as --data: tables and lists of items by user, told by what they hold."""

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

__all__ = ["add_columns", "holds_lists", "is_table", "read_lists", "read_table", "tell_lists", "told_columns"]

_COLUMNS = ("user", "item", "value", "timestamp")
_PEEKED = 4096
# Of Parquet, gzip, zstandard, UTF-16 and UTF-32.
_MARKS = (b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")


def add_columns(command: argparse.ArgumentParser) -> None:
    """The arguments that say how --data is to be read where it is a table."""
    group = command.add_argument_group(
        "columns of a table",
        "names in its header, or places from 0 with --no-header; usual names are known by themselves",
    )
    group.add_argument("--user", metavar="COLUMN", help="who")
    group.add_argument("--item", metavar="COLUMN", help="what")
    group.add_argument("--value", metavar="COLUMN", help="the rating or count")
    group.add_argument("--timestamp", metavar="COLUMN", help="when: whole numbers, or ISO 8601")
    group.add_argument("--timestamp-unit", choices=UNITS, help="what dates and times become, since 1970 (default: s)")
    group.add_argument(
        "--time-format", metavar="FORM",
        help="the form of other times, as '%%d/%%m/%%Y %%H:%%M', or s, ms, us, ns for numbers with a fraction",
    )  # fmt: skip
    group.add_argument(
        "--separator", metavar="TEXT", help=r"between two fields, as ',' '::' or '\t'; found if not given"
    )
    group.add_argument(
        "--duplicates", choices=DUPLICATES,
        help="what becomes of the values where a user has an item twice (default: sum, with a warning)",
    )  # fmt: skip
    group.add_argument(
        "--drop-missing-ids",
        action="store_true",
        help="leave out rows without a user or item; a warning counts them",
    )
    group.add_argument("--comment", metavar="TEXT", help="the begin of lines that are comments, as '#'")
    group.add_argument("--no-header", action="store_true", help="the first line is a row")
    group.add_argument("--no-quotes", action="store_true", help="double quotes are a part of the text")
    command.add_argument(
        "--adjacency", action="store_true",
        help="no table: each line is a user and all of its items, as '0 4 7 9'; found by itself where all are numbers",
    )  # fmt: skip


def is_table(path: Path) -> bool:
    """Whether a file holds lines of text, plain or packed, or Parquet; told by what it begins with, not by its name."""
    if not path.is_file():
        return re.search(r"\.(([ct]sv|txt|inter)(\.(gz|zst))?|parquet|pq)$", path.name.lower()) is not None
    if path.suffix.lower() in (".gz", ".zst", ".parquet", ".pq"):
        return True
    with open(path, "rb") as file:
        start = file.read(_PEEKED)
    if start.startswith(_MARKS):
        return True
    return not zipfile.is_zipfile(path) and not start.startswith(b"PK") and b"\0" not in start


def told_columns(arguments: argparse.Namespace) -> list[str]:
    """The options given that are about the columns of a table."""
    options = (*_COLUMNS, "separator", "timestamp_unit", "time_format", "comment", "duplicates")
    named = [role for role in options if getattr(arguments, role, None) is not None]
    return [f"--{role.replace('_', '-')}" for role in named] + [
        f"--{flag}"
        for flag in ("no-header", "no-quotes", "drop-missing-ids")
        if getattr(arguments, flag.replace("-", "_"), False)
    ]


def holds_lists(arguments: argparse.Namespace, path: str) -> bool | None:
    """Whether a text file has a user and all of its items in each line; None where nothing tells it from a table."""
    told = told_columns(arguments)
    if arguments.adjacency and (others := [name for name in told if name != "--separator"]):
        raise ValueError(f"{others[0]} is for tables, which have a row for each user and item; leave --adjacency out")
    if arguments.adjacency:
        return True
    return is_adjacency(Path(path)) if not told and _is_text(path) else False


def _is_text(path: str) -> bool:
    """Whether there is a file, and not one of Parquet."""
    return Path(path).is_file() and not is_parquet(Path(path))


def tell_lists(arguments: argparse.Namespace, path: str) -> None:
    """Say what a file is taken for where nobody said so."""
    if not arguments.quiet:
        show(f"fastfedrec: {path}: each line is a user and its items (--adjacency)", file=sys.stderr)


def read_lists(
    arguments: argparse.Namespace, path: str, catalogue: dict[str, Any], of_ratings: str | None
) -> Interactions:
    """Read the items of each line's user."""
    if of_ratings:
        raise ValueError(f"{of_ratings} fits ratings, and {path} has none: each line is a user and its items")
    if not arguments.adjacency:
        tell_lists(arguments, path)
    separator = None if arguments.separator is None else arguments.separator.replace(r"\t", "\t")
    return load_adjacency(path, separator=separator, **catalogue)


def read_table(
    arguments: argparse.Namespace, path: str, catalogue: dict[str, Any], of_ratings: str | None
) -> Interactions:
    """Read the table, and tell which columns were taken where nobody named them."""
    header = not arguments.no_header
    options: dict[str, Any] = {role: getattr(arguments, role) for role in _COLUMNS}
    if not header:
        for role, text in options.items():
            if text is not None and not re.fullmatch("[0-9]+", text):
                raise ValueError(f"--{role} must be a place from 0 with --no-header, got {text!r}")
        options = {role: text if text is None else int(text) for role, text in options.items()}
    separator = None if arguments.separator is None else arguments.separator.replace(r"\t", "\t")
    options |= {"separator": separator, "header": header, "quotes": not arguments.no_quotes}
    options |= {"timestamp_unit": arguments.timestamp_unit or "s", "time_format": arguments.time_format}
    options |= {"comment": arguments.comment, "missing_ids": "drop" if arguments.drop_missing_ids else "error"}
    if header and options["user"] is None and _is_text(path):
        names = table_columns(path, separator, quotes=options["quotes"], comment=arguments.comment)
        if all(re.fullmatch(r"[0-9.]*", name) for name in names):
            raise ValueError(
                f"{path}: its first line, {' '.join(names)[:60].strip()!r}, names no columns; pass --no-header --user "
                "0 --item 1 where it is a row, or --adjacency where each line is a user and all of its items"
            )
    layout = find_layout(path, **options)
    columns = {role: layout.names[place] for role, place in layout.places.items()}
    if of_ratings and "value" not in columns:
        raise ValueError(
            f"{of_ratings} fits ratings, and {path} has no column known as 'value', only {layout.names}; name it with "
            "--value"
        )
    if options["user"] is None and columns != {role: role for role in columns} and not arguments.quiet:
        show(f"fastfedrec: {path}: {', '.join(f'--{role} {name}' for role, name in columns.items())}", file=sys.stderr)
    return load_table(path, **options, duplicates=arguments.duplicates, **catalogue)
