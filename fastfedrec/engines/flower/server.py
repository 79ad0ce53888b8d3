"""The Flower engine: each shard is on a node, and the server sees only its messages."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting import CommunicationLedger, LocalReports, RoundTraffic, ShuffledReports
from fastfedrec.accounting.events import Event
from fastfedrec.core.arrays import distinct
from fastfedrec.core.log import RoundTotals, log_round
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.flower.wire.records import (
    STATE,
    array_record,
    config_record,
    count_bytes,
    read_arrays,
    read_values,
)
from fastfedrec.engines.flower.wire.state_codec import encode_state
from fastfedrec.engines.flower.wire.updates import read_update
from fastfedrec.rounds.deployment import Deployment
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.receiver import PartialRound, Rejection, RoundReceiver, count_kinds
from fastfedrec.rounds.round_records import RoundRecords
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

__all__ = ["MAX_REPEATS", "FlowerEngine"]

# Seconds between two checks for messages, doubled from the first to the second.
_MIN_PAUSE, _MAX_PAUSE = 0.02, 1.0
# Maximum bytes of names, numbers and headers around the arrays of a valid message.
_ENVELOPE_BYTES = 4096
# Round number of requests to join that are refused.
_JOIN_ROUND = -1
#: Number of further requests to a node whose process ended without an answer.
MAX_REPEATS = 3


@dataclass(frozen=True)
class RemoteShard:
    """A node's shard: its number of users, as the node states it."""

    n_users: int


