"""Data in parts: --train, --test and --given, from `fastfedrec split` or from a published data set."""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError, load_data
from fastfedrec.cli.outputs import show
from fastfedrec.cli.tables import holds_lists, is_table, note_lists
from fastfedrec.core.warn import warn
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Split
from fastfedrec.evaluation.metrics.alignment import align

#: File in which `fastfedrec split` records the split and the digests of its files.
SPLIT_FILE = "split.json"

__all__ = [
    "SPLIT_FILE",
    "describe_dropped",
    "digest_of",
    "load_parts",
    "named_parts",
    "recorded_split",
    "refuse_empty_test",
    "sources",
]

# Keys are the reasons in `Evaluation.dropped`.
_DROPPED = {
    "unknown_users": "of unknown users",
    "unknown_items": "of items outside train",
    "seen_again": "also in train or given",
    "not_relevant": "with a value that does not count as relevant",
}


def load_parts(arguments: argparse.Namespace, systems: Iterable[type], *, of_ratings: bool = False) -> Split | None:
    """Load the files of --train, --test and --given, or return None without --train; refuse a test without users."""
    if arguments.train is None:
        for option in ("test", "given"):
            if getattr(arguments, option) is not None:
                raise UsageError(f"--{option} needs --train instead of --data; see fastfedrec split")
        return None
    if arguments.test is None:
        raise UsageError("--train needs --test; name the file to test on")
    systems = list(systems)
    parts: dict[str, Interactions] = {}
    lists = {path: holds_lists(arguments, path) for path in sources(arguments).values() if is_table(Path(path))}
    for option, path in sources(arguments).items():
        # --top-items and --min-interactions filter only train.
        changes: dict[str, Any] = {} if option == "train" else {"top_items": None, "min_interactions": None}
        # A file with an undetermined format is a file of lists if another part is one.
        if lists.get(path, False) is None and True in lists.values():
            changes["adjacency"] = True
            note_lists(arguments, path)
        with _rename_option(option):
            parts[option] = load_data(argparse.Namespace(**vars(arguments) | changes | {"data": path}), systems)
    split = Split(**_unify_id_types(parts, quiet=arguments.quiet))
    _check_test(arguments, split, of_ratings)
    return split


def _check_test(arguments: argparse.Namespace, split: Split, of_ratings: bool) -> None:
    """Refuse a test without remaining interactions, with the reasons; warn of a test that is larger than train."""
    n_train, n_test = split.train.n_interactions, split.test.n_interactions
    if n_test > n_train:
        warn(
            f"--test {arguments.test} has {n_test:,} interactions, more than the {n_train:,} of --train "
            f"{arguments.train}; are the two files swapped?",
        )
    # `evaluate` aligns the same way, but only after the fit.
    aligned = align(split.train, split.test, split.given, keep_seen=of_ratings)
    if not aligned.n_users:
        known = "--train" if split.given is None else "--train or --given"
        causes = (
            ("unknown_users", f"are of users outside {known}"),
            ("unknown_items", "are of items outside --train"),
            ("seen_again", f"are in {known} as well"),
        )
        reasons = ", ".join(f"{n:,} {text}" for reason, text in causes if (n := aligned.dropped[reason]))
        hint = "do both files use the same ids?"
        if aligned.dropped["seen_again"] == n_test:
            hint = "is it the same file?"
        elif split.given is None and aligned.dropped["unknown_users"] == n_test:
            hint += " A test of new users needs --given, a file of their other interactions"
        raise ValueError(
            f"--test {arguments.test} must have interactions to test, but of its {n_test:,} interactions {reasons}; "
            f"{hint}"
        )


def refuse_empty_test(arguments: argparse.Namespace, split: Split) -> None:
    """Raise before the first fit, and once for all systems, if a split of --data has nothing to test."""
    if arguments.data and not split.test.n_interactions:
        raise UsageError(f"--data {arguments.data} leaves no test: no user has enough items to hold one out")
    if arguments.data and arguments.threshold is not None and split.test.values is not None:
        largest = split.test.values.max()
        if largest < arguments.threshold:
            raise UsageError(
                f"--threshold {arguments.threshold:g} leaves no test item; the largest value of the test is {largest:g}"
            )


