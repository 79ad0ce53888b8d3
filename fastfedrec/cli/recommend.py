"""The command ``fastfedrec recommend``: a saved model's best items for some users."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError, parse_literal, positive, read_ids
from fastfedrec.cli.outputs import show
from fastfedrec.cli.parsing import ExtendIds
from fastfedrec.core.numbers import show_names
from fastfedrec.core.text import format_table
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems.recommender import load

__all__ = ["add_recommend"]


#: Options of ids, and their help texts.
_IDS = {
    "--users": "external user ids",
    "--items": "external ids of candidate items; default: all",
    "--exclude": "external ids of items that are never recommended",
}


def add_recommend(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "recommend",
        run_recommend,
        "Print a saved model's best items for some users.",
        [
            "fastfedrec recommend model.npz --users 17 42 -n 5",
            "fastfedrec recommend model.npz --users 17 --exclude 50 181 --unknown popular",
        ],
    )
    command.add_argument("file", metavar="FILE", type=Path, help="file saved by fit --out")
    for option, text in _IDS.items():
        command.add_argument(option, nargs="+", action=ExtendIds, metavar="ID", help=text)
        command.add_argument(
            f"{option}-file",
            metavar="FILE",
            help=f"file of further ids for {option}, one in each line; - is standard input",
        )
    command.add_argument(
        "--unknown", choices=("error", "popular", "skip"), default="error",
        help="answer for a user whom the model was not fitted on: an error, popular items, or no items",
    )  # fmt: skip
    command.add_argument("-n", type=positive, default=10, metavar="N", help="number of items for each user")
    command.add_argument("--include-seen", action="store_true", help="also recommend items that the user has")


def run_recommend(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the recommendations."""
    if arguments.users is None and arguments.users_file is None:
        raise UsageError("recommend needs --users or --users-file")
    model = load(arguments.file)
    if not model.interactions_.n_users:
        raise UsageError(
            f"{arguments.file} was saved without users; in Python, with_users serves the users of your data"
        )
    data = model.interactions_
    # The ids of --users, --items and --exclude, in the order of `_IDS`.
    ids_of = data.user_ids, data.item_ids, data.item_ids
    users, candidates, excluded = (
        None if texts is None else _convert_ids(option, texts, ids)
        for (option, texts), ids in zip(_given_ids(arguments).items(), ids_of, strict=True)
    )
    assert users is not None  # checked above
    _note_unknown(arguments, excluded, data)
    ids, scores = model.recommend(
        users, arguments.n, items=candidates, exclude=excluded, filter_seen=not arguments.include_seen,
        unknown=arguments.unknown,
    )  # fmt: skip
    # A score of -inf is padding: a user with too few unseen items gets a shorter list, a skipped user an empty one.
    lists = [
        list(zip(i[s > -np.inf].tolist(), s[s > -np.inf].tolist(), strict=True))
        for i, s in zip(ids, scores, strict=True)
    ]
    if arguments.json:
        return {
            "model": str(arguments.file),
            "recommendations": [
                {"user": user, "items": [item for item, _ in best], "scores": [score for _, score in best]}
                for user, best in zip(users, lists, strict=True)
            ],
        }
    rows = [
        (user, rank, item, f"{score:.4g}")
        for user, best in zip(users, lists, strict=True)
        for rank, (item, score) in enumerate(best, start=1)
    ]
    return format_table(("user", "rank", "item", "score"), rows)


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
