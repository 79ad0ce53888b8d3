"""Locks on folders with state for noise: two simultaneous runs would use the same noise for different data."""

import fcntl
import os
import weakref
from pathlib import Path
from typing import Any, Self

from fastfedrec.core.files import make_private_folder

__all__ = ["FolderInUseError", "FolderLock"]

_NAME = "lock"


class FolderInUseError(RuntimeError):
    """Another process or another run holds the lock of a folder."""


class FolderLock:
    """Lock on a private folder, which is made if it is missing; with `wait` the constructor blocks until it is free."""

    # The lock ends when it is closed, when its last reference is gone, or when the process ends in any way.

    def __init__(self, folder: str | os.PathLike[str], *, wait: bool = False):
        folder = Path(folder)
        make_private_folder(folder)
        descriptor = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._close = weakref.finalize(self, os.close, descriptor)
        _held.add(self)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The text is only for the error message of another process; the lock itself decides.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}".encode(), 0)
        except BlockingIOError:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "(number not known yet)"
            self.close()
            raise FolderInUseError(
                f"folder {str(folder)!r} is in use by process {owner}: two simultaneous runs would draw the same noise "
                "for different data; wait until that process ends, or pass another folder"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _release_in_child() -> None:
    # A forked child inherits the descriptors, and would hold the parent's locks after the parent's end.
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_release_in_child)
