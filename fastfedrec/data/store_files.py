"""Files of a folder of interactions: one for each array, and a JSON document that describes them."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.core.files import check_path
from fastfedrec.core.model_files import objects_from_json, objects_to_json
from fastfedrec.core.npz import ARRAY_START

__all__ = ["AXES", "is_there", "new_folder", "read_array", "read_document", "write_array", "write_document"]

AXES = ("user", "item")

_FORMAT = "fastfedrec interactions 1"
_DOCUMENT = "interactions.json"


@contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a folder that gets its name when the block ends without an error; only its owner can access it."""
    # The folder is complete as soon as its name exists.  Its temporary name is random, so no other process has it.
    folder = check_path("folder", folder)
    if os.path.lexists(folder):
        raise FileExistsError(f"folder {str(folder)!r} must not exist; pass another path, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name[:64]}.", suffix=".partial", dir=folder.parent))
    try:
        yield partial
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_array(folder: Path, name: str, array: np.ndarray) -> None:
    """Write an array to a NumPy file, or an array of objects to a JSON file."""
    if array.dtype.kind == "O":
        (folder / f"{name}.json").write_text(json.dumps(objects_to_json(name, array)))
    else:
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def write_document(
    folder: Path, features: dict[str, list[str]], catalogue: str, repeats: dict[str, Any] | None = None
) -> None:
    """Write the names of feature columns by axis, the source of the list of items, and the rule for repeated pairs."""
    document = {"format": _FORMAT, "catalogue": catalogue, **features} | ({"repeats": repeats} if repeats else {})
    (folder / _DOCUMENT).write_text(json.dumps(document))


def read_document(folder: Path) -> dict[str, Any]:
    """Read and check the document of `write_document`."""
    path = folder / _DOCUMENT
    if not path.exists():
        raise FileNotFoundError(
            f"folder {str(folder)!r} must hold stored interactions, but {_DOCUMENT} is missing; check the path"
        )
    document = _read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"{path} must have the format {_FORMAT!r}; store the interactions again")
    for axis in AXES:
        names = document.get(axis)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path} must list the features of {axis}s by name; store the interactions again")
        if len(set(names)) < len(names):
            raise ValueError(f"{path} must list each feature of {axis}s once; store the interactions again")
    return document


def is_there(folder: Path, name: str) -> bool:
    """Return whether the folder has an array of this name."""
    return any((folder / f"{name}.{kind}").exists() for kind in ("npy", "json"))


def read_array(folder: Path, name: str) -> np.ndarray:
    """Read an array of `write_array`; an array without objects is mapped from its file."""
    objects = folder / f"{name}.json"
    if objects.exists():
        try:
            array = objects_from_json(_read_json(objects))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _damaged(objects, error) from error
        array.flags.writeable = False
        return array
    path = folder / f"{name}.npy"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; store the interactions again")
    try:
        with open(_regular(path), "rb") as file:
            if file.read(len(ARRAY_START)) != ARRAY_START:
                raise ValueError("it does not begin as an array does")
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy raises many types of errors for an invalid file
        raise _damaged(path, error) from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_regular(path).read_text("utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise _damaged(path, error) from error


def _regular(path: Path) -> Path:
    """Return the path of an ordinary file, because a read from a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError("it is not an ordinary file")
    return path


def _damaged(path: Path, reason: Any) -> ValueError:
    message = str(reason) or type(reason).__name__
    if "pickle" in message:  # NumPy's message suggests allow_pickle=True, which would run code from the file
        message = "it holds Python objects"
    if str(path) in message:
        return ValueError(message)
    return ValueError(f"{path} is damaged ({message}); store the interactions again")