def recorded_split(arguments: argparse.Namespace, parts: Split) -> str | None:
    """Return the split that split.json records for these files, or None if their digests are not recorded there."""
    splits = {_recorded_split(Path(path), name) for name, path in sources(arguments).items()}
    if len(splits) > 1 and splits != {None}:
        warn(
            "--train, --test and --given are not unchanged files of one run of fastfedrec split, so no split is "
            "recorded",
        )
    stated = splits.pop() if len(splits) == 1 else None
    # Files list no users and items without interactions, so that the test loses those that only it has.
    lost = [f"{n:,} {axis}" for axis in ("users", "items") if stated and (n := _count_new(parts, axis))]
    return f"{stated}, without {' and '.join(lost)} that train lacks" if lost else stated


def _count_new(parts: Split, axis: str) -> int:
    """Return the number of users, or items, that are in the test alone."""
    train, test, *given = (getattr(part, f"{axis[:-1]}_ids") for _, part in named_parts(parts))
    known = np.concatenate([train, *given]) if axis == "users" else train
    return int(np.count_nonzero(~np.isin(test, known)))


def _recorded_split(path: Path, name: str) -> str | None:
    """Return the split of a file that split.json records in its folder or, for a fold, in the parent folder."""
    for folder in (path.parent, path.parent.parent):
        try:
            document = json.loads((folder / SPLIT_FILE).read_text())
            digests = {file["name"]: file["sha256"] for file in document["files"]}
            split, seed = document["split"], document["seed"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # no such file, or a foreign one
            continue
        # A digest that differs shows that the file was changed after the split.
        member = path.relative_to(folder).as_posix()
        if path.stem == name and digests.get(member) == digest_of(path):
            fold = f", {path.parent.name}" if folder != path.parent else ""
            return f"{split}, seed {seed}{fold}"
    return None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_dropped(dropped: Mapping[str, int]) -> list[str]:
    """Return a line about dropped test interactions, if there are any."""
    counts = [f"{number:,} {text}" for reason, text in _DROPPED.items() if (number := dropped.get(reason, 0))]
    if not counts:
        return []
    users = f"; {dropped['users']:,} users have no other interaction, and are not tested" if dropped["users"] else ""
    return [f"Interactions dropped from the test: {', '.join(counts)}{users}."]


def named_parts(split: Split) -> Iterator[tuple[str, Interactions]]:
    """Yield the name and the data of each part of a split."""
    yield "train", split.train
    yield "test", split.test
    if split.given is not None:
        yield "given", split.given


def sources(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the file of each part by name."""
    return {name: path for name in ("train", "test", "given") if (path := getattr(arguments, name)) is not None}


@contextmanager
def _rename_option(option: str) -> Iterator[None]:
    """Replace --data in error messages by the option that named the file."""
    try:
        yield
    except (TypeError, ValueError, LookupError, OSError, UsageError) as error:
        if error.args and isinstance(error.args[0], str):
            text = error.args[0].replace("--data", f"--{option}")
            error.args = (text if f"--{option}" in text else f"--{option}: {text}", *error.args[1:])
        raise


def _unify_id_types(parts: dict[str, Interactions], *, quiet: bool) -> dict[str, Interactions]:
    """Convert the ids of all parts to text if one part has text ids, with a message."""
    # Readers parse ids as numbers if all ids of a file are numbers, which may hold for some parts only.
    for axis in ("user", "item"):
        ids = {name: getattr(part, f"{axis}_ids") for name, part in parts.items()}
        texts = [name for name, array in ids.items() if array.dtype.kind not in "iu"]
        if not texts or len(texts) == len(parts):
            continue
        if not quiet:
            example = next((text for text in ids[texts[0]].tolist() if not _is_plain(text)), "")
            show(
                f"fastfedrec: --{texts[0]} has the {axis} id {example!r}, which is not a plain number: {axis} ids are "
                "read as text in all files, so '7' and '007' differ",
                file=sys.stderr,
            )
        for name in parts.keys() - texts:
            parts[name] = parts[name]._replace(**{f"{axis}_ids": ids[name].astype(np.str_)})
    return parts


def _is_plain(text: object) -> bool:
    return re.fullmatch("0|-?[1-9][0-9]{0,17}", str(text)) is not None
