"""Models on disk: one .npz of plain arrays and a JSON header, never a pickle, never a key."""

import json
import os
from typing import Any

import numpy as np

from fastfedrec._files import new_file

_FORMAT = "fastfedrec model 1"


def write_model(
    path: str | os.PathLike, header: dict[str, Any], arrays: dict[str, np.ndarray], *, private: bool = False
) -> None:
    """Write a model's header and arrays to one file.

    Parameters
    ----------
    path : path-like
        Exactly this file, whatever its ending.
    header : dict
        Plain JSON values.
    arrays : dict of str to ndarray
        Numbers and strings as they are; object arrays as JSON.
    private : bool
        As for `fastfedrec._files.new_file`.
    """
    objects: dict[str, list] = {}
    plain: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.dtype.kind == "O":
            objects[name] = objects_to_json(name, array)
        else:
            plain[name] = array
    text = json.dumps({"format": _FORMAT, "header": header, "objects": objects})
    plain["json"] = np.frombuffer(text.encode(), dtype=np.uint8)
    with new_file(path, private=private) as file:
        np.savez_compressed(file, **plain)


def read_model(path: str | os.PathLike) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write_model` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    header : dict
        As written.
    arrays : dict of str to ndarray
        As written.

    Raises
    ------
    ValueError
        Not a model of this package.
    """
    try:
        # Opened here: NumPy leaves a file open that it cannot read.
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        document = json.loads(arrays.pop("json").tobytes().decode())
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r}")
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"path {os.fspath(path)!r} is not a model saved by fastfedrec ({error})") from error
    for name, entries in document["objects"].items():
        arrays[name] = objects_from_json(entries)
    return document["header"], arrays


def objects_to_json(name: str, array: np.ndarray) -> list:
    """An array of objects as JSON values; numbers, strings, and tuples of these, or a TypeError that names `name`."""
    return [_to_json(name, entry) for entry in array]


def objects_from_json(entries: list) -> np.ndarray:
    """What `objects_to_json` was given."""
    array = np.empty(len(entries), dtype=object)
    array[:] = [_from_json(entry) for entry in entries]
    return array


def _to_json(name: str, value: Any) -> Any:
    """Strings and numbers as they are, tuples as tagged lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return {"tuple": [_to_json(name, part) for part in value]}
    if isinstance(value, str | int | float | bool):
        return value
    raise TypeError(
        f"{name} holds {value!r} ({type(value).__name__}), which cannot be saved without pickle; use ids that are "
        "numbers, strings, or tuples of these"
    )


def _from_json(value: Any) -> Any:
    return tuple(_from_json(part) for part in value["tuple"]) if isinstance(value, dict) else value
