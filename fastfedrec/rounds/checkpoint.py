"""Checkpoints of a training run: states, messages of rounds and, in its own file, the key.

An interrupted round replays its recorded messages, because new messages with the same noise would reveal data: the
difference between two messages has no noise.  For the same reason every file has digests of all inputs of the run, so
that no file can serve another run.  The digests include the arithmetic: other instruction sets or versions round sums
in another way, and the difference between two roundings would be free of noise too.
"""

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.arithmetic import describe_arithmetic
from fastfedrec.core.check import check_integer
from fastfedrec.core.files import check_path, make_private_folder
from fastfedrec.core.kept_files import DamagedFileError, checking, is_kept, read_document, write_document
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.core.randomness import Key

__all__ = ["Checkpoint", "OtherRunError", "read_traffic"]

_KEY_FORMAT = "fastfedrec key 3"
_KEY_FIELDS = ("format", "seed", "secret", "run", "bound_to")
_RUN = re.compile("[0-9a-f]{32}")
_KEY_NAME = "key"  # the entry of `bound_to` with the random name of the run
_LEDGER = "ledger.json"
_OTHER_RUN = "pass another folder, or the data and parameters of that run"
_REMEDY = "put the folder back as it was when the run stopped, or pass another one, which starts a new run"


class OtherRunError(ValueError):
    """The checkpoint belongs to a run on other data, with other parameters, or with other arithmetic."""


