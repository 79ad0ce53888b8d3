"""The command ``fastfedrec recommend``: a saved model's best items for its users, users of a file, or one new user."""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import DATA_HELP, UsageError, load_data, parse_literal, positive, read_ids
from fastfedrec.cli.lists import FORMATS, Lists, lists_of, write_lists
from fastfedrec.cli.outputs import can_show_progress, same_list, show
from fastfedrec.cli.parsing import ExtendIds
from fastfedrec.cli.tables import add_columns
from fastfedrec.core.numbers import show_names
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.text import format_table
from fastfedrec.core.warn import warn
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.recommender import Recommender, load

__all__ = ["add_recommend"]

_BLOCK_USERS = 4096  # users whose lists are in memory at a time with --out

#: Options of ids that a file may extend, and their help texts.
_IDS = {
    "--users": "external user ids, or 'all'; default with --data: all",
    "--items": "external ids of candidate items; default: all",
    "--exclude": "external ids of items that are never recommended",
}
#: Values of the options of `load_data` that this command does not have.
_DATA_DEFAULTS = dict.fromkeys(("catalogue", "preset", "top_items", "min_interactions")) | {
    "drop_unlisted": False,
    "threads": 0,
}


def add_recommend(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "recommend",
        run_recommend,
        "Print or write a saved model's best items: for users of the model, for users of a file, or for one new user.",
        [
            "fastfedrec recommend model.npz --users 17 42 -n 5",
            "fastfedrec recommend model.npz --users 17 --exclude 50 181 --unknown popular",
            "fastfedrec recommend model.npz --items-of 3,17",
            "fastfedrec recommend model.npz --data ratings.csv --users all --out recommendations.csv",
        ],
    )
    command.add_argument("file", metavar="FILE", type=Path, help="file saved by fit --out, with or without users")
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--data", metavar="PATH", help=f"users to serve instead of the model's, with their items: {DATA_HELP}"
    )
    source.add_argument(
        "--items-of", nargs="+", action=ExtendIds, metavar="ID",
        help="items of one new user, as 3,17; for a model of ratings, as 3=4.5,17=2",
    )  # fmt: skip
    for option, text in _IDS.items():
        command.add_argument(option, nargs="+", action=ExtendIds, metavar="ID", help=text)
        command.add_argument(
            f"{option}-file",
            metavar="FILE",
            help=f"file of further ids for {option}, one in each line; - is standard input",
        )
    command.add_argument(
        "--unknown", choices=("error", "popular", "skip"), default="error",
        help="answer for a user who is in neither the model nor --data: an error, popular items, or no items",
    )  # fmt: skip
    command.add_argument("-n", type=positive, default=10, metavar="N", help="number of items for each user")
    command.add_argument("--include-seen", action="store_true", help="also recommend items that the user has")
    command.add_argument(
        "--out", type=Path, metavar="FILE",
        help=f"write the lists of any number of users to a file that only its owner may read: {', '.join(FORMATS)}",
    )  # fmt: skip
    command.add_argument(
        "--binarize", type=float, metavar="X", help="with --data: values above X become 1, and others are dropped"
    )
    add_columns(command)
    command.set_defaults(**_DATA_DEFAULTS)


