"""One process at a time in a folder whose files stand for noise: two at once would draw the same for different data."""

import fcntl
import os
import weakref
from pathlib import Path
from typing import Any, Self

from fastfedrec.core.files import make_private_folder

__all__ = ["FolderLock"]

_NAME = "lock"


class FolderInUseError(RuntimeError):
    """Somebody else is at work in a folder."""


class FolderLock:
    """Keeps others out of a folder, which is made where it is not there, for its owner alone.

    Until it is closed, as a ``with`` statement does, or nobody has it any more, or the process ends, however it ends.

    Parameters
    ----------
    folder : path-like
        Whose files must not be used twice at once.
    wait : bool
        Wait until it is free, rather than raise.

    Raises
    ------
    FolderInUseError
        It is in use, by another process or by another run of this one.
    OSError
        It cannot be written to, or lies on a file system without locks.
    """

    def __init__(self, folder: str | os.PathLike[str], *, wait: bool = False):
        folder = Path(folder)
        make_private_folder(folder)
        descriptor = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._close = weakref.finalize(self, os.close, descriptor)
        _held.add(self)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # For whoever comes next and wonders; that the lock is held is known from the lock alone.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        except BlockingIOError:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "which has not said its number yet"
            self.close()
            raise FolderInUseError(
                f"folder {str(folder)!r} is in use by process {owner}: two runs at once would draw the same noise for "
                "different data; wait until it has ended, or end it, or take another folder"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others in."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _let_go() -> None:
    # A forked child has no part in its parent's runs, and would hold their locks beyond the parent's end.
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_let_go)
