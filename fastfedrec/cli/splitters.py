"""--by: one vocabulary of splits into train and test for all commands."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from fastfedrec.cli.inputs import UsageError
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import (
    KFold,
    LeaveOneOut,
    PublishedFolds,
    RandomHoldout,
    Splitter,
    TemporalSplit,
    UserHoldout,
)

__all__ = ["SPLITTERS", "add_by", "by_splitter", "make_splitter", "refuse_by"]


def _latest(**parameters: Any) -> Splitter:
    """Return the split that tests the latest interaction of each user, or the latest share or number."""
    return RandomHoldout(latest=True, **parameters) if parameters else LeaveOneOut(latest=True)


#: Splitters by their name in --by, with the parameters that have options of `split`.
SPLITTERS: dict[str, tuple[Callable[..., Splitter], tuple[str, ...]]] = {
    "leave-one-out": (LeaveOneOut, ("latest",)),
    "time": (_latest, ("share", "n")),
    "random": (RandomHoldout, ("share", "n", "user_share", "latest")),
    "temporal": (TemporalSplit, ("time", "share", "new_users", "new_items")),
    "users": (UserHoldout, ("share", "given", "latest")),
    "k-fold": (KFold, ("n_folds",)),
    "published": (PublishedFolds, ()),
}
_SEVERAL = ("k-fold", "published")  # make more than one split
_MEANING = (
    "tested interactions; leave-one-out: a random one of each user; time: the latest one of each user; random: a share "
    "of each user's; temporal: all from one moment on; users: a part of users outside train"
)


def add_by(command: argparse.ArgumentParser, *, of_files: bool = False) -> None:
    """Add the argument of the split; `of_files` includes splits into several trains and tests."""
    meaning = f"with --data: {_MEANING} (default: leave-one-out, for ratings random)"
    if of_files:
        meaning = f"{_MEANING}; k-fold: every interaction once; published: the five splits of MovieLens 100K"
    command.add_argument(
        "--by",
        choices=[name for name in SPLITTERS if of_files or name not in _SEVERAL],
        default="leave-one-out" if of_files else None,
        help=meaning,
    )


def make_splitter(by: str, parameters: Mapping[str, Any]) -> Splitter:
    """Return a split; a share of .2 is the default of a split that needs one."""
    values = dict(parameters)
    if by in ("random", "temporal") and not values.keys() & {"share", "n", "time"}:
        values["share"] = 0.2
    return SPLITTERS[by][0](**values)


def by_splitter(arguments: argparse.Namespace, *, of_ratings: bool) -> Splitter:
    """Return the split of --data in a command without further options of splits."""
    by = arguments.by or ("random" if of_ratings else "leave-one-out")
    return make_splitter(by, {"share": 0.2} if by == "time" and of_ratings else {})


def refuse_by(arguments: argparse.Namespace, data: Interactions | None = None) -> None:
    """Refuse --by with files of a split, and a split by time of data without times."""
    if arguments.by is not None and arguments.train is not None:
        raise UsageError("--by is for --data, and --test is the held-out part of --train; leave one of them out")
    if data is not None and arguments.by in ("time", "temporal") and data.timestamps is None:
        raise ValueError(
            f"--by {arguments.by} needs timestamps, and {arguments.data} has none; name their column with --timestamp, "
            "or leave --by out"
        )
