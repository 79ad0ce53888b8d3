"""--features: what is publicly known of the items, for systems that make something of it."""

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

_OWN = "movielens"  # instead of a file
_PARAMETER, _IDS = "item_features", "item"
_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")


def add_features(command: argparse.ArgumentParser) -> None:
    """The argument that names public features of items."""
    command.add_argument(
        "--features", metavar="FILE",
        help="what is publicly known of the items, never made from users' rows, for systems that take item_features: "
        "a CSV, TSV or Parquet file with a row for each item, its id, and columns of labels (several joined by '|'), "
        "numbers or text; a MovieLens zip or folder; or 'movielens', for the movies of --data",
    )  # fmt: skip


def read_features(arguments: argparse.Namespace, models: Sequence[Any]) -> dict[str, Any] | None:
    """The columns of --features, before any data are read; None where it is not given.

    It is refused where a column cannot be features, or none of the models makes anything of them.
    """
    source = arguments.features
    if source is None:
        return None
    takers = _takers(models)
    if not takers:
        names = ", ".join(dict.fromkeys(type(model).__name__ for model in models))
        those = ", ".join(name for name in SYSTEMS if takes_features(system_class(name)))
        raise UsageError(f"--features is for systems that take public features of items ({those}), not for {names}")
    if given := [type(model).__name__ for model in takers if model.item_features is not None]:
        raise UsageError(f"--features and --set {_PARAMETER}=... both give {given[0]} features; leave one out")
    with _named(source):
        columns = _read(arguments, source)
        ItemFeatures.of(_PARAMETER, columns)
    return columns


def give_features(
    arguments: argparse.Namespace, columns: dict[str, Any] | None, models: Sequence[Any], data: Interactions
) -> None:
    """Let the models that take features have them."""
    if columns is None:
        return
    features = aligned_features(arguments, columns, data.item_ids)
    for model in _takers(models):
        model.set_params(item_features=features)


def aligned_features(arguments: argparse.Namespace, columns: dict[str, Any], items: np.ndarray) -> ItemFeatures:
    """Features with ids of the type that those of the items have; refused where they are of none of the items."""
    with _named(arguments.features):
        features = ItemFeatures.of(_PARAMETER, columns | {_IDS: _alike(columns[_IDS], items)})
        features.align(_PARAMETER, items)  # before a fit that may be one of many
    return features


def takes_features(system: Any) -> bool:
    """Whether a class has a parameter for them."""
    return _PARAMETER in system._parameter_names()


def _takers(models: Sequence[Any]) -> list[Any]:
    return [model for model in models if takes_features(type(model))]


def _read(arguments: argparse.Namespace, source: str) -> dict[str, Any]:
    if source == _OWN:
        if arguments.data is None or arguments.data.startswith("generated:") or is_table(Path(arguments.data)):
            raise UsageError(f"--features {_OWN} needs --data with the zip or folder of a MovieLens data set")
        return load_movielens_items(arguments.data)
    if not is_table(Path(source)):
        return load_movielens_items(source)
    # --item is about --data, but both may well call it the same.
    is_there = arguments.item is not None and arguments.item in table_columns(source, None)
    return load_item_features(source, item=arguments.item if is_there else None)


def _alike(ids: Any, items: np.ndarray) -> Any:
    """Ids as they stand in the data: whether 7 is a number or text there is told by all of its ids."""
    ids = np.asarray(ids)
    if items.dtype.kind == "U" and ids.dtype.kind in "iu":
        return ids.astype(np.str_)
    if items.dtype.kind in "iu" and ids.dtype.kind in "UO":  # of other items, too
        return [int(text) if _INTEGER.fullmatch(str(text)) else str(text) for text in ids.tolist()]
    return ids


@contextmanager
def _named(source: str) -> Iterator[None]:
    """Let a refusal name the option."""
    try:
        yield
    except (TypeError, ValueError, LookupError, OSError) as error:
        if error.args and isinstance(error.args[0], str):
            text = error.args[0].replace(_PARAMETER, f"--features {source}: {_PARAMETER}", 1)
            error.args = (text if "--features" in text else f"--features: {text}", *error.args[1:])
        raise
