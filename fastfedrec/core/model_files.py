"""Models on disk: an .npz of plain arrays and a JSON header that promises each; never a pickle, never a key."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fastfedrec.core.files import check_path, new_file
from fastfedrec.core.npz import KINDS, Archive, write_archive

__all__ = [
    "ObjectColumn",
    "as_written",
    "not_a_model",
    "objects_from_json",
    "objects_to_json",
    "read_header",
    "read_model",
    "write_model",
]

_FORMAT, _FORMER = "fastfedrec model 2", "fastfedrec model 1"
Result = TypeVar("Result")
_TEXT = "json"  # the dtype that a header gives for arrays of objects, which are kept as JSON
# Bytes of JSON that any file may hold, and for each of its own: JSON takes up to 24 times as much memory when read.
_MIN_TEXT_BYTES, _TEXT_RATIO = 2**22, 8


@dataclass(frozen=True)
class ObjectColumn:
    """An array of objects as a file holds it.

    Parameters
    ----------
    text : bytes
        Its entries, as JSON.
    length : int
        How many.
    """

    text: bytes
    length: int

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> "ObjectColumn":
        """Numbers, strings, and tuples of these; a TypeError, ValueError or RecursionError of others."""
        return cls(json.dumps(objects_to_json(name, array)).encode(), len(array))


def write_model(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray | ObjectColumn],
    *,
    private: bool = False,
) -> None:
    """Write a model's header and arrays to one file.

    Parameters
    ----------
    path : path-like
        Exactly this file, whatever its ending; a link, a folder or a device is not replaced.
    header : dict
        JSON values; NumPy's are written as Python's.
    arrays : mapping of str to (ndarray or ObjectColumn)
        Numbers and strings as they are; object arrays as JSON.
    private : bool
        Only its owner may read the file.
    """
    promised: dict[str, Any] = {}
    plain: dict[str, np.ndarray] = {}
    longest = 0
    for name, array in arrays.items():
        if not isinstance(array, ObjectColumn) and array.dtype.kind == "O":
            array = ObjectColumn.of(name, array)
        if isinstance(array, ObjectColumn):
            plain[name] = np.frombuffer(array.text, dtype=np.uint8)
            promised[name] = {"dtype": _TEXT, "shape": [array.length], "bytes": len(array.text)}
            longest = max(longest, len(array.text))
        else:
            plain[name] = array
            promised[name] = {"dtype": array.dtype.str, "shape": list(array.shape)}
    document = {"format": _FORMAT, "header": header, "arrays": promised}
    text = json.dumps(document, default=_to_python).encode()
    longest = max(longest, len(text))
    least_size = -(-longest // _TEXT_RATIO) if longest > _MIN_TEXT_BYTES else 0
    with new_file(path, private=private) as file:
        write_archive(file, {"json": np.frombuffer(text, dtype=np.uint8)} | plain, least_size)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `write_model` wrote, or what somebody says it has.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    header : dict
        As written.
    arrays : dict of str to ndarray
        As promised by the header: of these types and shapes, and no others.

    Raises
    ------
    ValueError
        Not a model of this package.
    """
    return _opened(path, _read)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a file says beside its arrays, and none of these.

    Parameters
    ----------
    path : path-like
        As `write_model` wrote it, or as somebody says.

    Returns
    -------
    dict
        As written; parameters and the ledger are in it, people's rows are not.

    Raises
    ------
    ValueError
        Not a model of this package.
    """
    return _opened(path, lambda archive, size: _field(_document(archive, size), "header", dict))


def not_a_model(path: str | os.PathLike[str], reason: object) -> ValueError:
    """What to raise about a file."""
    return ValueError(f"path {os.fsdecode(path)!r} is not a model saved by fastfedrec ({reason})")


def _opened(path: str | os.PathLike[str], read: Callable[[Archive, int], Result]) -> Result:
    path = check_path("path", path)
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise not_a_model(path, "it is no ordinary file")
    with open(path, "rb") as file:
        try:
            return read(Archive(file), os.fstat(file.fileno()).st_size)
        except Exception as error:  # whatever damaged bytes do to readers of the format
            raise not_a_model(path, error) from error


def _most_text(file_size: int) -> int:
    return max(_MIN_TEXT_BYTES, _TEXT_RATIO * file_size)


def _document(archive: Archive, file_size: int) -> dict[str, Any]:
    """What stands beside the arrays, of a format that this version knows."""
    sizes, most = archive.sizes, _most_text(file_size)
    if "json" not in sizes:
        raise ValueError("it has no header")
    if sizes["json"] > most:
        raise ValueError(f"its header has {sizes['json']} bytes, more than {most}")
    document = _parse(archive.read("json"))
    found = _field(document, "format", str)
    if found not in (_FORMAT, _FORMER):
        raise ValueError(f"its format is {found!r}, which this version does not know")
    return document


def _read(archive: Archive, file_size: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    sizes, most = archive.sizes, _most_text(file_size)
    document = _document(archive, file_size)
    header = _field(document, "header", dict)
    if document["format"] == _FORMER:  # nothing is promised, so the directory of the archive is all there is to go by
        arrays = {name: archive.read(name) for name in sizes if name != "json"}
        for name, entries in _field(document, "objects", dict).items():
            if name in arrays:
                raise ValueError(f"{name} is there twice")
            arrays[name] = objects_from_json(entries)
        return header, arrays
    promised = _field(document, "arrays", dict)
    if differing := sorted(promised.keys() ^ (sizes.keys() - {"json"})):
        raise ValueError(f"header and file do not hold the same arrays: {differing}")
    return header, {name: _kept_promise(archive, name, promise, most) for name, promise in promised.items()}


def _kept_promise(archive: Archive, name: str, promise: Any, most: int) -> np.ndarray:
    """An array that is what its header said."""
    dtype, shape = _field(promise, "dtype", str), _field(promise, "shape", list)
    if dtype == _TEXT:
        size = _field(promise, "bytes", int)
        if size > most:
            raise ValueError(f"{name} has {size} bytes of JSON, more than {most}")
        _check_size(archive, name, size)
        text = archive.read(name)
        if text.dtype != np.uint8 or text.shape != (size,):
            raise ValueError(f"{name} is {text.dtype} of shape {text.shape}, and {size} bytes were promised")
        array = objects_from_json(_parse(text))
    else:
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{name} is promised to have the shape {shape}")
        _check_size(archive, name, math.prod(shape) * np.dtype(dtype).itemsize)
        array = archive.read(name)
        dtype = np.dtype(dtype).newbyteorder("=")
        if array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype}, and {dtype} was promised")
    if list(array.shape) != shape:
        raise ValueError(f"{name} has the shape {array.shape}, and {tuple(shape)} was promised")
    return array


def _check_size(archive: Archive, name: str, promised: int) -> None:
    header = archive.sizes[name] - promised
    if not 0 < header < 2**16 + 10:  # what begins an array: never more than 16 bits can count
        raise ValueError(f"{name} has {archive.sizes[name]} bytes, and {promised} were promised")


def _parse(text: np.ndarray) -> Any:
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError(f"JSON must be bytes, got {text.dtype} of shape {text.shape}")
    return json.loads(text.tobytes().decode(), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields of an object, none of which may stand twice: two readers would take different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"its header has a field twice: {next(name for name in names if names.count(name) > 1)!r}")
    return found


def _field(document: Any, name: str, kind: type) -> Any:
    if not isinstance(document, dict) or name not in document:
        raise ValueError(f"it does not say its {name!r}")
    value = document[name]
    if type(value) is not kind:
        raise ValueError(f"its {name!r} must be {kind.__name__}, got {type(value).__name__}")
    return value


def _to_python(value: Any) -> Any:
    """What `json` cannot write by itself, where it is a number or a collection of them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be saved without pickle")


def as_written(column: np.ndarray) -> np.ndarray | ObjectColumn | None:
    """A column as a file holds it; None where none can."""
    if column.dtype.kind != "O":
        return column if column.dtype.kind in KINDS and column.dtype.names is None else None
    try:
        return ObjectColumn.of("", column)
    except (TypeError, ValueError, RecursionError):
        return None


def objects_to_json(name: str, array: np.ndarray) -> list[Any]:
    """An array of objects as JSON values; numbers, strings, and tuples of these, or a TypeError that names `name`."""
    return [_to_json(name, entry) for entry in array]


def objects_from_json(entries: Any) -> np.ndarray:
    """What `objects_to_json` was given; a ValueError where it was given nothing of the kind."""
    if type(entries) is not list:
        raise ValueError(f"a list of ids must be one, got {type(entries).__name__}")
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
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, dict) and value.keys() == {"tuple"} and isinstance(value["tuple"], list):
        return tuple(_from_json(part) for part in value["tuple"])
    raise ValueError(f"an id must be a number, a string or a tuple of these, got {str(value)[:60]}")
