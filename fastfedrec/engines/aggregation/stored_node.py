"""A node of secure sums with its state in a folder, so that each message may reach another process."""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fastfedrec.core.check import check_choice
from fastfedrec.core.files import check_path, make_private_folder
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import checking, is_kept, read_document, write_document
from fastfedrec.data.digest import digests
from fastfedrec.engines.aggregation._messages import sign_answer
from fastfedrec.engines.aggregation._sealing import Identity
from fastfedrec.engines.aggregation.agreement import SumAgreement
from fastfedrec.engines.aggregation.node import AggregationNode
from fastfedrec.engines.aggregation.plan import STAGES, AggregationError
from fastfedrec.rounds.checkpoint import Checkpoint

__all__ = ["StoredNode", "node_name"]

_IDENTITY, _REMEDY = "identity.json", "this node cannot continue its sums: restore the file itself, never an older copy"


def node_name(folder: str | os.PathLike[str]) -> str:
    """Return the name of a node, and make its signing key on the first call.

    Parameters
    ----------
    folder : path-like
        Private folder of the node.

    Returns
    -------
    str
        Public key of the node, 64 hexadecimal digits, for the `roster` of `SecureSums`.

    Examples
    --------
    >>> from fastfedrec.engines.aggregation import node_name
    >>> node_name("/var/lib/fastfedrec")  # doctest: +SKIP
    """
    path = check_path("folder", folder)
    make_private_folder(path)
    with FolderLock(path, wait=True):
        if not is_kept(path / _IDENTITY):
            write_document(path / _IDENTITY, {"secret": secrets.token_hex(32)})
        return _identity(path).name.hex()


class StoredNode:
    """A node of secure sums that keeps its keys, and its answers of each sum, in a folder that only it can read.

    A restarted node repeats its stored answers, so it uses no share and no mask twice.  A message that it refuses, or
    cannot answer, ends its part in the sum, for all later processes too.

    Parameters
    ----------
    sums : SumAgreement
        Agreement with the server and the other nodes, such as a `SecureSums`.
    folder : path-like
        Private folder of the node, with the key that `node_name` makes.  Keep it out of backups.
    """

    def __init__(self, sums: SumAgreement, folder: str | os.PathLike[str]):
        self._sums = sums
        self._folder = check_path("folder", folder)
        if not is_kept(self._folder / _IDENTITY):
            raise ValueError(f"folder {str(self._folder)!r} has no signing key of a node; call node_name(folder) first")

    def answer(self, round: int, stage: str, message: bytes, contribute: Callable[[], ArrayLike]) -> bytes:
        """Return the signed answer to a message of the server.

        Parameters
        ----------
        round : int
            Number of the sum.
        stage : {"keys", "share", "mask", "confirm", "reveal"}
            Stage of the sum.
        message : bytes
            Message of the server.
        contribute : callable
            Function without arguments that returns the node's vector of `n_values` whole numbers.  It is called once
            for each sum, before the vector is masked.

        Returns
        -------
        bytes
            The node's name, its signature, and its answer.

        Raises
        ------
        AggregationError
            The protocol does not allow the message.
        ValueError
            A number of the vector is above `max_value`, or the sum is not one of the agreement.
        """
        plan = self._sums.plan(round)
        check_choice("stage", stage, STAGES)
        # Two processes must not answer different messages of one stage.
        with FolderLock(self._folder, wait=True):
            identity = _identity(self._folder)
            if identity.name.hex() not in self._sums.roster:
                raise AggregationError(f"this node, {identity.name.hex()}, is not in the roster of the agreement")
            memory = _Memory(self._folder / self._sums.folder, digests({"sums": self._sums.digest}), _REMEDY)
            if objection := self._sums.objection(memory.rounds() | {round}):
                raise AggregationError(objection)
            key, stored = memory.resolve_key(None), memory.answers(round)
            if stored is None:
                raise AggregationError("this node refused a message of this sum, and left it: start another sum")
            node = AggregationNode(plan, identity, [bytes.fromhex(name) for name in self._sums.roster], key)
            node.restore(stored)
            try:
                name, with_share = identity.name.hex(), self._sums.with_share
                # Once masked, the stored vector is repeated.
                answer = node.answer(stage, message, lambda: with_share(contribute(), key=key, node=name, round=round))
            except Exception:
                # A server must not try several messages, or several requests, until one is answered.
                memory.keep(round, stored, has_failed=True)
                raise
            if stored.get(stage) != (message, answer):
                # The answer is stored before it leaves the node.
                memory.keep(round, stored | {stage: (message, answer)}, has_failed=False)
            return sign_answer(plan, identity, stage, answer)


class _Memory(Checkpoint):
    """The node's key of a run, and its messages and answers of each sum."""

    def rounds(self) -> set[int]:
        """Return the numbers of all sums with an answer of the node."""
        return {int(path.name.removeprefix("round-")) for path in self.folder.glob("round-*")}

    def answers(self, round: int) -> dict[str, tuple[bytes, bytes]] | None:
        """Return the message and the answer of each stage of a sum; None if the node left it."""
        contents = self._read(f"round-{round}", ("has_failed",))
        if contents is None:
            return {}
        header, arrays = contents
        with checking(self.folder / f"round-{round}", self._remedy):
            stages = [stage for stage in STAGES if f"{stage}.message" in arrays]
            answers = {
                stage: (arrays[f"{stage}.message"].tobytes(), arrays[f"{stage}.answer"].tobytes()) for stage in stages
            }
        return None if header["has_failed"] else answers

    def keep(self, round: int, answers: Mapping[str, tuple[bytes, bytes]], *, has_failed: bool) -> None:
        """Write the messages and answers of a sum."""
        arrays = {
            f"{stage}.{part}": np.frombuffer(content, dtype=np.uint8)
            for stage, pair in answers.items()
            for part, content in zip(("message", "answer"), pair, strict=True)
        }
        self._write(f"round-{round}", {"has_failed": has_failed}, arrays)


def _identity(folder: Path) -> Identity:
    with checking(folder / _IDENTITY, _REMEDY):
        return Identity(bytes.fromhex(read_document(folder / _IDENTITY, ("secret",))["secret"]))
