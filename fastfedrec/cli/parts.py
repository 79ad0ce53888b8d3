"""Data in parts: --train, --test and --given, as `fastfedrec split` writes them and as others publish them."""

import argparse
import hashlib
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError, load_data
from fastfedrec.cli.outputs import show
from fastfedrec.cli.tables import holds_lists, is_table, tell_lists
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Split
from fastfedrec.evaluation.metrics.alignment import align

#: What `fastfedrec split` says of the files beside it.
SPLIT_FILE = "split.json"

__all__ = ["SPLIT_FILE", "digest_of", "load_parts", "named_parts", "sources", "stated_split", "tell_dropped"]

_DROPPED = {
    "unknown_users": "of users who are not known",
    "unknown_items": "of items that are not in train",
    "seen_again": "that train or given has too",
    "not_relevant": "with a value that is not above 0",
}


def load_parts(arguments: argparse.Namespace, systems: Iterable[type], *, of_ratings: bool = False) -> Split | None:
    """What --train, --test and --given name, or None where there is no --train.

    What --top-items and --min-interactions keep is of --train; --catalogue is of all.  Where nothing is left to test,
    of ratings or else of rankings, that is refused before anything is fitted.
    """
    if arguments.train is None:
        for option in ("test", "given"):
            if getattr(arguments, option) is not None:
                raise UsageError(f"--{option} needs --train, and takes no --data; see fastfedrec split")
        return None
    if arguments.test is None:
        raise UsageError("--train needs --test, the file that is tested")
    systems = list(systems)
    parts: dict[str, Interactions] = {}
    lists = {path: holds_lists(arguments, path) for path in sources(arguments).values() if is_table(Path(path))}
    for option, path in sources(arguments).items():
        kept: dict[str, Any] = {} if option == "train" else {"top_items": None, "min_interactions": None}
        if lists.get(path, False) is None and True in lists.values():  # as the other is, and nothing says otherwise
            kept["adjacency"] = True
            tell_lists(arguments, path)
        with _named(option):
            parts[option] = load_data(argparse.Namespace(**vars(arguments) | kept | {"data": path}), systems)
    split = Split(**_with_ids_alike(parts, quiet=arguments.quiet))
    _check_test(arguments, split, of_ratings)
    return split


def _check_test(arguments: argparse.Namespace, split: Split, of_ratings: bool) -> None:
    """Refuse a test of which nothing is left, and say what becomes of it; warn of one that is larger than train."""
    n_train, n_test = split.train.n_interactions, split.test.n_interactions
    if n_test > n_train:
        warnings.warn(
            f"--test {arguments.test} has {n_test:,} interactions, and --train {arguments.train} {n_train:,}: are the "
            "two files swapped?",
            stacklevel=2,
        )
    aligned = align(split.train, split.test, split.given, keep_seen=of_ratings)
    if not aligned.n_users:
        known = "--train" if split.given is None else "--train or --given"
        causes = (
            ("unknown_users", f"are of users who are not in {known}"),
            ("unknown_items", "are of items that are not in --train"),
            ("seen_again", f"are in {known} as well"),
        )
        found = ", ".join(f"{n:,} {text}" for reason, text in causes if (n := aligned.dropped[reason]))
        hint = "are both files of one data set, with ids that are written alike?"
        if aligned.dropped["seen_again"] == n_test:
            hint = "is it the same file?"
        raise ValueError(f"--test {arguments.test} has nothing to test: of its {n_test:,} interactions {found}; {hint}")


def stated_split(arguments: argparse.Namespace) -> str | None:
    """How the files were made, where `fastfedrec split` made them: what split.json says beside them.

    Only of the very files that it wrote, which it knows by their digests; None of any others.
    """
    if arguments.train is None:
        return None
    found = {_stated(Path(path), name) for name, path in sources(arguments).items()}
    if len(found) > 1 and found != {None}:
        warnings.warn(
            "--train, --test and --given are not all of one split that fastfedrec split wrote, as they stand now: no "
            "split is stated",
            stacklevel=2,
        )
    return found.pop() if len(found) == 1 else None


def _stated(path: Path, name: str) -> str | None:
    """What the split.json in the file's folder, or in the one above for a fold, says of it."""
    for folder in (path.parent, path.parent.parent):
        try:
            document = json.loads((folder / SPLIT_FILE).read_text())
            digests = {file["name"]: file["sha256"] for file in document["files"]}
            split, seed = document["split"], document["seed"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # none, or one of somebody else's
            continue
        member = path.relative_to(folder).as_posix()
        if path.stem == name and digests.get(member) == digest_of(path):
            fold = f", {path.parent.name}" if folder != path.parent else ""
            return f"{split}, seed {seed}{fold}"
    return None


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tell_dropped(dropped: Mapping[str, int]) -> list[str]:
    """A line about test interactions that were not measured, if there are any."""
    said = [f"{number:,} {text}" for reason, text in _DROPPED.items() if (number := dropped.get(reason, 0))]
    if not said:
        return []
    left = f"; {dropped['users']:,} users have none left" if dropped["users"] else ""
    return [f"interactions dropped from the test: {', '.join(said)}{left}"]


def named_parts(split: Split) -> Iterator[tuple[str, Interactions]]:
    """The parts that a split has, by name."""
    yield "train", split.train
    yield "test", split.test
    if split.given is not None:
        yield "given", split.given


def sources(arguments: argparse.Namespace) -> dict[str, str]:
    """Where the parts come from, by name."""
    return {name: path for name in ("train", "test", "given") if (path := getattr(arguments, name)) is not None}


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Let a refusal name the option that was given, not the one that most data come by."""
    try:
        yield
    except (TypeError, ValueError, LookupError, OSError, UsageError) as error:
        if error.args and isinstance(error.args[0], str):
            text = error.args[0].replace("--data", f"--{option}")
            error.args = (text if f"--{option}" in text else f"--{option}: {text}", *error.args[1:])
        raise


def _with_ids_alike(parts: dict[str, Interactions], *, quiet: bool) -> dict[str, Interactions]:
    """The same parts, with text for every id where one of them has text, which is told.

    A reader takes ids for numbers if all are, and one file of a split may have numbers alone where another one has not.
    """
    for axis in ("user", "item"):
        ids = {name: getattr(part, f"{axis}_ids") for name, part in parts.items()}
        texts = [name for name, of in ids.items() if of.dtype.kind not in "iu"]
        if not texts or len(texts) == len(parts):
            continue
        if not quiet:
            example = next((text for text in ids[texts[0]].tolist() if not _is_plain(text)), "")
            show(
                f"fastfedrec: --{texts[0]} has the {axis} id {example!r}, which is no plain number: {axis} ids are "
                "text in all files, and '7' is not '007'",
                file=sys.stderr,
            )
        for name in parts.keys() - texts:
            parts[name] = parts[name]._replace(**{f"{axis}_ids": ids[name].astype(np.str_)})
    return parts


def _is_plain(text: object) -> bool:
    return re.fullmatch("0|-?[1-9][0-9]{0,17}", str(text)) is not None
