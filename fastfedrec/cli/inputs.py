"""What the commands' arguments stand for: numbers, a system with its parameters, and data."""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.completion import complete_set, complete_system
from fastfedrec.cli.tables import add_columns, holds_lists, is_table, read_lists, read_table, told_columns
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

_GENERATED_DATA_SEED = 0  # "generated:50000x1000" is one data set, whatever seed a run takes
DATA_HELP = (
    "MovieLens or Netflix zip or folder as downloaded; a file of text (also .gz, .zst) or Parquet with a row for each "
    "user and item, and perhaps a value and a timestamp; a text file with a user and all of its items in each line, as "
    "of LightGCN's Gowalla; a SciPy sparse matrix saved as .npz; or generated:USERSxITEMS "
    "(always the same data for one size and --preset; generated: has the preset's own size)"
)


class UsageError(Exception):
    """The command line itself is wrong."""


def natural(text: str) -> int:
    """Read a whole number of at least 0."""
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parse_literal(text: str) -> Any:
    """Read a Python literal where it is one, else keep the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def split_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """Read --set: names to the text of their values."""
    found: dict[str, str] = {}
    for assignment in assignments:
        parameter, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, got {assignment!r}")
        if parameter in found:
            raise UsageError(f"--set gives {parameter!r} twice")
        found[parameter] = text
    return found


def make_system(name: str, assignments: Sequence[str]) -> Any:
    """A system with the parameters that --set gives."""
    return registry.make_system(
        name, {parameter: parse_literal(text) for parameter, text in split_assignments(assignments).items()}
    )


def add_catalogue(command: argparse.ArgumentParser) -> None:
    """The arguments that name a public list of items, say which values count, and describe a table."""
    command.add_argument(
        "--catalogue", metavar="FILE",
        help="the public list of items of --data, in this order: a text file with an id a line, a .npy file, or "
        "'published' for MovieLens and Netflix; without it the list is taken from the data, which no guarantee covers",
    )  # fmt: skip
    command.add_argument(
        "--drop-unlisted", action="store_true", help="drop entries whose item --catalogue does not list"
    )
    command.add_argument(
        "--binarize", type=float, metavar="X",
        help="implicit feedback of ratings: values above X count, and count alike; others are left out",
    )  # fmt: skip
    add_columns(command)


def add_system_and_data(command: argparse.ArgumentParser, *, in_parts: bool = False) -> None:
    """The arguments that name a system, its parameters and data."""
    system = command.add_argument("system", metavar="SYSTEM", help=", ".join(registry.SYSTEMS))
    values = command.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="its parameters; see systems SYSTEM"
    )
    system.completer, values.completer = complete_system, complete_set  # type: ignore[attr-defined]
    add_data(command, in_parts=in_parts)


def add_data(command: argparse.ArgumentParser, *, in_parts: bool = False) -> None:
    """The arguments that name data, perhaps as a train and a test file, and what is kept of them."""
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
        "--min-interactions", type=positive, metavar="N", help="then keep users with N items, and items with a user"
    )
    command.add_argument("--threads", type=natural, default=0, metavar="N", help="0: all there are; changes no result")


def add_preset(command: argparse.ArgumentParser, option: str) -> None:
    """Add the argument that names the kind of data that `option` generates."""
    command.add_argument(
        "--preset", choices=PRESET_NAMES, help=f"of {option}: the data that it imitates (default: movielens-1m)"
    )


def add_parts(command: argparse.ArgumentParser, source: Any) -> None:
    """The arguments that name data in parts, of which `source`, a group, has the first; see `parts.load_parts`."""
    source.add_argument("--train", metavar="PATH", help="instead: fit on this file, and test by --test")
    command.add_argument("--test", metavar="PATH", help="of --train: what is tested, of any users and items")
    command.add_argument("--given", metavar="PATH", help="of --train: what is known of users who are not in it")


def _read_catalogue(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a loader takes for --catalogue and --drop-unlisted."""
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
        except Exception as error:  # whatever a file that is none makes NumPy and Python's parser raise
            reason = "it holds Python objects" if "pickle" in str(error) else str(error)
            raise ValueError(f"--catalogue {source} is no readable .npy file ({reason}); see numpy.save") from error
        if not isinstance(item_ids, np.ndarray) or item_ids.ndim != 1:
            got = f"shape {item_ids.shape}" if isinstance(item_ids, np.ndarray) else "an archive of arrays"
            raise ValueError(f"--catalogue {source} must hold one array of 1 dimension, got {got}")
    else:
        item_ids = read_ids("--catalogue", source, quotes=not arguments.no_quotes)
    return {"item_ids": item_ids, "unlisted": "drop" if arguments.drop_unlisted else "error"}


