"""The command ``fastfedrec split``: divide a data set into train and test files."""

import argparse
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError, add_data, load_data, natural, positive
from fastfedrec.cli.outputs import csv_lines
from fastfedrec.cli.parts import SPLIT_FILE, digest_of, named_parts
from fastfedrec.cli.splitters import SPLITTERS, add_by, make_splitter
from fastfedrec.core.files import check_folder, new_file, write_text
from fastfedrec.core.numbers import show
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import format_table
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.datasets.columns import BLANKS, is_readable_id
from fastfedrec.evaluation import PublishedFolds, Splitter

__all__ = ["add_split"]

# Number of rows in one write.
_ROWS = 2**17


def add_split(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "split",
        run_split,
        "Divide data into train and test files, for --train and --test of evaluate, compare and sweep.",
        [
            "fastfedrec split --data ratings.csv --by time --out parts",
            "fastfedrec split --data ml-100k.zip --by temporal --share 0.2 --out parts",
            "fastfedrec split --data generated:5000x300 --by users --share 0.1 --given 0.8 --out parts",
        ],
    )
    add_data(command)
    add_by(command, of_files=True)
    command.add_argument(
        "--latest", action="store_true", default=None, help="leave-one-out, random, users: test the latest interactions"
    )
    command.add_argument("--share", type=float, metavar="X", help="time, random, temporal, users: tested share (0.2)")
    command.add_argument(
        "--n",
        type=positive,
        metavar="N",
        help="time, random: number of tested interactions of each user, instead of a share",
    )
    command.add_argument("--user-share", type=float, metavar="X", help="random: share of tested users (all)")
    command.add_argument("--time", metavar="T", help="temporal: moment, in the timestamps' unit or as a date")
    command.add_argument(
        "--known-users", dest="new_users", action="store_false", default=None, help="temporal: test users of train only"
    )
    command.add_argument(
        "--known-items", dest="new_items", action="store_false", default=None, help="temporal: test items of train only"
    )
    command.add_argument("--folds", dest="n_folds", type=int, metavar="N", help="k-fold: number of folds (5)")
    command.add_argument(
        "--given",
        type=_number_or_share,
        metavar="X|N",
        help="users: given share, or number, of a tested user's interactions (0.8)",
    )
    command.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the split")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="new folder of the files")


def _number_or_share(text: str) -> float | int:
    return int(text) if re.fullmatch("[0-9]+", text) else float(text)


