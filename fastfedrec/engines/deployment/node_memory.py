"""What a node of a deployment keeps on its own disk: a key of its own for each run, and the last answer it gave.

A node may be a new process for each message, so what a key has been used for is kept beside it.  The same noise on
other data, or on another state, would cancel: so a round is answered once, and asked again gets the same answer.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_path, make_private_folder
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import checking, is_kept
from fastfedrec.core.randomness import Key
from fastfedrec.rounds.checkpoint import Checkpoint
from fastfedrec.rounds.system import Update

__all__ = ["NodeMemory", "RefusalError", "RunMemory", "check_run_name"]

_OWN = "devices."  # begins the names of arrays that are not sent
_ANSWER, _FIELDS = "answer", ("round", "n_clients", "n_users")
_RUN = re.compile("[0-9a-f]{32}")
_WAY_OUT = (
    "this node can answer no more in this run: put back the file itself, never an older copy of it, or leave the "
    "folder as it is, since it counts as one of max_runs, and take part in the next run"
)


class RefusalError(ValueError):
    """A request that a node does not answer; the message goes back to the server, so it tells nothing of the data."""


class NodeMemory:
    """A folder that only its owner can read; `max_runs` is how many runs its users are ready to pay for, if any."""

    def __init__(self, folder: str | os.PathLike[str], max_runs: int | None):
        self._folder, self._max_runs = check_path("folder", folder), max_runs
        make_private_folder(self._folder)

    def alone(self) -> FolderLock:
        """One request at a time, of all processes: two at once could be answered with the same noise."""
        return FolderLock(self._folder, wait=True)

    def check_run(self, run: str) -> None:
        """Refuse a run beyond the last that was agreed to."""
        known = {path.name for path in self._folder.glob("run-*")}
        if self._max_runs is not None and f"run-{run}" not in known and len(known) >= self._max_runs:
            raise RefusalError(f"this node has taken part in {len(known)} runs, and max_runs is {self._max_runs}")

    def of_run(self, run: str, bound_to: Mapping[str, str]) -> "RunMemory":
        """What is kept of a run, whose name is part of the digests that it is bound to."""
        self.check_run(run)
        return RunMemory(self._folder / f"run-{run}", bound_to, _WAY_OUT)


class RunMemory(Checkpoint):
    """What a node keeps of one run: its key, its last answer, and what devices remember until the next round."""

    def key(self) -> Key:
        """The node's own key; a new one before the first answer, when nothing made with another can have left."""
        return self.resolve_key(None) if is_kept(self.folder / _ANSWER) else self.new_key(None)

    def answer(
        self, round_number: int, sender: str, n_users: int, objection: Callable[[Update], str | None]
    ) -> Update | None:
        """What was answered in this round; None in a new one; a round that is over is refused.

        So is another number of users than at the first answer, on which a node's rounds depend.  `objection` says what
        is wrong with an answer.
        """
        found = self._read(_ANSWER, _FIELDS)
        if found is None:
            return None
        header, arrays = found
        with checking(self.folder / _ANSWER, self._remedy):
            known = {name: check_integer(name, header[name], low=0) for name in _FIELDS}
            sent = {name: array for name, array in arrays.items() if not name.startswith(_OWN)}
            update = Update(known["round"], sender, known["n_clients"], sent)
            if known["round"] == round_number and (reason := objection(update)):
                raise ValueError(reason)
        if known["n_users"] != n_users:
            raise RefusalError(f"n_users must be {known['n_users']} as at this node's first answer, got {n_users}")
        if known["round"] > round_number:
            raise RefusalError(f"round {round_number} is over: this node has answered round {known['round']}")
        return update if known["round"] == round_number else None

    def devices(self, unpack: Callable[[Mapping[str, np.ndarray]], Any]) -> Any:
        """What was kept with the last answer, as `unpack` reads it; None before the first."""
        found = self._read(_ANSWER, _FIELDS)
        if found is None:
            return None
        with checking(self.folder / _ANSWER, self._remedy):
            return unpack({name.removeprefix(_OWN): own for name, own in found[1].items() if name.startswith(_OWN)})

    def keep_answer(self, update: Update, n_users: int, devices: Mapping[str, np.ndarray]) -> None:
        """Write an answer before it leaves, and what devices remember until the next round."""
        header = {"round": update.round, "n_clients": update.n_clients, "n_users": n_users}
        own = {f"{_OWN}{name}": array for name, array in devices.items()}
        self._write(_ANSWER, header, dict(update.arrays) | own)


def check_run_name(run: object) -> str:
    """A run's name as a server makes it; it becomes a folder's name here, so nothing else is let in."""
    if type(run) is not str or not _RUN.fullmatch(run):
        raise RefusalError("the run must be named by 32 hexadecimal digits")
    return run
