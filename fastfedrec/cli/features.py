"""--features: public features of items, for systems that use them."""

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.cli.inputs import UsageError
from fastfedrec.cli.tables import is_table
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.datasets import load_item_features, load_movielens_items
from fastfedrec.datasets.table_files import table_columns
from fastfedrec.systems.registry import SYSTEMS, system_class

__all__ = ["add_features", "aligned_features", "give_features", "read_features", "takes_features"]

# The value of --features that stands for the data set's own movies, instead of a file.
_MOVIELENS = "movielens"
_PARAMETER, _IDS = "item_features", "item"
# Text that `int` and `str` convert back and forth without a change, within 64 bits.
_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")


def add_features(command: argparse.ArgumentParser) -> None:
    """Add the argument of public item features."""
    command.add_argument(
        "--features", metavar="FILE",
        help="public features of items, never derived from users' rows, for systems with item_features: a CSV, TSV or "
        "Parquet file with a row for each item, its id, and columns of labels (several joined by '|'), numbers or "
        "text; a MovieLens zip or folder; or 'movielens', for the movies of --data",
    )  # fmt: skip


def read_features(arguments: argparse.Namespace, models: Sequence[Any]) -> dict[str, Any] | None:
    """Return the columns of --features, or None; refuse invalid columns, and models that do not use features."""
    source = arguments.features
    if source is None:
        return None
    takers = _takers(models)
    if not takers:
        names = ", ".join(dict.fromkeys(type(model).__name__ for model in models))
        supported = ", ".join(name for name in SYSTEMS if takes_features(system_class(name)))
        raise UsageError(
            f"--features needs a system with public features of items ({supported}), got {names}; leave it out"
        )
    if conflicting := [type(model).__name__ for model in takers if model.item_features is not None]:
        raise UsageError(f"--features and --set {_PARAMETER}=... both give {conflicting[0]} features; leave one out")
    with _named(source):
        columns = _read(arguments, source)
        # Columns that cannot be features are refused before any data are read.
        ItemFeatures.of(_PARAMETER, columns)
    return columns


def give_features(
    arguments: argparse.Namespace, columns: dict[str, Any] | None, models: Sequence[Any], data: Interactions
) -> None:
    """Set the features of the models that use them."""
    if columns is None:
        return
    features = aligned_features(arguments, columns, data.item_ids)
    for model in _takers(models):
        model.set_params(item_features=features)


def aligned_features(arguments: argparse.Namespace, columns: dict[str, Any], items: np.ndarray) -> ItemFeatures:
    """Return features with ids of the items' type; refuse features that match no item."""
    with _named(arguments.features):
        features = ItemFeatures.of(_PARAMETER, columns | {_IDS: _convert_ids(columns[_IDS], items)})
        features.align(_PARAMETER, items)  # raises before the first of many fits
    return features


def takes_features(system: Any) -> bool:
    """Check whether a class has a parameter of item features."""
    return _PARAMETER in system._parameter_names()


def _takers(models: Sequence[Any]) -> list[Any]:
    return [model for model in models if takes_features(type(model))]


def _read(arguments: argparse.Namespace, source: str) -> dict[str, Any]:
    if source == _MOVIELENS:
        if arguments.data is None or arguments.data.startswith("generated:") or is_table(Path(arguments.data)):
            raise UsageError(f"--features {_MOVIELENS} needs --data with the zip or folder of a MovieLens data set")
        return load_movielens_items(arguments.data)
    if not is_table(Path(source)):
        return load_movielens_items(source)
    # --item names a column of --data; the features' file often uses the same name.
    is_there = arguments.item is not None and arguments.item in table_columns(source, None)
    return load_item_features(source, item=arguments.item if is_there else None)


def _convert_ids(ids: Any, items: np.ndarray) -> Any:
    """Convert ids to the type of the data's ids: 7 is a number only if all ids of the data are."""
    ids = np.asarray(ids)
    if items.dtype.kind == "U" and ids.dtype.kind in "iu":
        return ids.astype(np.str_)
    if items.dtype.kind in "iu" and ids.dtype.kind in "UO":
        # Ids that are not numbers belong to items outside the data, and stay text.
        return [int(text) if _INTEGER.fullmatch(str(text)) else str(text) for text in ids.tolist()]
    return ids


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Name the option in error messages."""
    try:
        yield
    except (TypeError, ValueError, LookupError, OSError) as error:
        if error.args and isinstance(error.args[0], str):
            text = error.args[0].replace(_PARAMETER, f"--features {source}: {_PARAMETER}", 1)
            error.args = (text if "--features" in text else f"--features: {text}", *error.args[1:])
        raise
