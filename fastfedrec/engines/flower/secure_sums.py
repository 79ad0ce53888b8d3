"""Secure sums over Flower: nodes add noise in shares and mask their vectors, and the server learns the noisy sum."""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.core.check import check_instance, check_real
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import checking
from fastfedrec.data.digest import digests
from fastfedrec.engines.aggregation.agreement import SumAgreement
from fastfedrec.engines.aggregation.plan import AggregationError, AggregationPlan
from fastfedrec.engines.aggregation.server import AggregationServer
from fastfedrec.engines.aggregation.sums import SecureSums
from fastfedrec.engines.flower._node import answering
from fastfedrec.engines.flower._sum_messages import RECORD, answer_sum
from fastfedrec.engines.flower.server import MAX_REPEATS
from fastfedrec.engines.flower.wire.records import config_record, read_values
from fastfedrec.rounds.checkpoint import Checkpoint

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

__all__ = ["NoisySum", "run_sum", "secure_client_app", "secure_sum"]

# Seconds between two checks for messages, doubled from the first to the second.
_MIN_PAUSE, _MAX_PAUSE = 0.02, 1.0
_REMEDY = "put the folder back as it was when the server stopped, or start a sum with another number"


@dataclass(frozen=True)
class NoisySum:
    """A sum with the noise of the nodes' shares.

    Parameters
    ----------
    total : ndarray of shape (n_values,), int64
        Sum of the vectors and shares of noise of all nodes that answered.
    n_answers : int
        Number of these nodes.
    refusals : dict of str to str
        Reasons of the nodes with a refused or missing answer, by name; a node without a known name by Flower's number.
    """

    total: NDArray[np.int64]
    n_answers: int
    refusals: Mapping[str, str]


def secure_client_app(sums: SecureSums, contribute: Callable[["Message", "Context"], ArrayLike]) -> "ClientApp":
    """Make the app of a node of secure sums, which takes part in the sums of one agreement and refuses all others.

    `SecureSums` states the guarantee.

    Parameters
    ----------
    sums : SecureSums
        Agreement; it is this node's commitment to its users.
    contribute : callable
        Function of the server's message and Flower's context that returns the node's vector of whole numbers.  The
        noise is added to it after that.  It must keep the agreement's bounds for any content of the message.

    Returns
    -------
    flwr.clientapp.ClientApp
        App with a handler of "train" messages.

    Raises
    ------
    ImportError
        Flower is not installed.

    Notes
    -----
    The key ``folder`` of the node's configuration is its private folder, in which `node_name` made its signing key.
    """
    try:
        from flwr.clientapp import ClientApp
    except ImportError as error:
        raise ImportError("secure_client_app needs Flower; install it: pip install 'fastfedrec[flower]'") from error
    check_instance("sums", sums, SecureSums, "make a SecureSums")

    def train(message: "Message", context: "Context") -> "RecordDict":
        return answer_sum(sums, message, context, lambda _: contribute(message, context))

    app = ClientApp()
    app.train()(answering(train))
    return app


def secure_sum(
    grid: "Grid",
    sums: SecureSums,
    round: int = 0,
    *,
    ledger: Ledger,
    content: "RecordDict | None" = None,
    folder: str | os.PathLike[str] | None = None,
    stage_timeout: float = 600.0,
    join_timeout: float = 600.0,
) -> NoisySum:
    """Run one secure sum on the nodes of a Flower grid, in the main function of a ServerApp.

    `SecureSums` states the guarantee.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Grid of the nodes.
    sums : SecureSums
        Agreement with the nodes.
    round : int
        Number of the sum, from 0; each sum of an agreement has a new number.
    ledger : Ledger
        Ledger that records the sum, before any message leaves, with the fewest answers that have a result.  Each call
        records it again.
    content : flwr.app.RecordDict or None
        Public records for the nodes' function that makes the vectors.
    folder : path-like or None
        Folder of the server's state after each stage.  A restarted server that calls again continues the sum, or
        returns its result.  None stores no state.
    stage_timeout : float
        Seconds, above 0, after which a stage continues without the missing answers.
    join_timeout : float
        Seconds, above 0, to wait for the keys of all nodes of the roster, which begin the sum.

    Returns
    -------
    NoisySum
        Sum, and the nodes without an answer.

    Raises
    ------
    AggregationError
        Too few nodes answered in a stage.  The same call may continue the sum when they are back, since nodes repeat
        their answers.
    """
    check_instance("sums", sums, SecureSums, "make a SecureSums")
    check_instance("ledger", ledger, Ledger, "pass a Ledger")
    sums.plan(round)  # checks the number before the ledger has the sum
    stage_timeout = check_real("stage_timeout", stage_timeout, low=0.0, exclusive=True)
    join_timeout = check_real("join_timeout", join_timeout, low=0.0, exclusive=True)
    ledger.record(sums.event())
    return run_sum(
        grid, sums, round, content=content, folder=folder, stage_timeout=stage_timeout, join_timeout=join_timeout
    )


