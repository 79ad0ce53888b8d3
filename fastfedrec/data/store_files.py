"""The files of a folder of interactions: one for each array, and a document that says what they are."""

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

__all__ = ["AXES", "is_there", "new_folder", "read_array", "read_document", "write_array", "write_document"]

AXES = ("user", "item")

_FORMAT = "fastfedrec interactions 1"
_DOCUMENT = "interactions.json"


@contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder that is built beside its place, and gets its name when the block ends well; only its owner may enter it.

    Until then it has a name that nobody could have guessed, or has given to something of their own.
    """
    folder = check_path("folder", folder)
    if os.path.lexists(folder):
        raise FileExistsError(f"folder {str(folder)!r} exists; pass another, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name[:64]}.", suffix=".partial", dir=folder.parent))
    try:
        yield partial
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_array(folder: Path, name: str, array: np.ndarray) -> None:
    """One array: as a NumPy file, or where it is of objects as JSON."""
    if array.dtype.kind == "O":
        (folder / f"{name}.json").write_text(json.dumps(objects_to_json(name, array)))
    else:
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def write_document(
    folder: Path, features: dict[str, list[str]], catalogue: str, repeats: dict[str, Any] | None = None
) -> None:
    """What else is known: the names of feature columns by axis, where items come from, and how rows were merged."""
    document = {"format": _FORMAT, "catalogue": catalogue, **features} | ({"repeats": repeats} if repeats else {})
    (folder / _DOCUMENT).write_text(json.dumps(document))


def read_document(folder: Path) -> dict[str, Any]:
    """What `write_document` wrote."""
    path = folder / _DOCUMENT
    if not path.exists():
        raise FileNotFoundError(f"folder {str(folder)!r} holds no stored interactions ({_DOCUMENT} is missing)")
    document = _read_json(path)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"{path} is not of {_FORMAT!r}; store the interactions again")
    for axis in AXES:
        names = document.get(axis)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path} must list the features of {axis}s by name; store the interactions again")
        if len(set(names)) < len(names):
            raise ValueError(f"{path} must list each feature of {axis}s once; store the interactions again")
    return document


def is_there(folder: Path, name: str) -> bool:
    """Whether an array of this name has been written."""
    return any((folder / f"{name}.{kind}").exists() for kind in ("npy", "json"))


def read_array(folder: Path, name: str) -> np.ndarray:
    """An array that `write_array` wrote, mapped from its file where it is not of objects."""
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
        array = np.load(_regular(path), mmap_mode="r", allow_pickle=False)
    except Exception as error:  # whatever a file that is none makes NumPy raise
        raise _damaged(path, error) from error
    if not isinstance(array, np.ndarray):  # NumPy takes an archive of several for one
        raise _damaged(path, "an archive of arrays, where one is wanted")
    return array


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_regular(path).read_text("utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise _damaged(path, error) from error


def _regular(path: Path) -> Path:
    """The path of an ordinary file: reading a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError("it is no ordinary file")
    return path


def _damaged(path: Path, reason: Any) -> ValueError:
    told = str(reason) or type(reason).__name__
    if "pickle" in told:  # NumPy's advice would be to run what a stranger wrote
        told = "it holds Python objects"
    if str(path) in told:
        return ValueError(told)
    return ValueError(f"{path} is damaged ({told}); store the interactions again")
