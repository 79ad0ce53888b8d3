"""The command ``fastfedrec split``: a data set divided into files to train on and to test by."""

import argparse
import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError, add_data, load_data, natural, positive
from fastfedrec.cli.parts import SPLIT_FILE, digest_of, named_parts
from fastfedrec.core.files import check_folder, new_file, write_text
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import format_table
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import MISSING_TIMESTAMP, Interactions
from fastfedrec.datasets.columns import BLANKS
from fastfedrec.evaluation import (
    KFold,
    LeaveOneOut,
    PublishedFolds,
    RandomHoldout,
    Splitter,
    TemporalSplit,
    UserHoldout,
)

__all__ = ["add_split"]

_ROWS = 2**17  # written at once
#: What --by names, and the options that each takes, as the parameters that they are.
_SPLITTERS: dict[str, tuple[Callable[..., Splitter], tuple[str, ...]]] = {
    "leave-one-out": (LeaveOneOut, ("latest",)),
    "random": (RandomHoldout, ("share", "n", "user_share")),
    "temporal": (TemporalSplit, ("time", "share", "new_users", "new_items")),
    "k-fold": (KFold, ("n_folds",)),
    "users": (UserHoldout, ("share", "given", "latest")),
    "published": (PublishedFolds, ()),
}


def add_split(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "split",
        run_split,
        "Divide data into files to train on and to test by, which evaluate and sweep take as --train and --test.",
        [
            "fastfedrec split --data ratings.csv --out parts",
            "fastfedrec split --data ml-100k.zip --by temporal --share 0.2 --out parts",
            "fastfedrec split --data generated:5000x300 --by users --share 0.1 --given 0.8 --out parts",
        ],
    )
    add_data(command)
    command.add_argument(
        "--by", choices=list(_SPLITTERS), default="leave-one-out",
        help="leave-one-out: one interaction of each user; random: a share, or a number, of each user's; temporal: "
        "what happened from one moment on; k-fold: every interaction once; users: users who are not in train; "
        "published: the five splits of MovieLens 100K",
    )  # fmt: skip
    command.add_argument("--latest", action="store_true", default=None, help="leave-one-out, users: test the latest")
    command.add_argument("--share", type=float, metavar="X", help="random, temporal, users: what is tested (0.2)")
    command.add_argument("--n", type=positive, metavar="N", help="random: interactions of each user, not a share")
    command.add_argument("--user-share", type=float, metavar="X", help="random: of users who are tested (all)")
    command.add_argument("--time", metavar="T", help="temporal: the moment, as the timestamps have it, or a date")
    command.add_argument(
        "--known-users", dest="new_users", action="store_false", default=None, help="temporal: test users of train only"
    )
    command.add_argument(
        "--known-items", dest="new_items", action="store_false", default=None, help="temporal: test items of train only"
    )
    command.add_argument("--folds", dest="n_folds", type=int, metavar="N", help="k-fold: how many (5)")
    command.add_argument(
        "--given", type=_part, metavar="X|N", help="users: the share, or the number, of a user's that is given (0.8)"
    )
    command.add_argument("--seed", type=natural, default=0, metavar="N", help="of what is drawn")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")


def _part(text: str) -> float | int:
    return int(text) if re.fullmatch("[0-9]+", text) else float(text)


def run_split(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Split, and write each part as a table that every command reads, for its owner alone."""
    splitter, out = _make_splitter(arguments), arguments.out
    check_folder("--out", out)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out} holds files already; name a new folder, for none of them is replaced")
    data = load_data(arguments)
    found = list(splitter.split(data, key=Key.from_seed(arguments.seed)))
    if any(not split.test.n_interactions for split in found):
        raise ValueError(f"{splitter!r} leaves nothing to test of --data {arguments.data}; use another split")
    rows, digests, counts_rows = [], [], _counts_rows(data)
    for number, split in enumerate(found, start=1):
        folder = out / f"fold-{number}" if len(found) > 1 else out
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in named_parts(split):
            path = folder / f"{name}.csv"
            _write(path, part, has_values=data.values is not None and not counts_rows)
            n_users, n_items = (int((np.bincount(of) > 0).sum()) for of in (_users(part), part.indices))
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
    make, names = _SPLITTERS[arguments.by]
    if make is PublishedFolds:
        names, given = (), {"path": arguments.data}
    else:
        given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    for other in sorted({name for _, taken in _SPLITTERS.values() for name in taken} - set(names)):
        if getattr(arguments, other) is not None:
            option = {"n_folds": "folds", "new_users": "known-users", "new_items": "known-items"}.get(other, other)
            kinds = " and ".join(by for by, (_, taken) in _SPLITTERS.items() if other in taken)
            raise UsageError(f"--{option.replace('_', '-')} is for --by {kinds}, not for {arguments.by}")
    if arguments.by in ("random", "temporal") and not given.keys() & {"share", "n", "time"}:
        given["share"] = 0.2
    if "time" in given:
        if re.fullmatch("-?[0-9]+", given["time"]):
            given["time"] = int(given["time"])
        given["timestamp_unit"] = "s"  # as every reader of files makes them
    return make(**given)


def _users(data: Interactions) -> np.ndarray:
    return np.repeat(np.arange(data.n_users), data.interactions_per_user())


def _counts_rows(data: Interactions) -> bool:
    """Whether values are numbers of rows: then rows are written, and a file can be split by time again."""
    repeats = data._repeats
    if repeats is None or repeats.rule != "sum" or repeats.values is not None or repeats.above is not None:
        return False
    return bool((np.delete(data.values_or_ones(), repeats.positions) == 1).all())


def _write(path: Path, data: Interactions, *, has_values: bool) -> None:
    """A table of ids, values and timestamps, of which one that is not known is empty."""
    users, items = _users(data), data.indices
    values, times = data.values_or_ones(), data.timestamps
    if times is not None and data._repeats is not None and not has_values:
        counts, times = data._repeats.expand(times)
        users, items = np.repeat(users, counts), np.repeat(items, counts)
    if not (values % 1).any() and np.abs(values).max(initial=0) < 2**53:
        values = values.astype(np.int64)  # 5, and not 5.0
    # In quotes, readers keep the blanks around an id.
    ids = (*data.user_ids.tolist(), *data.item_ids.tolist())
    quote_text = any(isinstance(key, str) and key != key.strip(BLANKS) for key in ids)
    heading = ["user", "item", *["value"] * has_values, *["timestamp"] * (times is not None)]
    with new_file(path, private=True) as file:
        file.write(_lines([heading], quote_text))
        edges = [*range(0, len(users), _ROWS), len(users)]
        for start, stop in pairwise(edges):
            block = slice(start, stop)
            columns = [data.user_ids[users[block]].tolist(), data.item_ids[items[block]].tolist()]
            if has_values:
                columns.append(values[block].tolist())
            if times is not None:
                columns.append(["" if time == MISSING_TIMESTAMP else time for time in times[block].tolist()])
            file.write(_lines(zip(*columns, strict=True), quote_text))


def _lines(rows: Iterable[Iterable[Any]], quote_text: bool) -> bytes:
    text = io.StringIO(newline="")
    if quote_text:
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    else:
        writer = csv.writer(text, lineterminator="\n")
    writer.writerows(rows)
    return text.getvalue().encode()
