"""A training run on disk: the last state, the message of the open round, and, apart from them, the key.

A round that was interrupted replays the recorded message instead of asking the clients again: the same noise on other
data would cancel it.  For the same reason a key is kept beside digests of everything that its noise is for, and every
other file names them too: none is used for another run, whichever of them are lost, copied or put back.  The arithmetic
is among them: other instruction sets or versions round sums in another way, and the noise of a copy would cancel.
"""

import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.arithmetic import describe_arithmetic
from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_path, make_private_folder
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import DamagedFileError, checking, is_kept, read_document, write_document
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.core.randomness import Key
from fastfedrec.rounds.system import Update

__all__ = ["Checkpoint", "OtherRunError", "read_traffic"]

_KEY_FORMAT = "fastfedrec key 3"
_KEY_FIELDS = ("format", "seed", "secret", "run", "bound_to")
_RUN = re.compile("[0-9a-f]{32}")
_KEY_NAME = "key"  # among what a file is bound to: the random name of the run whose key was used
_OTHER_RUN = "pass another folder, or what that run was started with"
_WAY_OUT = "put the folder back as it was when the run stopped, or pass another one, which starts a new run"


class OtherRunError(ValueError):
    """What is kept is of a run on other data, with other parameters, or of other arithmetic."""


class Checkpoint:
    """A folder that only its owner can read.

    Parameters
    ----------
    folder : path-like
        Made, where it is not there, when something is written.
    bound_to : mapping of str to str
        Digests (`fastfedrec.data.digest`) of everything that the run depends on, beside the key.
    way_out : str
        What to do where a file is damaged.

    Attributes
    ----------
    run : str or None
        Random name of the run whose key was resolved: a folder may be moved, copied, or used for another run.
    """

    def __init__(self, folder: str | os.PathLike[str], bound_to: Mapping[str, str], way_out: str = _WAY_OUT):
        self.folder, self._way_out = check_path("checkpoint", folder), way_out
        arithmetic = describe_arithmetic()
        if taken := sorted(bound_to.keys() & {*arithmetic, _KEY_NAME}):  # one would hide the other
            raise ValueError(f"`bound_to` must not use names of the arithmetic or the key, got {taken}; rename them")
        self._digests, self._bound_to = dict(bound_to), dict(bound_to) | arithmetic
        self.run: str | None = None

    def within(self, name: str) -> Self:
        """A part of the same run in a folder of its own."""
        part = type(self)(self.folder / name, self._digests, self._way_out)
        part.run = self.run
        return part

    def alone(self, *, wait: bool = False) -> FolderLock:
        """Keep every other process out of the folder for the time of a ``with`` statement."""
        return FolderLock(self.folder, wait=wait)

    # ---- the key ------------------------------------------------------------------------------------------------

    def resolve_key(self, key: Key | None) -> Key:
        """The key of the run that is here, or, where nothing is, of a new one."""
        path = self.folder / "key.json"
        if not is_kept(path):
            return self.new_key(key)
        seed, secret, run = self._read_key(path)
        if key is not None and (seed is None or key._seed != seed):
            raise ValueError(
                f"key must be None: the run in {str(self.folder)!r} has its own; pass checkpoint= another folder to "
                "start anew"
            )
        self.run = run
        return Key(secret) if seed is None else Key.from_seed(seed)

    def new_key(self, key: Key | None) -> Key:
        """The key of a new run, whatever key was here; refused where a run has left more than that."""
        make_private_folder(self.folder)
        if left := sorted(path.name for path in self.folder.iterdir() if _belongs_to_run(path.name)):
            gone = "state" if is_kept(self.folder / "key.json") else "key (key.json)"
            raise DamagedFileError(self.folder / left[0], f"it is of a run whose {gone} is gone", self._way_out)
        key = Key.from_entropy() if key is None else key
        key.claim(f"the run in {str(self.folder)!r}")  # before it is written: from here on it is this run's alone
        secret = None if key.is_simulation else key._secret.hex()
        document = (_KEY_FORMAT, key._seed, secret, secrets.token_hex(16), self._bound_to)
        write_document(self.folder / "key.json", dict(zip(_KEY_FIELDS, document, strict=True)))
        return self.resolve_key(None)

    def _read_key(self, path: Path) -> tuple[int | None, bytes, str]:
        with checking(path, self._way_out):
            document = read_document(path, _KEY_FIELDS)
            if document["format"] != _KEY_FORMAT:
                raise ValueError(f"its format is {document['format']!r}, and this version reads {_KEY_FORMAT!r}")
            seed, secret, run = document["seed"], document["secret"], document["run"]
            if type(run) is not str or not _RUN.fullmatch(run):
                raise ValueError("its run must be 32 hexadecimal digits")
            if (seed is None) == (secret is None):
                raise ValueError("it must have a seed or a secret")
            if seed is not None:
                check_integer("seed", seed, low=0)
            elif type(secret) is not str or len(secret) != 64:
                raise ValueError("its secret must be 64 hexadecimal digits")
            found = seed, bytes.fromhex(secret or ""), run
        self._check_bound(path, document["bound_to"], self._bound_to)
        return found

    # ---- states and messages ------------------------------------------------------------------------------------

    def restore(self, fields: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Header, of these fields, and arrays of the last state, or None before the first."""
        return self._read("state", fields)

    def keep_state(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the state after a round."""
        self._write("state", header, arrays)

    def checking_state(self) -> Any:
        """Name the state's file in whatever is found wrong with what `restore` returned."""
        return checking(self.folder / "state", self._way_out)

    def message(self, round_number: int, sender: str, objection: Callable[[Update], str | None]) -> Update | None:
        """The message that was recorded in this round, if there is one; `objection` says what is wrong with it."""
        name = _message_name(sender)
        found = self._read(name, ("round", "n_clients"))
        if found is None:
            return None
        header, arrays = found
        with checking(self.folder / name, self._way_out):
            kept_round = check_integer("round", header["round"], low=0, high=2**32 - 1)
            update = Update(kept_round, sender, check_integer("n_clients", header["n_clients"], low=0), arrays)
            if kept_round != round_number:
                return None
            if reason := objection(update):
                raise ValueError(reason)
        return update

    def keep_message(self, update: Update) -> None:
        """Write a message before any noise is drawn for its round."""
        header = {"round": update.round, "n_clients": update.n_clients}
        self._write(_message_name(update.sender), header, update.arrays)

    def _read(self, name: str, fields: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        path = self.folder / name
        if not is_kept(path):
            return None
        with checking(path, self._way_out):
            header, arrays = read_model(path)
            if set(header) != (wanted := {*fields, "bound_to"}):
                raise ValueError(f"its header must have the fields {sorted(wanted)}, got {sorted(header)}")
        bound_to = header.pop("bound_to")
        if self.run is None and isinstance(bound_to, dict):  # a node reads its answer before it needs its key
            bound_to.pop(_KEY_NAME, None)
        self._check_bound(path, bound_to, self._bindings())
        return header, arrays

    def _write(self, name: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        path = self.folder / name
        self._check_bound(path, self._bound_to | describe_arithmetic(), self._bound_to)  # a callback may change it
        make_private_folder(self.folder)
        write_model(path, {**header, "bound_to": self._bindings()}, dict(arrays), private=True)

    def _bindings(self) -> dict[str, str]:
        """Return what a file names that was written after the key was resolved."""
        return self._bound_to | ({} if self.run is None else {_KEY_NAME: self.run})

    def _check_bound(self, path: Path, bound_to: Any, expected: Mapping[str, str]) -> None:
        with checking(path, self._way_out):
            if type(bound_to) is not dict or any(type(digest) is not str for digest in bound_to.values()):
                raise ValueError("bound_to must hold digests")
        names = [*expected, *(name for name in bound_to if name not in expected)]
        others = [str(name) for name in names if bound_to.get(name) != expected.get(name)]
        if not others:
            return
        if describe_arithmetic().keys() >= set(others):
            changes = ", ".join(f"{name} {bound_to.get(name)!r} and not {expected[name]!r}" for name in others)
            raise OtherRunError(
                f"checkpoint {str(self.folder)!r} holds a run of other arithmetic ({path.name}: {changes}); its noise "
                "would be added to other sums, so resume it with the versions and on a processor as at its start, or "
                "pass another folder, which starts a new run"
            )
        raise OtherRunError(
            f"checkpoint {str(self.folder)!r} holds a run on other data or with other parameters ({path.name} was "
            f"made with other {', '.join(others)}); {_OTHER_RUN}"
        )


def read_traffic(numbers: Any) -> RoundTraffic:
    """A round's bytes as they were kept; a ValueError where they cannot be."""
    download, upload, n_clients = numbers
    return RoundTraffic(*(check_integer("traffic", number, low=0) for number in (download, upload, n_clients)))


def _message_name(sender: str) -> str:
    return f"message-{sender}"


def _belongs_to_run(name: str) -> bool:
    return name in ("state", "stage1", "answer") or name.startswith(("message-", "round-"))