def read_ids(option: str, path: str, *, quotes: bool = True) -> TextList:
    """The ids of the text file that an option names, one a line, perhaps in quotes; - is standard input."""
    try:
        text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{option} {path} is no UTF-8 text ({error.reason}); write one id a line") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # and no other line ends: an id may hold them
    text += "" if text.endswith("\n") or not text else "\n"
    if quotes and '"' in text:
        item_ids = _quoted_ids(f"{option} {path}", text)
    else:
        item_ids = TextList(line.strip(BLANKS) for line in text.split("\n")[:-1])
    if "" in item_ids:
        raise ValueError(f"{option} {path}, line {item_ids.index('') + 1}: an id is missing; remove the line")
    heads = [bool(re.fullmatch("-?[0-9]+", text)) for text in item_ids]
    if item_ids and (item_ids[0] in ("user", "item") or (len(heads) > 1 and all(heads[1:]) and not heads[0])):
        raise ValueError(
            f"{option} {path}, line 1: {item_ids[0]!r} looks like a heading, not like an id; remove the line, or "
            "move it to another place if it is one"
        )
    return item_ids


def _quoted_ids(source: str, text: str) -> TextList:
    """The ids of lines of which some begin with a quote."""
    ids, line = TextList(), 1
    try:
        for record in split_records(text, "\n", quotes=True):
            if record.broken is not None:
                shown = text[record.start : record.end].rstrip()[:40]
                raise ValueError(
                    f"{source}, line {line}: the id has text behind its closing quote, got {shown!r}; "
                    "write an id that begins with a quote in quotes, and each of its quotes twice"
                )
            ids.append(record.fields[0])
            line += record.n_lines
    except OpenQuote:
        raise ValueError(f"{source}, line {line}: a quote is opened and not closed; close it") from None
    return ids


def load_data(arguments: argparse.Namespace, systems: Iterable[type] = ()) -> Interactions:
    """The data that --data names, for these systems, as far as --catalogue and the other options keep them.

    Whether there are ratings is told by what the source is, never by its rows: a private fit must not look.
    """
    source, catalogue = arguments.data, _read_catalogue(arguments)
    of_ratings = next((system.__name__ for system in systems if hasattr(system, "predict")), None)
    if of_ratings and source.startswith("generated:"):
        raise UsageError(f"{of_ratings} fits ratings, and {source} has none; name a file that has")
    if arguments.preset is not None and not source.startswith("generated:"):
        raise UsageError(f"--preset is for --data generated:..., got {source!r}; leave one of them out")
    if catalogue and (source.startswith("generated:") or source.endswith(".npz")):
        raise UsageError(f"--catalogue is for tables and published files; {source} states its items itself")
    read_as_table = not source.startswith("generated:") and not source.endswith(".npz") and is_table(Path(source))
    told = told_columns(arguments) + ["--adjacency"] * arguments.adjacency
    if told and not read_as_table:
        raise UsageError(f"{told[0]} is for files of text; {source} states by itself what it holds")
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
        raise ValueError(f"--data {source} is {kind}")
    elif holds_netflix(Path(source)):
        data = load_netflix(source, **catalogue)
    else:
        data = load_movielens(source, **catalogue)
    if arguments.binarize is not None:
        if of_ratings:
            raise UsageError(f"{of_ratings} fits ratings, of which --binarize leaves none")
        data = data.binarize(check_real("--binarize", arguments.binarize, low=0.0))
    if arguments.top_items is not None:
        data = data.top_items(arguments.top_items)
    if arguments.min_interactions is not None:
        # A catalogue that was given stays as it is, with what nobody has.
        data = data.filter_core(
            min_interactions_per_user=arguments.min_interactions, min_interactions_per_item=0 if catalogue else 1
        )
    if not data.n_interactions:
        raise ValueError(f"--data {source} has no interactions left; lower --min-interactions or --binarize")
    return data


def _generate(arguments: argparse.Namespace) -> Interactions:
    """Generate the data that --data and --preset name."""
    size = re.fullmatch(r"generated:(?:([0-9]+)x([0-9]+))?", arguments.data)
    if size is None:
        raise UsageError(f"--data must be like generated:50000x1000 (users x items), got {arguments.data!r}")
    n_users, n_items = (None if number is None else int(number) for number in size.groups())
    return generate_implicit(
        n_users, n_items, key=Key.from_seed(_GENERATED_DATA_SEED), preset=arguments.preset or "movielens-1m",
        n_threads=arguments.threads,
    )  # fmt: skip


_PLACES = {"indices", "indptr", "row", "col", "coords", "offsets"}  # of entries, in the formats of SciPy


def _read_matrix(path: str) -> Interactions:
    import scipy.sparse

    try:
        with open(path, "rb") as file:
            archive = Archive(file)  # which refuses what would unpack to more than a file of its size may
            for name in _PLACES.intersection(archive.sizes):
                if (dtype := archive.read(name).dtype).kind not in "iu":  # SciPy would round them
                    raise ValueError(f"{name} must hold integers, got dtype {dtype}")
        matrix = scipy.sparse.load_npz(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a file that is none makes NumPy and SciPy raise
        reason = "it holds Python objects" if "pickle" in str(error) else str(error) or type(error).__name__
        raise ValueError(f"--data {path} is not a SciPy sparse matrix ({reason}); see scipy.sparse.save_npz") from error
    try:
        return Interactions.from_scipy(matrix)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--data {path}: {error}") from error
