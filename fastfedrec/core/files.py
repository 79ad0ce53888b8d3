"""Crash-safe files: each is written completely and synced under a temporary name before it replaces the old one."""

import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fastfedrec.core.numbers import show
from fastfedrec.core.text import did_you_mean

__all__ = [
    "check_destination",
    "check_file",
    "check_folder",
    "check_path",
    "make_private_folder",
    "new_file",
    "write_text",
]


def check_path(name: str, value: Any) -> Path:
    """Return a path from a string, bytes or path-like value, or raise an error that names the argument."""
    # `open` would take a number for the descriptor of an open file, so only values with a path are accepted.
    try:
        path = os.fsdecode(value)
    except TypeError:
        got = f"{show(value)} ({type(value).__name__})"
        raise TypeError(f"{name} must be a path, got {got}; pass a string or a pathlib.Path") from None
    if not path or "\0" in path:
        raise ValueError(f"{name} must be the path of a file or a folder, got {show(value)}")
    return Path(path)


def check_file(name: str, path: Path, kinds: str) -> None:
    """Raise a FileNotFoundError with a remedy unless a path is a file; `kinds` names the accepted ones."""
    if path.is_file():
        return
    given = str(path)
    if path.exists() and not path.is_dir():
        fault, remedy = "is not a regular file", f"pass {kinds}"
    elif path.is_dir():
        fault, remedy = "is a folder", f"pass {kinds} in it"
    elif re.match(r"[a-z0-9+]{2,10}:/", given):
        fault, remedy = "is an address", f"download it, and pass {kinds}"
    else:
        fault, remedy = (
            f"does not exist in {Path.cwd()}" if not path.is_absolute() else "does not exist",
            f"pass {kinds}",
        )
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        fault += did_you_mean(path.name, siblings)
    raise FileNotFoundError(f"{name} {given!r} {fault}; {remedy}")


def make_private_folder(folder: Path) -> None:
    """Make a folder if it is missing, and restrict its mode to the owner."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


@contextmanager
def new_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that replaces `path` when the block ends without an error."""
    # Until then the old file keeps its contents, and after an error the new file is removed.  With `private` only the
    # owner may read the new file; otherwise it has the mode of the old one, or the process's default.  A link, a
    # folder, a device or another special file is neither followed nor replaced.
    path = check_path("path", path)
    old_mode = _mode_to_keep(path)
    partial = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.partial")
    # O_EXCL fails for an existing file, so another user cannot have prepared a file or a link under this random name.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(partial, flags, 0o666 if old_mode is None and not private else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if old_mode is not None and not private:
                os.fchmod(descriptor, old_mode)
            os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    _sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write a text in UTF-8 by `new_file`."""
    with new_file(path, private=private) as file:
        file.write(text.encode())


def check_destination(path: str | os.PathLike[str], name: str = "path") -> None:
    """Raise before a computation where `new_file` would raise after it; `name` is the argument with the path."""
    path = check_path(name, path)
    _mode_to_keep(path, name)
    check_folder(f"the folder of {name}", path.parent)


def check_folder(name: str, folder: Path) -> None:
    """Raise a ValueError unless files can be written to a folder, which may be missing so far."""
    # `name` is the argument that set the folder.  The check runs before the computation of the results.
    nearest = folder.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    at = "" if nearest == folder.absolute() else f" is in {nearest}, which"
    if not nearest.is_dir():
        raise ValueError(f"{name} {folder}{at} must be a folder, and a file is there; pass another path")
    try:
        with tempfile.TemporaryFile(dir=nearest):  # a read-only file system, for example, does not change the mode
            pass
    except OSError as error:
        raise ValueError(f"{name} {folder}{at} cannot be written to ({error.strerror}); pass another path") from None


def _mode_to_keep(path: Path, name: str = "path") -> int | None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"{name} {str(path)!r} must be a file in an existing folder; make {str(path.parent)!r} first"
            ) from None
        return None
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise ValueError(f"{name} {str(path)!r} is {kind}, which is not replaced; pass the path of a file")
    return stat.S_IMODE(mode)


def _sync_folder(folder: Path) -> None:
    # The new name is on the disk only after a sync of the folder, which some file systems do not support.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
