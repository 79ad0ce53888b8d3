"""Files that must survive: written whole beside their place, synced, and only then given their name."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_file(path: str | os.PathLike, *, private: bool = False) -> Iterator[BinaryIO]:
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
    """
    path = Path(path)
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


def write_text(path: str | os.PathLike, text: str, *, private: bool = False) -> None:
    """Write a text in UTF-8 as `new_file` writes."""
    with new_file(path, private=private) as file:
        file.write(text.encode())


def check_place(path: str | os.PathLike) -> None:
    """Raise a ValueError where `new_file` would: before the work whose result is to be there."""
    _mode_to_keep(Path(path))


def _mode_to_keep(path: Path) -> int | None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
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
