"""A training run on disk: the last state, the message of the open round, and, apart from them, the key.

A round that was interrupted replays the recorded message instead of asking the clients again: the same noise on other
data would cancel it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec._persistence import read_model, write_model
from fastfedrec.randomness import Key
from fastfedrec.systems.base import Update


class Checkpoint:
    """A folder that only its owner can read; `settings` is everything, in plain JSON, that the run depends on."""

    def __init__(self, folder: str | os.PathLike, settings: Mapping[str, Any]):
        self._folder = Path(folder)
        self._settings = json.loads(json.dumps(settings))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)

    def resolve_key(self, key: Key | None) -> Key:
        """The key of the run that is here, or of a new run."""
        path = self._folder / "key.json"
        if not path.exists():
            key = Key.from_entropy() if key is None else key
            key.claim(f"the run in {str(self._folder)!r}")  # before it is written: from here on it is this run's alone
            document = {"seed": key._seed} if key.is_simulation else {"secret": key._secret.hex()}
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(document, file)
            key = None
        document = json.loads(path.read_text())
        seed = document.get("seed")
        if key is not None and (seed is None or key._seed != seed):
            raise ValueError(
                f"key must be None: the run in {str(self._folder)!r} has its own; pass checkpoint= another folder to "
                "start anew"
            )
        return Key.from_seed(seed) if seed is not None else Key(bytes.fromhex(document["secret"]))

    def restore(self) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Header and arrays of the last state, or None before the first."""
        path = self._folder / "state"
        if not path.exists():
            return None
        header, arrays = read_model(path)
        if header["settings"] != self._settings:
            raise ValueError(
                f"checkpoint {str(self._folder)!r} holds a run on other data or with other parameters; pass another "
                "folder, or what that run was started with"
            )
        return header, arrays

    def keep_state(self, header: Mapping[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write the state after a round."""
        write_model(self._folder / "state", {**header, "settings": self._settings}, arrays)

    def message(self, round_number: int, sender: str) -> Update | None:
        """The message that was recorded in this round, if there is one."""
        path = self._message_path(sender)
        if not path.exists():
            return None
        header, arrays = read_model(path)
        return Update(round_number, sender, header["n_clients"], arrays) if header["round"] == round_number else None

    def keep_message(self, update: Update) -> None:
        """Write a message before any noise is drawn for its round."""
        header = {"round": update.round, "n_clients": update.n_clients}
        write_model(self._message_path(update.sender), header, dict(update.arrays))

    def _message_path(self, sender: str) -> Path:
        return self._folder / f"message-{sender}"