class FlowerEngine(Engine):
    """Runs a system's rounds on the nodes of a Flower grid; `server_app` makes it and passes it to `on_finish`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Transport of the messages.
    deployment : Deployment
        Server and node side of the system.
    request : mapping of str to str
        Fields of every request: run, system and catalogue.
    is_simulation : bool
        Whether the server's key comes from a seed; it must be the same for all nodes.
    round_timeout : float
        Seconds after which a round continues without the missing messages.
    join_timeout : float
        Seconds to wait for nodes before the first round.
    max_clients : int
        Maximum number of users of a node.

    Attributes
    ----------
    rejections : list of Rejection
        Messages that the server refused.  Round -1 has requests to join; each phase of a system counts its rounds from
        0.
    messages : CommunicationLedger
        Bytes of the records by round: of one message to a node, and of the mean message from a node.
    members : dict of str to int
        Names of the nodes that take part, and their numbers of users.
    """

    def __init__(
        self,
        grid: "Grid",
        deployment: Deployment,
        request: Mapping[str, str],
        *,
        is_simulation: bool,
        round_timeout: float,
        join_timeout: float,
        max_clients: int,
    ):
        super().__init__()
        self._grid, self._deployment, self._request = grid, deployment, dict[str, Any](request)
        self._is_simulation, self._max_clients = is_simulation, max_clients
        self._round_timeout, self._join_timeout = round_timeout, join_timeout
        self.messages = CommunicationLedger()
        self.members: dict[str, int] = {}
        # Global ids of the members' users, if the system needs them.
        self.user_ids: dict[str, np.ndarray] = {}
        self.records: RoundRecords | None = None
        # Messages of the open round that are not recorded yet.
        self._unrecorded: PartialRound | None = None
        # Time of the start of the open round.
        self._begun = 0.0
        # Number of the current phase, counted from 0.
        self._phase = -1
        self.refused: list[Rejection] = []
        # Whether new members can join.
        self._is_open = True
        # Connected members: node ids by name.
        self._nodes: dict[str, int] = {}
        # Ids of nodes that were refused.
        self._refused_nodes: set[int] = set()
        # Members without a message in the last round.
        self._absent: set[str] = set()
        # Open requests to join: node ids by message.
        self._pending: dict[str, int] = {}
        # Numbers of requests to join that ended without an answer, by node id.
        self._failures: Counter[int] = Counter()

    # ---- members ----------------------------------------------------------------------------------------------------

    def gather(self, n_nodes: int) -> None:
        """Wait for the first `n_nodes` nodes.

        Parameters
        ----------
        n_nodes : int
            Minimum number of nodes; all nodes that are connected at that time take part.

        Raises
        ------
        RuntimeError
            Fewer nodes joined within `join_timeout`.
        """
        self._wait(lambda: len(self.members) >= n_nodes)
        if len(self.members) < n_nodes:
            reasons = "".join(f"; {refusal.sender}: {refusal.reason}" for refusal in self.refused)
            raise RuntimeError(
                f"{len(self.members)} of {n_nodes} nodes joined within {self._join_timeout:g} seconds{reasons}; start "
                "the missing nodes, or set join_timeout higher"
            )
        # An order that does not depend on the order of arrival.
        self.members = dict(sorted(self.members.items()))
        self._close()

    def regather(self, members: Mapping[str, int], user_ids: Mapping[str, np.ndarray]) -> None:
        """Wait for the members of a resumed run, which continues without members that do not return.

        Parameters
        ----------
        members : mapping of str to int
            Stored members and their numbers of users.
        user_ids : mapping of str to ndarray
            Stored global ids of the members' users, empty if the system needs none.
        """
        self.members, self.user_ids = dict(members), dict(user_ids)
        self._close()
        self._wait(lambda: len(self._nodes) == len(self.members))

    def _close(self) -> None:
        """Accept no further members, and publish their total number of users."""
        self._is_open = False
        self._request["n_users"] = sum(self.members.values())

    def shards(self) -> dict[str, Any]:
        """Return the members' shards for `run`.

        Returns
        -------
        dict of str to RemoteShard
            Shards by the members' names.
        """
        return {name: RemoteShard(n_clients) for name, n_clients in self.members.items()}

    def _wait(self, is_over: Callable[[], bool]) -> None:
        deadline, pause = time.monotonic() + self._join_timeout, _MIN_PAUSE
        self._update_nodes()
        while not is_over() and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
            self._update_nodes()

    def _update_nodes(self) -> None:
        """Update the connected nodes, send a request to new ones, and read their answers, without waiting."""
        from flwr.app import RecordDict

        connected = set(self._grid.get_node_ids())
        self._nodes = {name: node for name, node in self._nodes.items() if node in connected}
        known = self._refused_nodes | set(self._pending.values()) | set(self._nodes.values())
        for node in sorted(connected - known):
            question = RecordDict({"request": config_record(self._request)})
            for message_id in self._grid.push_messages([self._message(question, node, "query", self._join_timeout)]):
                self._pending[message_id] = node
        if self._pending:
            for reply in self._grid.pull_messages(list(self._pending)):
                if reply.metadata.reply_to_message_id in self._pending:
                    node = self._pending.pop(reply.metadata.reply_to_message_id)
                    self._failures[node] += not reply.has_content()
                    # A busy machine may not start the node's process in the time that Flower allows.
                    if reply.has_content() or self._failures[node] > MAX_REPEATS:
                        self._admit(node, reply)

    def _admit(self, node: int, reply: "Message") -> None:
        """Make a node a member, or refuse it."""
        name = f"node {node}"
        try:
            names_users = self._deployment.names_users
            content, values = self._content(reply, _ENVELOPE_BYTES + 8 * self._max_clients * names_users)
            name = values["name"] if type(values["name"]) is str and len(values["name"]) <= 200 else name
            reason = self._reason_to_refuse(name, values.get("simulation"), values.get("num_examples"))
            if reason is None and names_users:
                reason = self._read_user_ids(name, read_arrays(content["users"]), int(values["num_examples"]))
        except Exception as error:  # a hostile message must not stop the run, whatever error it causes
            reason = str(error)[:500] if type(error) is ValueError else f"could not be read ({type(error).__name__})"
        if reason is not None:
            self.refused.append(Rejection(_JOIN_ROUND, name, reason))
            self._refused_nodes.add(node)
        elif name not in self._nodes:  # a name belongs to the node that has it while that node is connected
            self._nodes[name] = node
            self.members.setdefault(name, int(values["num_examples"]))

    def _reason_to_refuse(self, name: str, is_simulation: Any, n_clients: Any) -> str | None:
        if is_simulation is not self._is_simulation:
            server, node = ("a seed", "entropy") if self._is_simulation else ("entropy", "a seed")
            return f"its key comes from {node} and the server's from {server}: a run is a simulation for all or none"
        # A node without users can take part.
        if type(n_clients) is not int or not 0 <= n_clients <= self._max_clients:
            return f"num-examples must be from 0 to max_clients={self._max_clients}, got {n_clients!r}"
        if name not in self.members:
            return None if self._is_open else "it is not a member of the run, which has begun"
        if self.members[name] == n_clients:
            return None
        return f"num-examples must be {self.members[name]} as when it joined, got {n_clients}"

    def _read_user_ids(self, name: str, arrays: Mapping[str, np.ndarray], n_clients: int) -> str | None:
        """Store the global ids of a node's users, or return the reason to refuse it."""
        ids = arrays["global_user_ids"]
        if ids.dtype != np.uint64 or ids.shape != (n_clients,) or len(distinct(ids)) != n_clients:
            return f"global-user-ids must be {n_clients} different uint64, got {ids.dtype} {ids.shape}"
        if name in self.user_ids:
            return None if np.array_equal(self.user_ids[name], ids) else "its users differ from the ones it joined with"
        if any(np.isin(ids, known).any() for known in self.user_ids.values()):
            return "some of its users are another node's"
        self.user_ids[name] = ids
        return None

    # ---- rounds -----------------------------------------------------------------------------------------------------

    def run(self, system: FederatedSystem, state: Any, *arguments: Any, **options: Any) -> Any:
        """Run the rounds of one phase; `rejections` has the rejections of all phases.

        Parameters
        ----------
        system, state : object
            System and initial state, as for every engine.
        *arguments, **options : object
            Arguments as for every engine; the shards are always the members' shards.

        Returns
        -------
        object
            State after the last round.
        """
        earlier = self.rejections
        self._phase += 1 + system.n_skipped
        try:
            return super().run(system, state, *arguments, **options)
        finally:
            self.rejections = earlier + self.rejections

    def _shards_of(self, interactions: Interactions | Mapping[str, Interactions]) -> dict[str, Any]:
        return self.shards()

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int) -> None:
        self._begun = time.monotonic()
        recorded = None if self.records is None else self.records.recall(self._phase, receiver)
        self._unrecorded = None
        # A restarted server uses the recorded messages, since the same noise must not be added to another sum.
        if recorded is not None:
            messages, traffic = recorded
            receiver.add(messages)
            self.messages.record(traffic)
            return
        super()._collect(receiver, handles, key, n_threads)
        self._unrecorded = receiver.partial_round()

    def _settle(self, receiver: RoundReceiver) -> None:
        # A round without messages is not recorded: it can be repeated, since no noise was drawn for it.
        if self.records is not None and self._unrecorded is not None:
            self.records.keep(self._phase, self._unrecorded, self.messages.rounds[-1])

    def _as_carried(self, event: Event) -> Event:
        # Flower's messages name their node, and a node adds up its users' reports, so there is no shuffler.
        if isinstance(event, ShuffledReports):
            return LocalReports(event.mechanism, event.epsilon, event.n_reports, event.n_users)
        return replace(event, separable=False) if isinstance(event, LocalReports) else event

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, Any], key: Key, n_threads: int
    ) -> Iterable[Update]:
        system, state, round_number = receiver.system, receiver.state, receiver.round
        question = self._question(state, round_number)
        replies = self._exchange(question, handles)
        self._count(question, replies)
        order = {name: i for i, name in enumerate(handles)}  # a sum of floats depends on the order
        for name, reply in sorted(replies, key=lambda answer: order[answer[0]]):
            try:
                largest = self._deployment.largest_update(system, state, self.members[name])
                yield self._read_update(reply, name, largest, system.rules(state, self.members[name]))
            except Exception as error:
                reason = str(error)[:500] if type(error) is ValueError else f"unreadable ({type(error).__name__})"
                self.rejections.append(Rejection(round_number, name, reason))

    def _log_round(self, name: str, number: int, n: int, receiver: RoundReceiver) -> None:
        traffic, rejections = self.messages.rounds[-1], [r for r in self.rejections if r.round == receiver.round]
        totals = RoundTotals(
            self._count_answers(receiver),
            count_kinds(rejections),
            time.monotonic() - self._begun,
            traffic.upload * traffic.n_clients,
        )
        outcome = "answered" if totals.answers else "unanswered"
        text = f"{name}: round {number} of {n} is done"
        log_round(text, totals, process="server", round=number, outcome=outcome)

    def _count_answers(self, receiver: RoundReceiver) -> int:
        """Return the number of nodes with an accepted message."""
        return len(receiver.partial_round().answered)

    def _question(self, state: Any, round_number: int) -> "RecordDict":
        from flwr.app import RecordDict

        arrays, values = encode_state(state)
        request = {**self._request, "phase": self._phase, "round": round_number}
        request |= {f"{STATE}{name}": value for name, value in values.items()}
        return RecordDict({"request": config_record(request), "state": array_record(arrays)})

    def _count(self, question: "RecordDict", replies: list[tuple[str, "Message"]], n_more: int = 0) -> None:
        """Record the traffic of a round, and `n_more` bytes from outside Flower."""
        sizes = [count_bytes(reply.content) for _, reply in replies if reply.has_content()]
        upload = round((sum(sizes) + n_more) / len(sizes)) if sizes else 0
        self.messages.record(RoundTraffic(count_bytes(question), upload, len({name for name, _ in replies})))

    def _exchange(self, question: "RecordDict", names: Iterable[str]) -> list[tuple[str, "Message"]]:
        """Send a request to all members, and return their replies with the names of the nodes it was sent to."""
        # A disconnected node can return until the end of the round.  In the next round it gets the request if it is
        # connected, but the server does not wait for it.  `grid.send_and_receive` would check only every 3 seconds.
        waiting: dict[str, tuple[str, int]] = {}  # name and node, by message
        replies: list[tuple[str, Message]] = []
        tried: set[int] = set()
        done: set[str] = set()
        awaited = set(names) - self._absent
        deadline, pause = time.monotonic() + self._round_timeout, _MIN_PAUSE
        while True:
            self._update_nodes()
            tried &= set(self._nodes.values())  # an authenticated node returns with the same id
            for name, node in self._nodes.items():
                if name not in done and node not in tried:
                    tried.add(node)
                    for message_id in self._grid.push_messages([self._message(question, node, "train")]):
                        waiting[message_id] = (name, node)
            arrived = list(self._grid.pull_messages(list(waiting))) if waiting else []
            requests = dict(waiting)
            for reply in arrived:
                name, node = requests.get(reply.metadata.reply_to_message_id, ("", 0))
                if name and reply.metadata.src_node_id == node:
                    replies.append((name, reply))
                    waiting.pop(reply.metadata.reply_to_message_id, None)
                    # An error of a disconnected node is not final, since the node may return.
                    if reply.has_content() or self._nodes.get(name) == node:
                        done.add(name)
            missing = (awaited | {name for name, _ in waiting.values()}) - done
            if not missing or time.monotonic() > deadline:
                self._absent = set(names) - done
                return replies
            if not arrived:
                time.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)

    def _message(self, content: "RecordDict", node: int, kind: str, lifetime: float | None = None) -> "Message":
        from flwr.app import Message

        return Message(content, dst_node_id=node, message_type=kind, ttl=lifetime or self._round_timeout)

    def _read_update(self, reply: "Message", name: str, largest: int, rules: Mapping[str, ArrayRule]) -> Update:
        """Decode a reply as a message of the node that the transport names; `RoundReceiver` checks its arrays."""
        largest += _ENVELOPE_BYTES
        content, values = self._content(reply, largest)
        arrays = read_update(read_arrays(content["update"]), values, rules, largest)
        update = Update(values["round"], name, values["num_examples"], arrays)
        reason = self._deployment.impersonation(update, self.user_ids[name]) if self.user_ids else None
        if reason is not None:
            raise ValueError(reason)
        return update

    @staticmethod
    def _content(reply: "Message", largest: int) -> tuple["RecordDict", dict[str, Any]]:
        """Return a reply's records and plain values, or raise ValueError if it is an error, too large or a refusal."""
        if not reply.has_content():
            raise ValueError(f"the node failed: {str(reply.error.reason)[:200]!r}")
        size = count_bytes(reply.content)
        if size > largest:
            raise ValueError(f"its message must have at most {largest} bytes, got {size}")
        values = read_values(reply.content["config"])
        if values.get("refusal") is not None:
            raise ValueError(f"the node refuses: {str(values['refusal'])[:400]!r}")
        return reply.content, values
