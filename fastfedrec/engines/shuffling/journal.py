"""The journal of released rounds, without which a restarted shuffler could release a round twice."""

import os
from pathlib import Path

from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_path
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import checking, is_kept, read_document, write_document
from fastfedrec.engines.deployment.node_memory import check_run_name

__all__ = ["ReleaseJournal"]

_REMEDY = (
    "without it a round could be released twice: restore the file itself, never an older copy of it, or start with a "
    "new folder, for later runs only"
)


class ReleaseJournal:
    """The last released round of each run, in a folder that only its owner can read and one shuffler can lock."""

    def __init__(self, folder: str | os.PathLike[str]):
        folder = check_path("folder", folder)
        self._path = folder / "released.json"
        # Without the lock, two shufflers could each release the same round.
        self._folder_lock = FolderLock(folder)
        try:
            self._released = _read_released(self._path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the folder."""
        self._folder_lock.close()

    def last_round(self, run: str) -> int:
        """Return the number of a run's last released round, -1 before the first one."""
        return self._released.get(run, -1)

    def record(self, run: str, round_number: int) -> None:
        """Write the number of a round, before its batch leaves."""
        write_document(self._path, {**self._released, run: round_number})
        self._released[run] = round_number


def _read_released(path: Path) -> dict[str, int]:
    """Return the last released round of each run; an error names the damaged record."""
    if not is_kept(path):
        return {}
    released = {}
    with checking(path, _REMEDY):
        for number, (run, last_round) in enumerate(read_document(path).items(), start=1):
            try:
                released[check_run_name(run)] = check_integer("round", last_round, low=0)
            except (TypeError, ValueError) as error:
                raise ValueError(f"record {number}, {run[:40]!r}: {error}") from None
    return released