class Checkpoint:
    """Private folder of one run; `bound_to` has the digests (`fastfedrec.data.digest`) of all inputs but the key."""

    def __init__(self, folder: str | os.PathLike[str], bound_to: Mapping[str, str], remedy: str = _REMEDY):
        self.folder, self._remedy = check_path("checkpoint", folder), remedy
        arithmetic = describe_arithmetic()
        if reserved := sorted(bound_to.keys() & {*arithmetic, _KEY_NAME}):  # a digest would replace another one
            raise ValueError(f"`bound_to` must not use names of the arithmetic or the key, got {reserved}; rename them")
        self._digests, self._bound_to = dict(bound_to), dict(bound_to) | arithmetic
        # The random name of the run distinguishes two runs in one folder, or in copies of it.
        self.run: str | None = None

    # ---- the key ------------------------------------------------------------------------------------------------

    def resolve_key(self, key: Key | None) -> Key:
        """Return the key of the folder's run, or of a new run in an empty folder."""
        path = self.folder / "key.json"
        if not is_kept(path):
            return self.new_key(key)
        # The caller may repeat the seed of a simulation; an entropy key is never passed a second time.
        seed, secret, run = self._read_key(path)
        if key is not None and (seed is None or key._seed != seed):
            raise ValueError(
                f"key must be None: the run in {str(self.folder)!r} has its own; pass checkpoint= another folder to "
                "start anew"
            )
        self.run = run
        return Key(secret) if seed is None else Key.from_seed(seed)

    def new_key(self, key: Key | None) -> Key:
        """Write and return the key of a new run, or raise for a folder that has other files of a run."""
        make_private_folder(self.folder)
        if run_files := sorted(path.name for path in self.folder.iterdir() if _belongs_to_run(path.name)):
            missing = "state" if is_kept(self.folder / "key.json") else "key (key.json)"
            raise DamagedFileError(self.folder / run_files[0], f"the {missing} of its run is missing", self._remedy)
        key = Key.from_entropy() if key is None else key
        # The claim precedes the file: if writing fails, no other run may use the key.
        key.claim(f"the run in {str(self.folder)!r}")
        secret = None if key.is_simulation else key._secret.hex()
        document = (_KEY_FORMAT, key._seed, secret, secrets.token_hex(16), self._bound_to)
        write_document(self.folder / "key.json", dict(zip(_KEY_FIELDS, document, strict=True)))
        return self.resolve_key(None)  # reads the file back, so that a run never starts with an unreadable key

    def _read_key(self, path: Path) -> tuple[int | None, bytes, str]:
        with checking(path, self._remedy):
            document = read_document(path, _KEY_FIELDS)
            if document["format"] != _KEY_FORMAT:
                raise ValueError(f"its format is {document['format']!r}, and this version reads {_KEY_FORMAT!r}")
            seed, secret, run = document["seed"], document["secret"], document["run"]
            if type(run) is not str or not _RUN.fullmatch(run):
                raise ValueError("its run must be 32 hexadecimal digits")
            # Exactly one of them is set: a simulation has a seed, a private run has a secret of 256 bits.
            if (seed is None) == (secret is None):
                raise ValueError("it must have a seed or a secret")
            if seed is not None:
                check_integer("seed", seed, low=0)
            elif type(secret) is not str or len(secret) != 64:
                raise ValueError("its secret must be 64 hexadecimal digits")
            checked = seed, bytes.fromhex(secret or ""), run
        self._check_bound(path, document["bound_to"], self._bound_to)
        return checked

    # ---- states -------------------------------------------------------------------------------------------------

    def restore(self, fields: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Read the last state's header, with exactly these fields, and its arrays; None before the first state."""
        return self._read("state", fields)

    def keep_state(self, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the state after a round."""
        self._write("state", header, arrays)

    def checking_state(self) -> Any:
        """Return a context that names the state's file in errors about values from `restore`."""
        return checking(self.folder / "state", self._remedy)

    def _read(self, name: str, fields: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        path = self.folder / name
        if not is_kept(path):
            return None
        with checking(path, self._remedy):
            header, arrays = read_model(path)
            if set(header) != (required := {*fields, "bound_to"}):
                raise ValueError(f"its header must have the fields {sorted(required)}, got {sorted(header)}")
        bound_to = header.pop("bound_to")
        # A node reads its recorded message before it resolves its key, so the run has no name to compare.
        if self.run is None and isinstance(bound_to, dict):
            bound_to.pop(_KEY_NAME, None)
        self._check_bound(path, bound_to, self._bindings())
        return header, arrays

    def _write(self, name: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        path = self.folder / name
        # A callback between rounds may have changed the arithmetic, for example the instruction set.
        self._check_bound(path, self._bound_to | describe_arithmetic(), self._bound_to)
        make_private_folder(self.folder)
        write_model(path, {**header, "bound_to": self._bindings()}, dict(arrays), private=True)

    def _bindings(self) -> dict[str, str]:
        """Return the digests that a file must have, with the run's name once the key is resolved."""
        return self._bound_to | ({} if self.run is None else {_KEY_NAME: self.run})

    def _check_bound(self, path: Path, bound_to: Any, expected: Mapping[str, str]) -> None:
        with checking(path, self._remedy):
            if type(bound_to) is not dict or any(type(digest) is not str for digest in bound_to.values()):
                raise ValueError("bound_to must be an object of digests")
        names = [*expected, *(name for name in bound_to if name not in expected)]
        differing = [str(name) for name in names if bound_to.get(name) != expected.get(name)]
        if not differing:
            return
        if describe_arithmetic().keys() >= set(differing):
            changes = ", ".join(f"{name} {bound_to.get(name)!r} and not {expected[name]!r}" for name in differing)
            raise OtherRunError(
                f"checkpoint {str(self.folder)!r} holds a run of other arithmetic ({path.name}: {changes}), so its "
                "noise would be added to other sums; resume it with the same versions on the same kind of processor, "
                "or pass another folder, which starts a new run"
            )
        raise OtherRunError(
            f"checkpoint {str(self.folder)!r} holds a run on other data or with other parameters ({path.name} was "
            f"made with other {', '.join(differing)}); {self._other_run()}"
        )

    def _other_run(self) -> str:
        """Return the remedy for a folder of another run."""
        names = {path.name for path in self.folder.iterdir()}
        if not any(map(_belongs_to_run, names)):
            return "no round of it has begun, so remove the folder, or pass another one"
        cost = ". Its cost so far, in its ledger.json, counts for its users also without a model" * (_LEDGER in names)
        return _OTHER_RUN + cost


def read_traffic(numbers: Any) -> RoundTraffic:
    """Return a round's traffic from recorded numbers, or raise a ValueError for impossible ones."""
    download, upload, n_clients = numbers
    return RoundTraffic(*(check_integer("traffic", number, low=0) for number in (download, upload, n_clients)))


def _belongs_to_run(name: str) -> bool:
    # "answer" is the message of a node.
    return name in ("state", "answer", _LEDGER) or name.startswith(("round-", "devices-"))
