"""Files that a run resumes from: checked before they are used, with the way out in the error where they are damaged."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastfedrec.core.files import new_file

__all__ = ["DamagedFileError", "checking", "is_kept", "read_document", "write_document"]

_LONGEST_TEXT = 10_000_000  # bytes; what is written here has hundreds
_CHECKSUM = "checksum"  # the field that tells whether a disk has changed the others


class DamagedFileError(ValueError):
    """A file that was kept and cannot be used as it is.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong.
    way_out : str
        What to do.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str, way_out: str):
        super().__init__(f"{os.fspath(path)!r} is damaged: {reason}; {way_out}")
        self.name = Path(path).name


def is_kept(path: str | os.PathLike[str]) -> bool:
    """Whether there is anything under a name.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    bool
        True for a link to nothing, as to a disk that is away, which must not pass for a run that has not begun.

    Raises
    ------
    OSError
        It cannot be told.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def checking(path: str | os.PathLike[str], way_out: str) -> Iterator[None]:
    """Name the file in whatever is found wrong with its contents.

    Parameters
    ----------
    path : path-like
        The file.
    way_out : str
        What to do.

    Raises
    ------
    DamagedFileError
        Something was wrong.
    """
    try:
        yield
    except DamagedFileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DamagedFileError(path, reason, way_out) from error


def read_document(path: str | os.PathLike[str], fields: Collection[str] | None = None) -> dict[str, Any]:
    """A JSON object; to be called where `checking` names the file.

    Parameters
    ----------
    path : path-like
        The file.
    fields : collection of str or None
        All that it must have; None leaves them free, and takes files of 0.1.0, which had no checksum.

    Returns
    -------
    dict of str to object
        Whoever uses a value checks its type.

    Raises
    ------
    ValueError
        Anything else, or what is not as it was written.
    """
    size = os.stat(path).st_size
    if not 0 < size <= _LONGEST_TEXT:
        raise ValueError(f"it has {size} bytes")
    document = json.loads(Path(path).read_bytes())
    if type(document) is not dict:
        raise ValueError(f"it must be an object, got {type(document).__name__}")
    if fields is not None and set(document) != {*fields, _CHECKSUM}:
        raise ValueError(f"it must have the fields {sorted([*fields, _CHECKSUM])}, got {sorted(document)}")
    if _CHECKSUM in document and document.pop(_CHECKSUM) != _checksum(document):
        raise ValueError("its checksum is not that of its content")
    return document


def write_document(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a JSON object that only its owner may read.

    Parameters
    ----------
    path : path-like
        The file.
    document : mapping of str to object
        Plain JSON values.
    """
    with new_file(path, private=True) as file:
        file.write(json.dumps({**document, _CHECKSUM: _checksum(document)}, allow_nan=False).encode())


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
