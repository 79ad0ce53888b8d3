"""Files that must survive: written whole beside their place, synced, and only then given their name."""

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fastfedrec.core.numbers import show

__all__ = ["check_destination", "check_folder", "check_path", "make_private_folder", "new_file", "write_text"]


def check_path(name: str, value: Any) -> Path:
    """The path of a file or a folder, or raise: a number would be taken for an open file.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        A string, bytes, or whatever has a path.

    Returns
    -------
    Path
        The same path.

    Raises
    ------
    TypeError
        No path.
    ValueError
        None that a file can have.
    """
    try:
        path = os.fsdecode(value)
    except TypeError:
        got = f"{show(value)} ({type(value).__name__})"
        raise TypeError(f"{name} must be a path, got {got}; pass a string or a pathlib.Path") from None
    if not path or "\0" in path:
        raise ValueError(f"{name} must be the path of a file or a folder, got {show(value)}")
    return Path(path)


def make_private_folder(folder: Path) -> None:
    """Make a folder where it is not there; its owner alone may enter it, whatever its mode was.

    Parameters
    ----------
    folder : Path
        The folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


@contextmanager
def new_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends well, and is gone when it does not.

    Parameters
    ----------
    path : path-like
        Where it is to be.  What is there keeps its contents until the new file is whole and on the disk.
    private : bool
        Only its owner may read it, whatever the mode of the file that it replaces.  Otherwise the mode of that file is
        kept, and a file that replaces none has the mode that the process gives to new files.

    Yields
    ------
    file
        Open for writing bytes, in the folder of `path`, under a name that nobody could have guessed.

    Raises
    ------
    ValueError
        `path` is a link, a folder, a device or anything else that is no ordinary file: it is neither followed nor
        replaced.
    FileNotFoundError
        The folder of `path` is not there.
    """
    path = check_path("path", path)
    kept = _mode_to_keep(path)
    partial = path.with_name(f".{path.name[:64]}.{secrets.token_hex(8)}.partial")
    # Exclusive and not following links: nobody can have put anything there before.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(partial, flags, 0o666 if kept is None and not private else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if kept is not None and not private:
                os.fchmod(descriptor, kept)
            os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    _sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write a text in UTF-8 as `new_file` writes."""
    with new_file(path, private=private) as file:
        file.write(text.encode())


def check_destination(path: str | os.PathLike[str]) -> None:
    """Raise where `new_file` would: before the work whose result is to be there."""
    path = check_path("path", path)
    _mode_to_keep(path)
    check_folder(f"path {os.fsdecode(path)!r} is to be in", path.parent)


def check_folder(name: str, folder: Path) -> None:
    """Raise where no files could be written to a folder, which need not be there yet: before the work, not after it.

    Parameters
    ----------
    name : str
        What gave it, for the message.
    folder : Path
        The folder.

    Raises
    ------
    ValueError
        It, or the nearest folder above it that there is, is a file or cannot be written to.
    """
    nearest = folder.absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    at = "" if nearest == folder.absolute() else f" is in {nearest}, which"
    if not nearest.is_dir():
        raise ValueError(f"{name} {folder}{at} must be a folder, and a file is there; name another place")
    try:
        with tempfile.TemporaryFile(dir=nearest):  # what its mode says is not all that decides
            pass
    except OSError as error:
        raise ValueError(f"{name} {folder}{at} cannot be written to ({error.strerror}); name another place") from None


def _mode_to_keep(path: Path) -> int | None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"path {str(path)!r} is in a folder that does not exist; make it first") from None
        return None
    if not stat.S_ISREG(mode):
        what = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no ordinary file"
        raise ValueError(f"path {str(path)!r} is {what}, which is not replaced; pass the path of a file")
    return stat.S_IMODE(mode)


def _sync_folder(folder: Path) -> None:
    # The new name is on the disk only with the folder; some file systems cannot do it, and then it is as it was.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
