"""Models on disk: an .npz file of arrays with a JSON header that describes them, without pickle and without keys."""

import functools
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from fastfedrec.core.files import check_path, new_file
from fastfedrec.core.npz import KINDS, Archive, write_archive
from fastfedrec.core.text import unique_fields

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
_TEXT = "json"  # dtype in the header of an array of objects, which is stored as JSON
# A JSON text may have max(_MIN_TEXT_BYTES, _TEXT_RATIO * size of the file) bytes.  Parsed JSON takes up to 24 times the
# memory of its text, so the limit protects a reader of an untrusted file.
_MIN_TEXT_BYTES, _TEXT_RATIO = 2**22, 8


@dataclass(frozen=True)
class ObjectColumn:
    """An array of objects in the form of a file: its entries as JSON, and their number."""

    text: bytes
    length: int

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> "ObjectColumn":
        """Convert numbers, strings and tuples of these to JSON, or raise a TypeError, ValueError or RecursionError."""
        return cls(json.dumps(objects_to_json(name, array)).encode(), len(array))


def write_model(
    path: str | os.PathLike[str],
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray | ObjectColumn],
    *,
    private: bool = False,
) -> None:
    """Write a model's header and arrays to exactly this path, with object arrays as JSON."""
    # With `private` only the file's owner may read it.  A link, a folder or a device is not replaced.
    descriptions: dict[str, Any] = {}
    plain: dict[str, np.ndarray] = {}
    max_text_bytes = 0
    for name, array in arrays.items():
        if not isinstance(array, ObjectColumn) and array.dtype.kind == "O":
            array = ObjectColumn.of(name, array)
        if isinstance(array, ObjectColumn):
            plain[name] = np.frombuffer(array.text, dtype=np.uint8)
            descriptions[name] = {"dtype": _TEXT, "shape": [array.length], "bytes": len(array.text)}
            max_text_bytes = max(max_text_bytes, len(array.text))
        else:
            plain[name] = array
            descriptions[name] = {"dtype": array.dtype.str, "shape": list(array.shape)}
    document = {"format": _FORMAT, "header": header, "arrays": descriptions}
    text = json.dumps(document, default=_to_python).encode()
    max_text_bytes = max(max_text_bytes, len(text))
    # A smaller file would be within no reader's limit for this text, so it is written without compression.
    min_size = -(-max_text_bytes // _TEXT_RATIO) if max_text_bytes > _MIN_TEXT_BYTES else 0
    with new_file(path, private=private) as file:
        write_archive(file, {"json": np.frombuffer(text, dtype=np.uint8)} | plain, min_size)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header and the arrays of an untrusted file, or raise a ValueError if it is not a model."""
    # The arrays have exactly the names, types and shapes that the header describes.
    return _opened(path, _read)


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read only the header of an untrusted file, with parameters and ledger, or raise a ValueError."""
    # No row of a user is in the header.
    return _opened(path, lambda archive, size: _field(_document(archive, size), "header", dict))


def not_a_model(path: str | os.PathLike[str], reason: object) -> ValueError:
    """Return the error for a file that is not a model."""
    return ValueError(f"path {os.fsdecode(path)!r} is not a model saved by fastfedrec ({reason})")


class _UnknownFormatError(Exception):
    """The file has a format of another version of the package, as its argument."""


def _opened(path: str | os.PathLike[str], read: Callable[[Archive, int], Result]) -> Result:
    path = check_path("path", path)
    if not path.exists():
        raise FileNotFoundError(f"path {os.fsdecode(path)!r} does not exist; pass a file that a model's save wrote")
    if not path.is_file():  # opening a pipe would wait for a writer
        raise not_a_model(path, "it is no ordinary file")
    with open(path, "rb") as file:
        try:
            return read(Archive(file), os.fstat(file.fileno()).st_size)
        except _UnknownFormatError as error:
            raise ValueError(
                f"path {os.fsdecode(path)!r} was saved by another version of fastfedrec: its format is "
                f"{error.args[0]!r}, which this version does not know; load it "
                "with the version that wrote it, or a later one"
            ) from None
        except BadZipFile as error:
            reason = "it is another kind of file, or cut short; pass a file that a model's save wrote"
            raise not_a_model(path, reason) from error
        except Exception as error:  # damaged bytes may cause any error in the readers of the format
            raise not_a_model(path, error) from error


def _max_text_bytes(file_size: int) -> int:
    return max(_MIN_TEXT_BYTES, _TEXT_RATIO * file_size)


def _document(archive: Archive, file_size: int) -> dict[str, Any]:
    """Read and check the JSON document with the header, in one of the known formats."""
    sizes, max_bytes = archive.sizes, _max_text_bytes(file_size)
    if "json" not in sizes:
        raise ValueError("it has no header")
    if sizes["json"] > max_bytes:
        raise ValueError(f"its header has {sizes['json']} bytes, more than {max_bytes}")
    document = _parse(archive.read("json"))
    file_format = _field(document, "format", str)
    if file_format not in (_FORMAT, _FORMER):
        if re.fullmatch(r"fastfedrec model \d{1,9}", file_format):
            raise _UnknownFormatError(file_format)
        raise ValueError(f"its format is {file_format!r}, which this version does not know")
    return document


def _read(archive: Archive, file_size: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    sizes, max_bytes = archive.sizes, _max_text_bytes(file_size)
    document = _document(archive, file_size)
    header = _field(document, "header", dict)
    # Headers of the former format do not describe arrays, so the directory of the archive lists them.
    if document["format"] == _FORMER:
        arrays = {name: archive.read(name) for name in sizes if name != "json"}
        for name, entries in _field(document, "objects", dict).items():
            if name in arrays:
                raise ValueError(f"{name} is there twice")
            arrays[name] = objects_from_json(entries)
        return header, arrays
    descriptions = _field(document, "arrays", dict)
    if differing := sorted(descriptions.keys() ^ (sizes.keys() - {"json"})):
        raise ValueError(f"header and file do not hold the same arrays: {differing}")
    return header, {name: _read_array(archive, name, entry, max_bytes) for name, entry in descriptions.items()}


def _read_array(archive: Archive, name: str, description: Any, max_bytes: int) -> np.ndarray:
    """Read an array, or raise unless it has the size, type and shape that its header describes."""
    dtype, shape = _field(description, "dtype", str), _field(description, "shape", list)
    if dtype == _TEXT:
        size = _field(description, "bytes", int)
        if size > max_bytes:
            raise ValueError(f"{name} has {size} bytes of JSON, more than {max_bytes}")
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


def _check_size(archive: Archive, name: str, described_bytes: int) -> None:
    header_bytes = archive.sizes[name] - described_bytes
    # An array in the .npy format 1.0 begins with 10 bytes and a header with a length of 16 bits.
    if not 0 < header_bytes < 2**16 + 10:
        raise ValueError(f"{name} has {archive.sizes[name]} bytes, and {described_bytes} were promised")


def _parse(text: np.ndarray) -> Any:
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError(f"JSON must be bytes, got {text.dtype} of shape {text.shape}")
    return json.loads(text.tobytes().decode(), object_pairs_hook=functools.partial(unique_fields, "its header has"))


def _field(document: Any, name: str, kind: type) -> Any:
    if not isinstance(document, dict) or name not in document:
        raise ValueError(f"it has no {name!r}")
    value = document[name]
    if type(value) is not kind:
        raise ValueError(f"its {name!r} must be {kind.__name__}, got {type(value).__name__}")
    return value


def _to_python(value: Any) -> Any:
    """Convert NumPy's numbers and arrays, which `json` cannot write, to Python's types."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be saved without pickle")


def as_written(column: np.ndarray) -> np.ndarray | ObjectColumn | None:
    """Return a column in the form of a file, or None for a column that no file can hold."""
    if column.dtype.kind != "O":
        return column if column.dtype.kind in KINDS and column.dtype.names is None else None
    try:
        return ObjectColumn.of("", column)
    except (TypeError, ValueError, RecursionError):
        return None


def objects_to_json(name: str, array: np.ndarray) -> list[Any]:
    """Convert numbers, strings and tuples of these to JSON values, or raise a TypeError that names `name`."""
    return [_to_json(name, entry) for entry in array]


def objects_from_json(entries: Any) -> np.ndarray:
    """Return the array that `objects_to_json` converted, or raise a ValueError for untrusted input of another form."""
    if type(entries) is not list:
        raise ValueError(f"a list of ids must be one, got {type(entries).__name__}")
    array = np.empty(len(entries), dtype=object)
    array[:] = [_from_json(entry) for entry in entries]
    return array


def _to_json(name: str, value: Any) -> Any:
    """Convert an entry, with tuples as tagged lists."""
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