def run_sum(
    grid: "Grid",
    sums: SumAgreement,
    round: int,
    *,
    content: "RecordDict | None",
    shared: Collection[str] = (),
    folder: str | os.PathLike[str] | None,
    stage_timeout: float,
    join_timeout: float,
) -> NoisySum:
    """Run a secure sum that the ledger has, for any agreement.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Grid of the nodes.
    sums : SumAgreement
        Agreement with the nodes.
    round : int
        Number of the sum.
    content : flwr.app.RecordDict or None
        Records for the nodes, as for `secure_sum`.
    shared : collection of str
        Names of the records that nodes get in all stages, and not only with the request of their vectors.
    folder : path-like or None
        Folder of the server's state.
    stage_timeout, join_timeout : float
        Seconds, as for `secure_sum`.

    Returns
    -------
    NoisySum
        Sum, and the nodes without an answer.
    """
    plan, roster = sums.plan(round), [bytes.fromhex(name) for name in sums.roster]
    server, messages = AggregationServer(plan, roster), dict.fromkeys(roster, b"")
    with nullcontext() if folder is None else FolderLock(folder):
        memory = None if folder is None else _Memory(folder, digests({"sums": sums.digest}), _REMEDY)
        if memory is not None and (result := memory.result(round)):
            return result
        if memory is not None and (restored := memory.restored(plan, roster)):
            server, messages = restored
        courier = _Courier(grid, sums, round, content, shared)
        while server.stage != "end":
            courier.deliver(server, messages, join_timeout if server.stage == "keys" else stage_timeout)
            messages = server.advance()
            if memory is not None and server.stage != "end":
                # Before the next messages leave, so that a restarted server sends the same ones.
                memory.keep(round, *server.state(messages))
        assert server.total is not None
        result = NoisySum(server.total, server.n_answers, courier.refusals)
        if memory is not None:
            memory.keep_result(round, result)
    return result


