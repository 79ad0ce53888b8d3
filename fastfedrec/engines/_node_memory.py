"""What a node of a deployment keeps on its own disk: a key of its own for each run, and the last answer it gave.

A node may be a new process for each message, so what a key has been used for is kept beside it.  The same noise on
other data, or on another state, would cancel: so a round is answered once, and asked again gets the same answer.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fastfedrec._persistence import read_model, write_model
from fastfedrec.randomness import Key
from fastfedrec.systems._checkpoint import Checkpoint
from fastfedrec.systems.base import Update

_OWN = "devices."  # begins the names of arrays that are not sent
_RUN = re.compile("[0-9a-f]{32}")


class RefusalError(ValueError):
    """A request that a node does not answer; the message goes back to the server, so it tells nothing of the data."""


class NodeMemory:
    """A folder that only its owner can read; `max_runs` is how many runs its users are ready to pay for, if any."""

    def __init__(self, folder: str | os.PathLike, max_runs: int | None):
        self._folder, self._max_runs = Path(folder), max_runs
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One request at a time, of all processes: two at once could be answered with the same noise."""
        with os.fdopen(os.open(self._folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def check_run(self, run: str) -> None:
        """Refuse a run beyond the last that was agreed to."""
        known = {path.name for path in self._folder.glob("run-*")}
        if self._max_runs is not None and f"run-{run}" not in known and len(known) >= self._max_runs:
            raise RefusalError(f"this node has taken part in {len(known)} runs, and max_runs is {self._max_runs}")

    def key(self, run: str) -> Key:
        """The node's own key of a run, drawn here when the run is new."""
        self.check_run(run)
        return Checkpoint(self._run_folder(run), {}).resolve_key(None)

    def answer(self, run: str, round_number: int, sender: str, n_users: int) -> Update | None:
        """What was answered in this round; None in a new one; a round that is over is refused.

        So is another number of users than at the first answer, on which a node's rounds depend.
        """
        path = self._run_folder(run) / "answer"
        if not path.exists():
            return None
        header, arrays = read_model(path)
        if header["n_users"] != n_users:
            raise RefusalError(f"n_users must be {header['n_users']} as at this node's first answer, got {n_users}")
        if header["round"] > round_number:
            raise RefusalError(f"round {round_number} is over: this node has answered round {header['round']}")
        sent = {name: array for name, array in arrays.items() if not name.startswith(_OWN)}
        return Update(round_number, sender, header["n_clients"], sent) if header["round"] == round_number else None

    def devices(self, run: str) -> dict[str, np.ndarray]:
        """What was kept with the last answer; nothing before the first."""
        path = self._run_folder(run) / "answer"
        arrays = read_model(path)[1] if path.exists() else {}
        return {name.removeprefix(_OWN): array for name, array in arrays.items() if name.startswith(_OWN)}

    def keep_answer(self, run: str, update: Update, n_users: int, devices: Mapping[str, np.ndarray]) -> None:
        """Write an answer before it leaves, and what devices remember until the next round."""
        header = {"round": update.round, "n_clients": update.n_clients, "n_users": n_users}
        folder = self._run_folder(run)
        folder.mkdir(mode=0o700, exist_ok=True)
        own = {f"{_OWN}{name}": array for name, array in devices.items()}
        write_model(folder / "answer", header, dict(update.arrays) | own)
        for path in (folder / "answer", folder, self._folder):  # a power cut must not undo what the server has seen
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    def _run_folder(self, run: str) -> Path:
        return self._folder / f"run-{run}"


def check_run_name(run: object) -> str:
    """A run's name as a server makes it; it becomes a folder's name here, so nothing else is let in."""
    if type(run) is not str or not _RUN.fullmatch(run):
        raise RefusalError("the run must be named by 32 hexadecimal digits")
    return run
