"""Tables of the user's own as --data: what tells them from published archives, and where their columns are."""

import argparse
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from fastfedrec.cli.outputs import show
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.times import UNITS
from fastfedrec.datasets import load_table
from fastfedrec.datasets.table_files import find_layout

__all__ = ["add_columns", "is_table", "read_table", "told_columns"]

_COLUMNS = ("user", "item", "value", "timestamp")
_PEEKED = 4096


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
        "--separator", metavar="TEXT", help=r"between two fields, as ',' '::' or '\t'; found if not given"
    )
    group.add_argument("--no-header", action="store_true", help="the first line is a row")
    group.add_argument("--no-quotes", action="store_true", help="double quotes are a part of the text")


def is_table(path: Path) -> bool:
    """Whether a file holds lines of text, plain or packed, or Parquet; told by what it begins with, not by its name."""
    if not path.is_file():
        return re.search(r"\.([ct]sv(\.(gz|zst))?|parquet|pq)$", path.name.lower()) is not None
    if path.suffix.lower() in (".gz", ".zst", ".parquet", ".pq"):
        return True
    with open(path, "rb") as file:
        start = file.read(_PEEKED)
    if start.startswith((b"PAR1", b"\xff\xfe", b"\xfe\xff")):
        return True
    return not zipfile.is_zipfile(path) and not start.startswith(b"PK") and b"\0" not in start


def told_columns(arguments: argparse.Namespace) -> list[str]:
    """The options given that are about the columns of a table."""
    named = [role for role in (*_COLUMNS, "separator", "timestamp_unit") if getattr(arguments, role, None) is not None]
    return [f"--{role.replace('_', '-')}" for role in named] + [
        f"--no-{what}" for what in ("header", "quotes") if getattr(arguments, f"no_{what}", False)
    ]


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
    options |= {"timestamp_unit": arguments.timestamp_unit or "s"}
    layout = find_layout(path, **options)
    columns = {role: layout.names[place] for role, place in layout.places.items()}
    if of_ratings and "value" not in columns:
        raise ValueError(
            f"{of_ratings} fits ratings, and {path} has no column known as 'value', only {layout.names}; name it with "
            "--value"
        )
    if options["user"] is None and columns != {role: role for role in columns} and not arguments.quiet:
        show(f"fastfedrec: {path}: {', '.join(f'--{role} {name}' for role, name in columns.items())}", file=sys.stderr)
    return load_table(path, **options, **catalogue)