class _Courier:
    """Messages between the server of one sum and the nodes of a grid, which sign their answers."""

    def __init__(
        self, grid: "Grid", sums: SumAgreement, round: int, content: "RecordDict | None", shared: Collection[str]
    ):
        self._grid, self._content, self._shared = grid, {} if content is None else dict(content), set(shared)
        self._plan, self._header = sums.plan(round), {"sums": sums.digest, "round": round}
        # Flower's numbers of the connected nodes, by name.
        self._nodes: dict[bytes, int] = {}
        self.refusals: dict[str, str] = {}

    def deliver(self, server: AggregationServer, messages: Mapping[bytes, bytes], timeout: float) -> None:
        """Send each node its message of the current stage, and give the server all answers that arrive in time."""
        deadline, pause = time.monotonic() + timeout, _MIN_PAUSE
        waiting: dict[str, tuple[int, str]] = {}  # Flower's number and the stage, by message
        sent: set[tuple[int, str]] = set()
        failures: Counter[tuple[int, str]] = Counter()
        done: set[bytes] = set()
        while True:
            connected = set(self._grid.get_node_ids())
            self._nodes = {name: node for name, node in self._nodes.items() if node in connected}
            sent = {(node, stage) for node, stage in sent if node in connected}
            for node, stage, message in self._due(server.stage, messages, connected, done):
                if (node, stage) not in sent:
                    sent.add((node, stage))
                    for message_id in self._grid.push_messages([self._message(node, stage, message, timeout)]):
                        waiting[message_id] = node, stage
            replies = list(self._grid.pull_messages(list(waiting))) if waiting else []
            for reply in replies:
                node, stage = waiting.pop(reply.metadata.reply_to_message_id, (0, ""))
                if not stage or reply.metadata.src_node_id != node:
                    continue
                failures[node, stage] += not reply.has_content()
                if reply.has_content() or failures[node, stage] > MAX_REPEATS:
                    done |= self._receive(server, node, stage, reply)
                else:  # a busy machine may not start the node's process in the time that Flower allows
                    sent.discard((node, stage))
            missing = messages.keys() - done
            if not missing or time.monotonic() > deadline:
                late = f"it sent no answer in stage {server.stage!r} in time"
                self.refusals |= {name.hex(): late for name in missing if name.hex() not in self.refusals}
                return
            if not replies:
                time.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)

    def _due(
        self, stage: str, messages: Mapping[bytes, bytes], connected: set[int], done: set[bytes]
    ) -> Iterator[tuple[int, str, bytes]]:
        """Yield the node, stage and message of each request; nodes without a known name must send their keys."""
        for name in messages.keys() & self._nodes.keys() - done:
            yield self._nodes[name], stage, messages[name]
        for node in connected - set(self._nodes.values()):
            yield node, "keys", b""

    def _receive(self, server: AggregationServer, node: int, stage: str, reply: "Message") -> set[bytes]:
        """Give an answer to the server, and return the names of nodes that get no further request in this stage."""
        name = next((name for name, known in self._nodes.items() if known == node), None)
        try:
            name = server.receive_signed(stage, self._read(reply))
            self._nodes[name] = node
            return {name} if stage == server.stage else set()
        except Exception as error:  # an answer of any content must not stop the sum
            reason = str(error) if isinstance(error, AggregationError) else "its answer is not readable"
            self.refusals[str(node) if name is None else name.hex()] = reason[:500]
            return set() if name is None else {name}

    def _message(self, node: int, stage: str, message: bytes, timeout: float) -> "Message":
        from flwr.app import Message, RecordDict

        names = self._content.keys() if stage == "mask" else self._content.keys() & self._shared
        content = RecordDict({name: self._content[name] for name in names})
        content[RECORD] = config_record({**self._header, "stage": stage, "message": message})
        return Message(content, dst_node_id=node, message_type="train", ttl=timeout)

    @staticmethod
    def _read(reply: "Message") -> bytes:
        if not reply.has_content():
            raise AggregationError(f"the node failed: {str(reply.error.reason)[:200]!r}")
        if "config" in reply.content and (refusal := read_values(reply.content["config"]).get("refusal")):
            raise AggregationError(f"the node refuses: {str(refusal)[:400]!r}")
        answer = read_values(reply.content[RECORD])["answer"]
        if type(answer) is not bytes:
            raise AggregationError(f"an answer must be bytes, got {type(answer).__name__}")
        return answer


class _Memory(Checkpoint):
    """The server's state at the start of a stage of each sum, and the results."""

    def result(self, round: int) -> NoisySum | None:
        """Return the stored result of a sum."""
        contents = self._read(name := f"result-{round}", ("n_answers", "refusals"))
        if contents is None:
            return None
        header, arrays = contents
        with checking(self.folder / name, self._remedy):
            return NoisySum(arrays["total"], header["n_answers"], header["refusals"])

    def keep_result(self, round: int, result: NoisySum) -> None:
        """Write the result of a sum."""
        header = {"n_answers": result.n_answers, "refusals": result.refusals}
        self._write(f"result-{round}", header, {"total": result.total})

    def restored(
        self, plan: AggregationPlan, roster: Collection[bytes]
    ) -> tuple[AggregationServer, dict[bytes, bytes]] | None:
        """Return the server of an unfinished sum, and the messages of its stage."""
        contents = self._read(name := f"round-{plan.round}", ("stage",))
        if contents is None:
            return None
        header, arrays = contents
        with checking(self.folder / name, self._remedy):
            return AggregationServer.restored(plan, roster, header["stage"], arrays)

    def keep(self, round: int, stage: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the state of an unfinished sum."""
        self._write(f"round-{round}", {"stage": stage}, arrays)
