"""The Flower engine: each shard is a node's own, and all that is seen of it are its messages."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.accounting import CommunicationLedger, LocalReports, RoundTraffic, ShuffledReports
from fastfedrec.accounting.events import Event
from fastfedrec.core.arrays import distinct
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.deployment.deployment import Deployment
from fastfedrec.engines.flower.round_records import RoundRecords
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
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.receiver import Heard, Rejection, RoundReceiver
from fastfedrec.rounds.system import ArrayRule, FederatedSystem, Update

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

__all__ = ["FlowerEngine"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two looks at the mail
_ENVELOPE = 4096  # bytes of names, numbers and headers around the arrays of a sound answer
_JOINING = -1  # the round of what is refused before the first


@dataclass(frozen=True)
class RemoteShard:
    """Users who are elsewhere: all that the course of a run asks about a shard.

    Parameters
    ----------
    n_users : int
        As its node says.
    """

    n_users: int


class FlowerEngine(Engine):
    """Runs a system's rounds on the nodes behind a Flower grid; made by `server_app`, and handed to its `on_finish`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Carries the messages.
    deployment : Deployment
        The system's server.
    request : mapping of str to str
        What every message says: run, system and catalogue.
    is_simulation : bool
        Whether the server's key comes from a seed; only nodes of which the same is true take part.
    round_timeout : float
        Seconds after which a round goes on without those who did not answer, or are gone.
    join_timeout : float
        Seconds to wait for nodes before the first round.
    max_clients : int
        Users that a node may claim.

    Attributes
    ----------
    rejections : list of Rejection
        Messages that the server refused; those of round -1 asked to take part.  Rounds of another kind, which some
        systems have, begin again at 0.
    messages : CommunicationLedger
        Bytes of the records as they were sent, by round: of one message down, and of the mean answer up.
    members : dict of str to int
        Names of the nodes that take part, and the users each stands for.
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
        self.people: dict[str, np.ndarray] = {}  # global ids of the members' users, where the system names them
        self.records: RoundRecords | None = None
        self._to_keep: Heard | None = None  # of the open round, unless it came from the records
        self._phase = -1  # of the rounds that are run, in the order of all that nodes may be asked for
        self.refused: list[Rejection] = []
        self._is_open = True  # to members who were not there before
        self._nodes: dict[str, int] = {}  # who is there, by name
        self._strangers: set[int] = set()  # nodes that were refused
        self._absent: set[str] = set()  # who did not answer in the last round
        self._pending: dict[str, int] = {}  # questions about taking part, and the node that each went to

    # ---- who takes part -----------------------------------------------------------------------------------------

    def gather(self, n_nodes: int) -> None:
        """Wait for the first `n_nodes` nodes.

        Parameters
        ----------
        n_nodes : int
            All that are there when so many have come take part.

        Raises
        ------
        RuntimeError
            They did not come in time.
        """
        self._wait(lambda: len(self.members) >= n_nodes)
        if len(self.members) < n_nodes:
            reasons = "".join(f"; {refusal.sender}: {refusal.reason}" for refusal in self.refused)
            raise RuntimeError(
                f"{len(self.members)} of {n_nodes} nodes came within {self._join_timeout:g} seconds{reasons}"
            )
        self.members = dict(sorted(self.members.items()))  # an order that does not depend on who came first
        self._close()

    def gather_again(self, members: Mapping[str, int], people: Mapping[str, np.ndarray]) -> None:
        """Wait for the members of a run that is resumed; it goes on without those who do not come.

        Parameters
        ----------
        members : mapping of str to int
            As they were.
        people : mapping of str to ndarray
            And the names of their users, where these have any.
        """
        self.members, self.people = dict(members), dict(people)
        self._close()
        self._wait(lambda: len(self._nodes) == len(self.members))

    def _close(self) -> None:
        """From here on the members are known, and how many users all of them stand for is public."""
        self._is_open = False
        self._request["n_users"] = sum(self.members.values())

    def shards(self) -> dict[str, Any]:
        """The members, as `run` takes shards.

        Returns
        -------
        dict of str to RemoteShard
            By name.
        """
        return {name: RemoteShard(n_clients) for name, n_clients in self.members.items()}

    def _wait(self, is_over: Callable[[], bool]) -> None:
        deadline, pause = time.monotonic() + self._join_timeout, _FIRST_PAUSE
        self._look_around()
        while not is_over() and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            self._look_around()

    def _look_around(self) -> None:
        """See who is there, ask those who are new, and read what was answered; waits for nobody."""
        from flwr.app import RecordDict

        there = set(self._grid.get_node_ids())
        self._nodes = {name: node for name, node in self._nodes.items() if node in there}
        asked = self._strangers | set(self._pending.values()) | set(self._nodes.values())
        for node in sorted(there - asked):
            question = RecordDict({"request": config_record(self._request)})
            for message_id in self._grid.push_messages([self._message(question, node, "query", self._join_timeout)]):
                self._pending[message_id] = node
        if self._pending:
            for reply in self._grid.pull_messages(list(self._pending)):
                if reply.metadata.reply_to_message_id in self._pending:
                    self._admit(self._pending.pop(reply.metadata.reply_to_message_id), reply)

    def _admit(self, node: int, reply: "Message") -> None:
        name = f"node {node}"
        try:
            names_users = self._deployment.names_users
            content, told = self._content(reply, _ENVELOPE + 8 * self._max_clients * names_users)
            name = told["name"] if type(told["name"]) is str and len(told["name"]) <= 200 else name
            reason = self._reason_to_refuse(name, told.get("simulation"), told.get("num_examples"))
            if reason is None and names_users:
                reason = self._read_people(name, read_arrays(content["users"]), int(told["num_examples"]))
        except Exception as error:  # whatever a hostile message does when looked at, the others are waited for
            reason = str(error)[:500] if type(error) is ValueError else f"could not be read ({type(error).__name__})"
        if reason is not None:
            self.refused.append(Rejection(_JOINING, name, reason))
            self._strangers.add(node)
        elif name not in self._nodes:  # a name that is taken stays with the node that has it, while that is there
            self._nodes[name] = node
            self.members.setdefault(name, int(told["num_examples"]))

    def _reason_to_refuse(self, name: str, is_simulation: Any, n_clients: Any) -> str | None:
        if is_simulation is not self._is_simulation:
            own, other = ("a seed", "of its own") if self._is_simulation else ("of its own", "a seed")
            return f"its key is {other} and the server's is {own}: a run is a simulation for all, or for nobody"
        if type(n_clients) is not int or not 0 <= n_clients <= self._max_clients:  # nobody is no reason to stay away
            return f"num-examples must be from 0 to max_clients={self._max_clients}, got {n_clients!r}"
        if name not in self.members:
            return None if self._is_open else "the run has begun without it"
        return None if self.members[name] == n_clients else f"it came with {self.members[name]} users, now {n_clients}"

    def _read_people(self, name: str, arrays: Mapping[str, np.ndarray], n_clients: int) -> str | None:
        """Take down a node's users, or say why it does not take part."""
        ids = arrays["global_user_ids"]
        if ids.dtype != np.uint64 or ids.shape != (n_clients,) or len(distinct(ids)) != n_clients:
            return f"global-user-ids must be {n_clients} different uint64, got {ids.dtype} {ids.shape}"
        if name in self.people:
            return None if np.array_equal(self.people[name], ids) else "it came with other users than before"
        if any(np.isin(ids, others).any() for others in self.people.values()):
            return "some of its users are another node's"
        self.people[name] = ids
        return None

    # ---- a round ------------------------------------------------------------------------------------------------

    def run(self, system: FederatedSystem, state: Any, *arguments: Any, **options: Any) -> Any:
        """Run rounds of one kind; a system's kinds are numbered, and `rejections` are those of all of them.

        Parameters
        ----------
        system, state : object
            As for every engine.
        *arguments, **options : object
            As for every engine; whoever the interactions are of, the shards are the members'.

        Returns
        -------
        object
            The last state.
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
        found = None if self.records is None else self.records.recall(self._phase, receiver)
        self._to_keep = None
        if found is not None:  # a server that was killed has heard it before, and noise is not drawn for another sum
            heard, traffic = found
            receiver.add(heard)
            self.messages.record(traffic)
            return
        super()._collect(receiver, handles, key, n_threads)
        self._to_keep = receiver.heard()

    def _settle(self, receiver: RoundReceiver) -> None:
        # Not before: a run that nobody answered may be asked for again, as nothing was made of it.
        if self.records is not None and self._to_keep is not None:
            self.records.keep(self._phase, self._to_keep, self.messages.rounds[-1])

    def _as_carried(self, event: Event) -> Event:
        # Flower's messages name their node, and a node adds up its users: there is no shuffler behind which to hide.
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
        order = {name: place for place, name in enumerate(handles)}  # floats are added in it
        for name, reply in sorted(replies, key=lambda answer: order[answer[0]]):
            try:
                largest = self._deployment.largest_update(system, state, self.members[name])
                yield self._read_update(reply, name, largest, system.rules(state, self.members[name]))
            except Exception as error:
                reason = str(error)[:500] if type(error) is ValueError else f"unreadable ({type(error).__name__})"
                self.rejections.append(Rejection(round_number, name, reason))

    def _question(self, state: Any, round_number: int) -> "RecordDict":
        from flwr.app import RecordDict

        arrays, values = encode_state(state)
        request = {**self._request, "phase": self._phase, "round": round_number}
        request |= {f"{STATE}{name}": value for name, value in values.items()}
        return RecordDict({"request": config_record(request), "state": array_record(arrays)})

    def _count(self, question: "RecordDict", replies: list[tuple[str, "Message"]], n_more: int = 0) -> None:
        """Write down what was sent, and `n_more` bytes that came another way."""
        sizes = [count_bytes(reply.content) for _, reply in replies if reply.has_content()]
        upload = round((sum(sizes) + n_more) / len(sizes)) if sizes else 0
        self.messages.record(RoundTraffic(count_bytes(question), upload, len({name for name, _ in replies})))

    def _exchange(self, question: "RecordDict", names: Iterable[str]) -> list[tuple[str, "Message"]]:
        """What comes back to a question, and from whom: by the node that it went to, not by what it says.

        Who is gone has until the end of the round to return and is asked again; in the next round it is asked if it is
        there, and not waited for if it is not.
        """
        # Not grid.send_and_receive, which looks at the mail every three seconds.
        waiting: dict[str, tuple[str, int]] = {}  # name and node, by message
        found: list[tuple[str, Message]] = []
        tried: set[int] = set()
        done: set[str] = set()
        awaited = set(names) - self._absent
        deadline, pause = time.monotonic() + self._round_timeout, _FIRST_PAUSE
        while True:
            self._look_around()
            tried &= set(self._nodes.values())  # an authenticated node returns under its old number
            for name, node in self._nodes.items():
                if name not in done and node not in tried:
                    tried.add(node)
                    for message_id in self._grid.push_messages([self._message(question, node, "train")]):
                        waiting[message_id] = (name, node)
            arrived = list(self._grid.pull_messages(list(waiting))) if waiting else []
            asked = dict(waiting)
            for reply in arrived:
                name, node = asked.get(reply.metadata.reply_to_message_id, ("", 0))
                if name and reply.metadata.src_node_id == node:
                    found.append((name, reply))
                    waiting.pop(reply.metadata.reply_to_message_id, None)
                    if reply.has_content() or self._nodes.get(name) == node:  # else it is gone, and may return
                        done.add(name)
            missing = (awaited | {name for name, _ in waiting.values()}) - done
            if not missing or time.monotonic() > deadline:
                self._absent = set(names) - done
                return found
            if not arrived:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _message(self, content: "RecordDict", node: int, kind: str, lifetime: float | None = None) -> "Message":
        from flwr.app import Message

        return Message(content, dst_node_id=node, message_type=kind, ttl=lifetime or self._round_timeout)

    def _read_update(self, reply: "Message", name: str, largest: int, rules: Mapping[str, ArrayRule]) -> Update:
        """An answer under the name of the node that the transport says sent it; `RoundReceiver` does the rest."""
        largest += _ENVELOPE
        content, told = self._content(reply, largest)
        arrays = read_update(read_arrays(content["update"]), told, rules, largest)
        update = Update(told["round"], name, told["num_examples"], arrays)
        stranger = self._deployment.impersonation(update, self.people[name]) if self.people else None
        if stranger is not None:
            raise ValueError(stranger)
        return update

    @staticmethod
    def _content(reply: "Message", largest: int) -> tuple["RecordDict", dict[str, Any]]:
        """Records that are small enough to be read, and what the node tells in words and numbers; or why not."""
        if not reply.has_content():
            raise ValueError(f"the node failed: {str(reply.error.reason)[:200]!r}")
        size = count_bytes(reply.content)
        if size > largest:
            raise ValueError(f"its message of {size} bytes is larger than the {largest} a sound one may have")
        told = read_values(reply.content["config"])
        if told.get("refusal") is not None:
            raise ValueError(f"the node refuses: {str(told['refusal'])[:400]!r}")
        return reply.content, told
