"""Persistent memory of a node: its key of each run, and its last message.

A node may be a new process for each request, so the uses of a key are stored with it.  The same noise on other data, or
on another state, would cancel, so a node computes one message for each round and repeats it on request.
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

# Prefix of the names of arrays that stay on the node.
_PRIVATE_PREFIX = "devices."
_ANSWER, _FIELDS = "answer", ("round", "n_clients", "n_users")
_RUN = re.compile("[0-9a-f]{32}")
_REMEDY = (
    "this node cannot continue this run: restore the file itself, never an older copy of it, or leave the folder as it "
    "is, since it counts as one of max_runs, and take part in the next run"
)


class RefusalError(ValueError):
    """A request that a node refuses; the message goes to the server, so it must not depend on data."""


class NodeMemory:
    """A folder that only its owner can read; `max_runs` is the maximum number of runs, None for no limit."""

    def __init__(self, folder: str | os.PathLike[str], max_runs: int | None):
        self._folder, self._max_runs = check_path("folder", folder), max_runs
        make_private_folder(self._folder)

    def lock(self) -> FolderLock:
        """Lock the folder against all processes: two simultaneous messages could have the same noise."""
        return FolderLock(self._folder, wait=True)

    def check_run(self, run: str) -> None:
        """Refuse a new run if the maximum number of runs is reached."""
        known = {path.name for path in self._folder.glob("run-*")}
        if self._max_runs is not None and f"run-{run}" not in known and len(known) >= self._max_runs:
            raise RefusalError(f"this node took part in {len(known)} runs, and max_runs is {self._max_runs}")

    def of_run(self, run: str, bound_to: Mapping[str, str]) -> "RunMemory":
        """Return the memory of a run; `bound_to` has digests that include the run's name."""
        self.check_run(run)
        return RunMemory(self._folder / f"run-{run}", bound_to, _REMEDY)


class RunMemory(Checkpoint):
    """Memory of one run: the node's key, its last message, and the devices' state for the next round."""

    def key(self) -> Key:
        """Return the node's key of the run."""
        # Before the first message no noise of an earlier key has left the node, so a new key is safe.
        return self.resolve_key(None) if is_kept(self.folder / _ANSWER) else self.new_key(None)

    def answer(
        self, round_number: int, sender: str, n_users: int, objection: Callable[[Update], str | None]
    ) -> Update | None:
        """Return the stored message of this round, or None in a new round; refuse earlier rounds or other `n_users`."""
        stored = self._read(_ANSWER, _FIELDS)
        if stored is None:
            return None
        header, arrays = stored
        with checking(self.folder / _ANSWER, self._remedy):
            known = {name: check_integer(name, header[name], low=0) for name in _FIELDS}
            sent = {name: array for name, array in arrays.items() if not name.startswith(_PRIVATE_PREFIX)}
            update = Update(known["round"], sender, known["n_clients"], sent)
            if known["round"] == round_number and (reason := objection(update)):
                raise ValueError(reason)
        # A node's rounds depend on the number of users, so it must not change within a run.
        if known["n_users"] != n_users:
            raise RefusalError(f"n_users must be {known['n_users']} as in this node's first message, got {n_users}")
        if known["round"] > round_number:
            raise RefusalError(f"round {round_number} is over: this node answered round {known['round']}")
        return update if known["round"] == round_number else None

    def devices(self, unpack: Callable[[Mapping[str, np.ndarray]], Any]) -> Any:
        """Return the devices' state after the last message, read by `unpack`; None before the first message."""
        stored = self._read(_ANSWER, _FIELDS)
        if stored is None:
            return None
        with checking(self.folder / _ANSWER, self._remedy):
            arrays = {name: array for name, array in stored[1].items() if name.startswith(_PRIVATE_PREFIX)}
            return unpack({name.removeprefix(_PRIVATE_PREFIX): array for name, array in arrays.items()})

    def keep_answer(self, update: Update, n_users: int, devices: Mapping[str, np.ndarray]) -> None:
        """Write a message before it is sent, and the devices' state for the next round."""
        header = {"round": update.round, "n_clients": update.n_clients, "n_users": n_users}
        private = {f"{_PRIVATE_PREFIX}{name}": array for name, array in devices.items()}
        self._write(_ANSWER, header, dict(update.arrays) | private)


def check_run_name(run: object) -> str:
    """Check the name of a run, which becomes a folder's name on the node."""
    # Any other text could name a path outside the node's folder.
    if type(run) is not str or not _RUN.fullmatch(run):
        raise RefusalError("the run must be named by 32 hexadecimal digits")
    return run
