"""Data in parts: --train, --test and --given, as `fastfedrec split` writes them and as others publish them."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from fastfedrec.cli.inputs import UsageError, load_data
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import Split

__all__ = ["load_parts", "named_parts", "sources"]


def load_parts(arguments: argparse.Namespace, systems: Iterable[type]) -> Split | None:
    """What --train, --test and --given name, or None where there is no --train.

    What --top-items and --min-interactions keep is of --train; --catalogue is of all.
    """
    if arguments.train is None:
        for option in ("test", "given"):
            if getattr(arguments, option) is not None:
                raise UsageError(f"--{option} needs --train, and takes no --data; see fastfedrec split")
        return None
    if arguments.test is None:
        raise UsageError("--train needs --test, the file that is tested")
    systems = list(systems)
    parts = {}
    for option in ("train", "test", "given"):
        if (path := getattr(arguments, option)) is None:
            continue
        kept = {} if option == "train" else {"top_items": None, "min_interactions": None}
        with _named(option):
            parts[option] = load_data(argparse.Namespace(**vars(arguments) | kept | {"data": path}), systems)
    alike = _with_ids_alike(list(parts.values()))
    return Split(**dict(zip(parts, alike, strict=True)))


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
    except (TypeError, ValueError, UsageError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (error.args[0].replace("--data", f"--{option}"), *error.args[1:])
        raise


def _with_ids_alike(parts: list[Interactions]) -> list[Interactions]:
    """The same parts, with text for every id where one of them has text.

    A reader takes ids for numbers if all are, and one file of a split may have numbers alone where another one has not.
    """
    for axis in ("user_ids", "item_ids"):
        are_numbers = [getattr(part, axis).dtype.kind in "iu" for part in parts]
        if any(are_numbers) and not all(are_numbers):
            parts = [
                part._replace(**{axis: getattr(part, axis).astype(np.str_)}) if is_number else part
                for part, is_number in zip(parts, are_numbers, strict=True)
            ]
    return parts
