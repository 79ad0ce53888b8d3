"""Parsing of arguments that several commands share: numbers, a system with its parameters, and data."""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.completion import complete_set, complete_system
from fastfedrec.cli.tables import add_columns, column_options, holds_lists, is_table, read_lists, read_table
from fastfedrec.core.check import check_real
from fastfedrec.core.npz import Archive
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit, load_movielens, load_netflix
from fastfedrec.datasets.columns import BLANKS, OpenQuote, TextList, split_records
from fastfedrec.datasets.files import other_kind
from fastfedrec.datasets.generate import PRESET_NAMES
from fastfedrec.datasets.netflix import holds_netflix
from fastfedrec.systems import registry

__all__ = [
    "DATA_HELP",
    "UsageError",
    "add_catalogue",
    "add_data",
    "add_parts",
    "add_preset",
    "add_system_and_data",
    "load_data",
    "make_system",
    "natural",
    "parse_literal",
    "positive",
    "read_ids",
    "split_assignments",
]

# "generated:50000x1000" is the same data set for every seed of a run.
_GENERATED_DATA_SEED = 0
DATA_HELP = (
    "MovieLens or Netflix zip or folder as downloaded; a text file (also .gz, .zst) or Parquet file with a row for "
    "each user and item, and an optional value and timestamp; a text file with a user and all of its items in each "
    "line, like LightGCN's Gowalla; a SciPy sparse matrix saved as .npz; or generated:USERSxITEMS "
    "(always the same data for one size and --preset; generated: has the preset's size)"
)


class UsageError(Exception):
    """Error in the command line itself."""


def natural(text: str) -> int:
    """Parse a whole number of at least 0."""
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parse_literal(text: str) -> Any:
    """Parse a Python literal, or return the text if it is not one."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def split_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """Parse the values of --set into a dict of names to texts."""
    texts: dict[str, str] = {}
    for assignment in assignments:
        parameter, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set must be NAME=VALUE, got {assignment!r}; see systems SYSTEM for names")
        if parameter in texts:
            raise UsageError(f"--set gives {parameter!r} twice; leave one out")
        texts[parameter] = text
    return texts


def make_system(name: str, assignments: Sequence[str]) -> Any:
    """Return a system with the parameters of --set."""
    texts = split_assignments(assignments)
    try:
        return registry.make_system(name, {parameter: parse_literal(text) for parameter, text in texts.items()})
    except (TypeError, ValueError) as error:
        # Only `sweep` takes a list of values, and Python reads "1,2" as a tuple.
        for parameter, text in texts.items():
            if "," in text and text[0] not in "([{'\"" and str(error).startswith(f"{parameter} must be "):
                raise UsageError(
                    f"--set {parameter} must be one value, got {text!r}; repeat --system {name} for each value, or use "
                    "fastfedrec sweep"
                ) from error
        raise


def add_catalogue(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the catalogue, the threshold of values, and the columns of a table."""
    command.add_argument(
        "--catalogue", metavar="FILE",
        help="public list of the items of --data, in this order: a text file with an id in each line, a .npy file, or "
        "'published' for MovieLens and Netflix; without it the list is taken from the data, which no guarantee covers",
    )  # fmt: skip
    command.add_argument("--drop-unlisted", action="store_true", help="drop entries with an item outside --catalogue")
    command.add_argument(
        "--binarize", type=float, metavar="X",
        help="make ratings implicit: values above X become 1, and all others are dropped",
    )  # fmt: skip
    add_columns(command)


def add_system_and_data(command: argparse.ArgumentParser, *, in_parts: bool = False) -> None:
    """Add the arguments of a system, its parameters and data."""
    system = command.add_argument("system", metavar="SYSTEM", help=", ".join(registry.SYSTEMS))
    values = command.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="parameters; see systems SYSTEM"
    )
    system.completer, values.completer = complete_system, complete_set  # type: ignore[attr-defined]
    add_data(command, in_parts=in_parts)


def add_data(command: argparse.ArgumentParser, *, in_parts: bool = False) -> None:
    """Add the arguments of data, with `in_parts` also as train and test files, and of their filters."""
    if in_parts:
        source = command.add_mutually_exclusive_group(required=True)
        source.add_argument("--data", metavar="PATH", help=DATA_HELP)
        add_parts(command, source)
    else:
        command.add_argument("--data", required=True, metavar="PATH", help=DATA_HELP)
    add_preset(command, "--data generated:...")
    add_catalogue(command)
    command.add_argument(
        "--top-items", type=positive, metavar="N",
        help="for experiments: keep the N most used items, a choice that no guarantee covers",
    )  # fmt: skip
    command.add_argument(
        "--min-interactions",
        type=positive,
        metavar="N",
        help="then keep users with at least N items, and items with at least one user",
    )
    command.add_argument(
        "--threads",
        type=natural,
        default=0,
        metavar="N",
        help="number of threads, 0 for all processors; results do not depend on it",
    )