def run_recommend(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the recommendations, or the size of the file with them."""
    if arguments.out is not None and arguments.out.suffix.lower() not in FORMATS:
        raise UsageError(f"--out must end with {' or '.join(FORMATS)}, got {arguments.out.name!r}; rename the file")
    users_given = arguments.users is not None or arguments.users_file is not None
    if arguments.items_of is not None and users_given:
        raise UsageError("--items-of is for one new user; leave --users and --users-file out")
    if not users_given and arguments.items_of is None and arguments.data is None:
        raise UsageError("recommend needs --users or --users-file, --data FILE, or --items-of ID for one new user")
    model = load(arguments.file)
    if arguments.items_of is None and arguments.data is None and not model.interactions_.n_users:
        raise UsageError(
            f"{arguments.file} was saved without users; pass --data FILE with the items of its users, or --items-of ID "
            "for one new user"
        )
    if not arguments.quiet:
        for sentence in same_list(type(model).__name__, model):
            show(f"fastfedrec: {sentence}", file=sys.stderr)
    lists = _answer(arguments, model)
    if arguments.out is not None:
        n_users, n_lists = write_lists(arguments.out, lists, source=str(arguments.file))
        if arguments.json:
            return {
                "model": str(arguments.file),
                "users": n_users,
                "recommendations": n_lists,
                "out": str(arguments.out),
            }
        return f"{n_lists:,} recommendations for {n_users:,} users, written to {arguments.out}"
    entries = [entry for block in lists for entry in block.entries()]
    if arguments.json:
        return {"model": str(arguments.file), "recommendations": entries}
    rows = [
        (entry["user"], rank, item, f"{score:.4g}")
        for entry in entries
        for rank, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), start=1)
    ]
    return format_table(("user", "rank", "item", "score"), rows)


def _answer(arguments: argparse.Namespace, model: Recommender) -> Iterator[Lists]:
    """Return the lists of blocks of users."""
    item_ids = model.interactions_.item_ids
    given = _given_ids(arguments)
    candidates, excluded = (
        None if texts is None else _convert_ids(option, texts, item_ids)
        for option, texts in given.items()
        if option != "--users"
    )
    _note_unknown(arguments, excluded, model.interactions_)
    options = {
        "n": arguments.n, "items": candidates, "exclude": excluded, "filter_seen": not arguments.include_seen
    }  # fmt: skip
    if arguments.items_of is not None:
        items = _items_of(arguments.items_of, item_ids, takes_ratings=hasattr(model, "predict"))
        unknown = "skip" if arguments.unknown == "skip" else "error"
        return iter([lists_of([0], *model.recommend_for(items, unknown=unknown, **options))])
    if arguments.data is None:
        users = _user_ids(given["--users"], model.interactions_)
        return _by_blocks(arguments, users, lambda block: model.recommend(block, unknown=arguments.unknown, **options))
    data = load_data(arguments, [type(model)])
    _check_items(arguments, data.item_ids, item_ids)
    users = _user_ids(given["--users"], data)
    if arguments.unknown == "error":
        data.user_index(users)  # an unknown user is an error before the first block
    return _by_blocks(arguments, users, _serve_rows(model, data, arguments.unknown, options))


def _check_items(arguments: argparse.Namespace, given: np.ndarray, known: np.ndarray) -> None:
    """Refuse items of another type than the model's, and report items that the model does not know."""
    kinds = {given.dtype.kind, known.dtype.kind}
    if len(given) and "U" in kinds and kinds & {"i", "u"}:
        types = "text" if known.dtype.kind == "U" else "numbers"
        # One text makes all ids of a column text.
        other = next((item for item in given.tolist() if not str(item).isdecimal()), given.tolist()[0])
        raise UsageError(f"--data {arguments.data} must have {types} as items, as the model has, got {other!r}")
    n_unknown = np.count_nonzero(~np.isin(given, known)) if len(kinds) == 1 else 0
    text = f"{n_unknown:,} of {len(given):,} items of {arguments.data} are unknown to the model, and skipped"
    if n_unknown and n_unknown == len(given):
        warn(f"{text}; compare its ids with those of the model", UserWarning)
    elif n_unknown and not arguments.quiet:
        show(f"fastfedrec: {text}", file=sys.stderr)


def _by_blocks(arguments: argparse.Namespace, users: list[Any], serve: Callable[[list[Any]], Any]) -> Iterator[Lists]:
    """Yield the lists of blocks of users, with a progress bar."""
    blocks = [users[start : start + _BLOCK_USERS] for start in range(0, len(users), _BLOCK_USERS)]
    has_bar = len(blocks) > 1 and can_show_progress(arguments.quiet)
    for number in progress_rounds(len(blocks), show=has_bar, description="recommend", unit="block"):
        yield lists_of(blocks[number], *serve(blocks[number]))


def _serve_rows(
    model: Recommender, data: Interactions, unknown: str, options: dict[str, Any]
) -> Callable[[list[Any]], tuple[np.ndarray, np.ndarray]]:
    """Return a function that recommends items to users of the data, and treats other users as `unknown` states."""
    row_of = {user: row for row, user in enumerate(data.user_ids.tolist())}

    def serve(users: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.array([row_of.get(user, -1) for user in users])
        distinct, positions = np.unique(rows, return_inverse=True)
        known = distinct[distinct >= 0]
        parts = []
        if len(known) < len(distinct):
            # A user without items gets popular items.
            ids, scores = model.recommend_for([], **options)
            parts.append((ids, scores if unknown == "popular" else np.full_like(scores, -np.inf)))
        if len(known):
            parts.append(model.recommend_for(data.select_users(known), unknown="skip", **options))
        ids, scores = (np.concatenate(part)[positions] for part in zip(*parts, strict=True))
        return ids, scores

    return serve


def _user_ids(texts: list[str] | None, data: Interactions) -> list[Any]:
    """Return the requested users: all of them, or those of --users."""
    if texts is None or texts == ["all"]:
        if texts is not None and data.user_ids.dtype.kind in "UO" and "all" in data.user_ids.tolist():
            raise UsageError("--users all is ambiguous, since a user has the id 'all'; list the users in --users-file")
        return list(data.user_ids.tolist())
    return _convert_ids("--users", texts, data.user_ids)


def _items_of(texts: Sequence[str], item_ids: np.ndarray, *, takes_ratings: bool) -> list[Any] | dict[Any, float]:
    """Return the items of --items-of, with their ratings if the model takes them."""
    known = set(item_ids.tolist())
    # An id of text may contain a comma; then it is a known id as it stands.
    parts = [part for text in texts for part in ([text] if text in known else text.split(",")) if part]
    if not takes_ratings:
        return _convert_ids("--items-of", parts, item_ids)
    pairs = [part.rpartition("=") for part in parts]
    if wrong := [part for part, (_, equals, _) in zip(parts, pairs, strict=True) if not equals]:
        raise UsageError(f"--items-of must have a rating for each item of this model, as 3=4.5, got {wrong[0]!r}")
    try:
        ratings = [float(text) for _, _, text in pairs]
    except ValueError:
        raise UsageError(f"--items-of must have numbers as ratings, as 3=4.5, got {','.join(parts)}") from None
    if wrong := [part for part, rating in zip(parts, ratings, strict=True) if not math.isfinite(rating)]:
        raise UsageError(f"--items-of must have finite numbers as ratings, as 3=4.5, got {wrong[0]}")
    return dict(zip(_convert_ids("--items-of", [item for item, _, _ in pairs], item_ids), ratings, strict=True))


def _given_ids(arguments: argparse.Namespace) -> dict[str, list[str] | None]:
    """Return the ids of each option, including its file."""
    given: dict[str, list[str] | None] = {}
    if sum(getattr(arguments, f"{option[2:]}_file") == "-" for option in _IDS) > 1:
        raise UsageError(
            "standard input (-) can hold the ids of only one option; write the ids of the other options to files"
        )
    for option in _IDS:
        texts, path = (getattr(arguments, option[2:] + ending) for ending in ("", "_file"))
        listed = [] if path is None else read_ids(f"{option}-file", path)
        given[option] = None if texts is None and path is None else [*(texts or []), *listed]
    return given


def _note_unknown(arguments: argparse.Namespace, excluded: list[Any] | None, data: Interactions) -> None:
    """Print the ids of --exclude that the model does not know."""
    known = set(data.item_ids.tolist())
    unknown = [item for item in excluded or [] if item not in known]
    # If all ids are unknown, the model warns.
    if unknown and excluded and len(unknown) < len(excluded) and not arguments.quiet:
        show(
            f"fastfedrec: --exclude has {len(unknown)} of {len(excluded)} ids that are unknown to the model: "
            f"{show_names(unknown)}",
            file=sys.stderr,
        )


def _convert_ids(option: str, texts: Sequence[str], known: np.ndarray) -> list[Any]:
    """Convert ids from text to the type of the model's ids."""
    # By the kind of the ids' NumPy dtype.
    kinds: dict[str, Any] = {"i": int, "u": int, "f": float, "U": str, "O": parse_literal}
    convert = kinds.get(known.dtype.kind)
    if convert is None:
        raise TypeError(f"{option} cannot express the model's ids, of dtype {known.dtype}; use recommend() in Python")
    try:
        return [convert(text) for text in texts]
    except ValueError:
        raise UsageError(f"{option} must be numbers like the model's ids ({known.dtype}), got {texts}") from None
