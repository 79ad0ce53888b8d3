"""Files of interrupted runs, which are checked before use; an error about a damaged file contains the remedy."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastfedrec.core.files import new_file

__all__ = ["DamagedFileError", "checking", "is_kept", "read_document", "write_document"]

_MAX_TEXT_BYTES = 10_000_000  # files of this package have hundreds
_CHECKSUM = "checksum"  # field by which changes of the other fields on a disk are found


class DamagedFileError(ValueError):
    """A file of a run that cannot be used; the message has the reason and the remedy."""

    def __init__(self, path: str | os.PathLike[str], reason: str, remedy: str):
        super().__init__(f"{os.fspath(path)!r} is damaged: {reason}; {remedy}")
        self.name = Path(path).name


def is_kept(path: str | os.PathLike[str]) -> bool:
    """Return whether a path exists, even as a broken link."""
    # A link to a disk that is not mounted must not look like a run that has not begun.
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def checking(path: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Convert errors about a file's contents to a `DamagedFileError` with the file's name and the remedy."""
    try:
        yield
    except DamagedFileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DamagedFileError(path, reason, remedy) from error


def read_document(path: str | os.PathLike[str], fields: Collection[str] | None = None) -> dict[str, Any]:
    """Read a JSON object with exactly these fields, or raise a ValueError; call it inside `checking`."""
    # None for `fields` accepts any fields, and files of version 0.1.0, which have no checksum.  The caller checks the
    # types of the values.
    size = os.stat(path).st_size
    if not 0 < size <= _MAX_TEXT_BYTES:
        raise ValueError(f"it has {size} bytes")
    document = json.loads(Path(path).read_bytes())
    if type(document) is not dict:
        raise ValueError(f"it must be an object, got {type(document).__name__}")
    if fields is not None and set(document) != {*fields, _CHECKSUM}:
        raise ValueError(f"it must have the fields {sorted([*fields, _CHECKSUM])}, got {sorted(document)}")
    if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
        raise ValueError("its checksum does not match its content")
    return document


def write_document(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a JSON object to a file that only its owner may read."""
    with new_file(path, private=True) as file:
        file.write(json.dumps({**document, _CHECKSUM: _checksum(document)}, allow_nan=False).encode())


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