def add_preset(command: argparse.ArgumentParser, option: str) -> None:
    """Add the argument of the data set that the generated data of `option` imitate."""
    command.add_argument(
        "--preset", choices=PRESET_NAMES, help=f"for {option}: data set to imitate (default: movielens-1m)"
    )


def add_parts(command: argparse.ArgumentParser, source: Any) -> None:
    """Add the arguments of data in parts, --train to the group `source`; see `parts.load_parts`."""
    source.add_argument("--train", metavar="PATH", help="file to fit on, instead of --data; needs --test")
    command.add_argument("--test", metavar="PATH", help="with --train: file to test on, with any users and items")
    command.add_argument("--given", metavar="PATH", help="with --train: known interactions of users outside --train")


def _read_catalogue(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a loader's arguments for --catalogue and --drop-unlisted."""
    source = arguments.catalogue
    if source is None:
        if arguments.drop_unlisted:
            raise UsageError("--drop-unlisted needs --catalogue FILE")
        return {}
    if source == "published":
        item_ids: Any = source
    elif source.endswith(".npy"):
        try:
            item_ids = np.load(source, allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # NumPy and Python's parser raise many kinds for a bad file
            reason = "Python objects" if "pickle" in str(error) else str(error)
            raise ValueError(
                f"--catalogue {source} must be a readable .npy file, got {reason}; write it by numpy.save"
            ) from error
        if not isinstance(item_ids, np.ndarray) or item_ids.ndim != 1:
            got = f"shape {item_ids.shape}" if isinstance(item_ids, np.ndarray) else "an archive of arrays"
            raise ValueError(
                f"--catalogue {source} must hold one array of 1 dimension, got {got}; write it by numpy.save"
            )
    else:
        item_ids = read_ids("--catalogue", source, quotes=not arguments.no_quotes)
    if not len(item_ids):
        raise UsageError(f"--catalogue {source} must list at least one item, got none")
    return {"item_ids": item_ids, "unlisted": "drop" if arguments.drop_unlisted else "error"}


def read_ids(option: str, path: str, *, quotes: bool = True) -> TextList:
    """Read ids from a text file, one in each line and optionally quoted; - is standard input."""
    try:
        text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{option} {path} must be UTF-8 text, got {error.reason}; write one id in each line"
        ) from error
    # Other Unicode line ends do not separate lines, since an id may contain them.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text += "" if text.endswith("\n") or not text else "\n"
    if quotes and '"' in text:
        item_ids = _quoted_ids(f"{option} {path}", text)
    else:
        item_ids = TextList(line.strip(BLANKS) for line in text.split("\n")[:-1])
    if "" in item_ids:
        raise ValueError(f"{option} {path}, line {item_ids.index('') + 1}: an id is missing; remove the line")
    are_numbers = [bool(re.fullmatch("-?[0-9]+", text)) for text in item_ids]
    # A first line of text above numbers is a header.
    has_header = len(are_numbers) > 1 and all(are_numbers[1:]) and not are_numbers[0]
    if item_ids and (item_ids[0] in ("user", "item") or has_header):
        raise ValueError(
            f"{option} {path}, line 1: {item_ids[0]!r} looks like a header, not like an id; remove the line, or "
            "move it to another line if it is an id"
        )
    return item_ids


def _quoted_ids(source: str, text: str) -> TextList:
    """Parse ids of a file in which some lines begin with a quote."""
    ids, line = TextList(), 1
    try:
        for record in split_records(text, "\n", quotes=True):
            if record.broken is not None:
                shown = text[record.start : record.end].rstrip()[:40]
                raise ValueError(
                    f"{source}, line {line}: the id has text after its closing quote, got {shown!r}; "
                    "put an id that begins with a quote in quotes, and double each of its quotes"
                )
            ids.append(record.fields[0])
            line += record.n_lines
    except OpenQuote:
        raise ValueError(f"{source}, line {line}: a quote is not closed; close it") from None
    return ids


def load_data(arguments: argparse.Namespace, systems: Iterable[type] = ()) -> Interactions:
    """Load the data of --data, filtered by --catalogue and the other options, for these systems."""
    # The kind of the source determines whether there are ratings, not its rows: a private fit must not read them first.
    source, catalogue = arguments.data, _read_catalogue(arguments)
    if (Path(source) / "train.csv").is_file():  # written by fastfedrec split
        raise UsageError(f"--data must be a file, got the folder {source} of a split; pass --train and --test")
    of_ratings = next((system.__name__ for system in systems if hasattr(system, "predict")), None)
    if of_ratings and source.startswith("generated:"):
        raise UsageError(f"{of_ratings} fits ratings, and {source} has none; name a file with ratings")
    if arguments.preset is not None and not source.startswith("generated:"):
        raise UsageError(f"--preset is for --data generated:..., got {source!r}; leave one of them out")
    if catalogue and (source.startswith("generated:") or source.endswith(".npz")):
        raise UsageError(f"--catalogue is for tables and published files; leave it out, for {source} lists its items")
    read_as_table = not source.startswith("generated:") and not source.endswith(".npz") and is_table(Path(source))
    table_options = column_options(arguments) + ["--adjacency"] * arguments.adjacency
    if table_options and not read_as_table:
        raise UsageError(f"{table_options[0]} is for text files; leave it out, for {source} has a known format")
    if source.startswith("generated:"):
        data = _generate(arguments)
    elif source.endswith(".npz"):
        data = _read_matrix(source)
    elif read_as_table:
        if arguments.catalogue == "published":
            raise UsageError(f"--catalogue published is for MovieLens and Netflix; name a file for {source}")
        read = read_lists if holds_lists(arguments, source) else read_table
        data = read(arguments, source, catalogue, of_ratings)
    elif Path(source).is_file() and not (kind := other_kind(Path(source)) or "a zip").startswith("a zip"):
        raise ValueError(f"--data {source} is {kind}; see --help for the formats")
    elif holds_netflix(Path(source)):
        data = load_netflix(source, **catalogue)
    else:
        data = load_movielens(source, **catalogue)
    # The filters are applied in this order: values, items, then users.
    if arguments.binarize is not None:
        if of_ratings:
            raise UsageError(f"{of_ratings} fits ratings, but --binarize drops them; leave it out")
        data = data.binarize(check_real("--binarize", arguments.binarize, low=0.0))
    if arguments.top_items is not None:
        data = data.top_items(arguments.top_items)
    if arguments.min_interactions is not None:
        # A public catalogue stays complete, including items without users.
        data = data.filter_core(
            min_interactions_per_user=arguments.min_interactions, min_interactions_per_item=0 if catalogue else 1
        )
    if not data.n_interactions:
        raise ValueError(f"--data {source} has no remaining interactions; lower --min-interactions or --binarize")
    return data


def _generate(arguments: argparse.Namespace) -> Interactions:
    """Generate the data that --data and --preset name."""
    # Without sizes, the data have the preset's size.
    size = re.fullmatch(r"generated:(?:([0-9]+)x([0-9]+))?", arguments.data)
    if size is None:
        raise UsageError(f"--data must be like generated:50000x1000 (users x items), got {arguments.data!r}")
    n_users, n_items = (None if number is None else int(number) for number in size.groups())
    return generate_implicit(
        n_users, n_items, key=Key.from_seed(_GENERATED_DATA_SEED), preset=arguments.preset or "movielens-1m",
        n_threads=arguments.threads,
    )  # fmt: skip


# Arrays of positions of entries in SciPy's formats.
_POSITION_ARRAYS = {"indices", "indptr", "row", "col", "coords", "offsets"}


def _read_matrix(path: str) -> Interactions:
    """Read a SciPy sparse matrix from an untrusted file."""
    import scipy.sparse

    try:
        with open(path, "rb") as file:
            archive = Archive(file)  # refuses archives that would unpack to far more than the file's size
            for name in _POSITION_ARRAYS.intersection(archive.sizes):
                if (dtype := archive.read(name).dtype).kind not in "iu":  # SciPy would round them
                    raise ValueError(f"{name} must hold integers, got dtype {dtype}")
        matrix = scipy.sparse.load_npz(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy and SciPy raise many kinds for a bad file
        reason = "Python objects" if "pickle" in str(error) else str(error) or type(error).__name__
        raise ValueError(
            f"--data {path} must be a SciPy sparse matrix, got {reason}; write it by scipy.sparse.save_npz"
        ) from error
    try:
        return Interactions.from_scipy(matrix)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--data {path}: {error}") from error