def run_split(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Split the data, and write each part as a table that only its owner may read."""
    splitter, out = _make_splitter(arguments), arguments.out
    check_folder("--out", out)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out} must be an empty folder, and holds files; name a new one")
    data = load_data(arguments)
    _check_ids(arguments.data, data)
    splits = list(splitter.split(data, key=Key.from_seed(arguments.seed)))
    if any(not split.test.n_interactions for split in splits):
        raise ValueError(f"{splitter!r} leaves no test interaction of --data {arguments.data}; use another split")
    # Digests let later commands check that the files are unchanged.
    rows, digests, counts_rows = [], [], _counts_rows(data)
    for number, split in enumerate(splits, start=1):
        folder = out / f"fold-{number}" if len(splits) > 1 else out
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in named_parts(split):
            path = folder / f"{name}.csv"
            _write(path, part, has_values=data.values is not None and not counts_rows)
            n_users, n_items = (int((np.bincount(codes) > 0).sum()) for codes in (_users(part), part.indices))
            rows.append((path.relative_to(out).as_posix(), n_users, n_items, part.n_interactions))
            digests.append(digest_of(path))
    document = {
        "version": __version__,
        "split": repr(splitter),
        "seed": arguments.seed,
        "source": arguments.data,
        "files": [
            dict(zip(("name", "users", "items", "interactions", "sha256"), (*row, digest), strict=True))
            for row, digest in zip(rows, digests, strict=True)
        ],
    }
    write_text(out / SPLIT_FILE, json.dumps(document, indent=2), private=True)
    if arguments.json:
        return document
    table = format_table(("", "users", "items", "interactions"), [(name, *map("{:,}".format, n)) for name, *n in rows])
    return f"{splitter!r} of {data!r}, seed {arguments.seed}\n\n{table}\n\nWritten to {out}, with split.json"


def _make_splitter(arguments: argparse.Namespace) -> Splitter:
    make, names = SPLITTERS[arguments.by]
    if make is PublishedFolds:
        names, values = (), {"path": arguments.data}
    else:
        values = {parameter: value for parameter in names if (value := getattr(arguments, parameter)) is not None}
    # An option of another splitter would have no effect, so it is refused.
    for name in sorted({parameter for _, taken in SPLITTERS.values() for parameter in taken} - set(names)):
        if getattr(arguments, name) is not None:
            option = {"n_folds": "folds", "new_users": "known-users", "new_items": "known-items"}.get(name, name)
            kinds = ", ".join(by for by, (_, taken) in SPLITTERS.items() if name in taken)
            raise UsageError(f"--{option.replace('_', '-')} is for --by {kinds}, not for {arguments.by}; leave it out")
    # A whole number is a timestamp, any other text is a date.
    if "time" in values:
        if re.fullmatch("-?[0-9]+", values["time"]):
            values["time"] = int(values["time"])
        values["timestamp_unit"] = arguments.timestamp_unit or "s"  # the default unit of all readers of files
    return make_splitter(arguments.by, values)


def _check_ids(source: str, data: Interactions) -> None:
    """Raise for ids that the parts, which are text files, could not hold."""
    for axis, ids in (("user", data.user_ids), ("item", data.item_ids)):
        for key in ids.tolist():
            if isinstance(key, str) and not is_readable_id(key):
                raise ValueError(
                    f"--data {source} must have {axis} ids that a text file can hold, got {show(key)}; rename the id"
                )


def _users(data: Interactions) -> np.ndarray:
    return np.repeat(np.arange(data.n_users), data.interactions_per_user())


def _counts_rows(data: Interactions) -> bool:
    """Check whether all values are counts of rows, so that rows are written and can be split by time again."""
    repeats = data._repeats
    if repeats is None or repeats.rule != "sum" or repeats.values is not None or repeats.above is not None:
        return False
    return bool((np.delete(data.values_or_ones(), repeats.positions) == 1).all())


def _write(path: Path, data: Interactions, *, has_values: bool) -> None:
    """Write a table of ids, values and timestamps, with an empty field for an unknown timestamp."""
    users, items = _users(data), data.indices
    values, times = data.values_or_ones(), data.timestamps
    # A merged pair whose value counts its rows is written as these rows, each with its timestamp.
    if times is not None and data._repeats is not None and not has_values:
        counts, times = data._repeats.expand(times)
        users, items = np.repeat(users, counts), np.repeat(items, counts)
    if not (values % 1).any() and np.abs(values).max(initial=0) < 2**53:
        values = values.astype(np.int64)  # "5" instead of "5.0"
    # Readers keep blanks around an id, and carriage returns in it, only in quotes.
    ids = (*data.user_ids.tolist(), *data.item_ids.tolist())
    quote_text = any(isinstance(key, str) and (key != key.strip(BLANKS) or "\r" in key) for key in ids)
    heading = ["user", "item", *["value"] * has_values, *["timestamp"] * (times is not None)]
    with new_file(path, private=True) as file:
        file.write(csv_lines([heading], quote_text))
        edges = [*range(0, len(users), _ROWS), len(users)]
        for start, stop in pairwise(edges):
            block = slice(start, stop)
            columns = [data.user_ids[users[block]].tolist(), data.item_ids[items[block]].tolist()]
            if has_values:
                columns.append(values[block].tolist())
            if times is not None:
                columns.append(["" if time == MISSING_TIMESTAMP else time for time in times[block].tolist()])
            file.write(csv_lines(zip(*columns, strict=True), quote_text))
