"""A node's side of a Flower run: the messages that it sends, and the requests that it refuses."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.core.memory import format_bytes, memory_bytes
from fastfedrec.core.model_files import objects_to_json
from fastfedrec.core.randomness import Key
from fastfedrec.data.digest import data_parts, digests
from fastfedrec.data.interactions import Interactions
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.engines.deployment.node_memory import NodeMemory, RefusalError, RunMemory, check_run_name
from fastfedrec.engines.deployment.system_sums import SystemSums
from fastfedrec.engines.flower._sum_messages import answer_sum
from fastfedrec.engines.flower.wire.records import STATE, array_record, config_record, read_arrays, read_values
from fastfedrec.engines.flower.wire.state_codec import decode_state
from fastfedrec.engines.flower.wire.updates import pack_update, read_update, split_update
from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.refusals import ShufflerError
from fastfedrec.engines.shuffling.reports import encode_reports
from fastfedrec.engines.shuffling.sealing import PublicKeys, report_ids
from fastfedrec.rounds.checkpoint import OtherRunError
from fastfedrec.rounds.deployment import Deployment, NodeRounds
from fastfedrec.rounds.system import ArrayRule, Update, find_violation

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

# Copies of a message in memory at its peak: computed, stored, and serialized.
_COPIES = 3
# Maximum number of phases in a request; larger numbers become this one, which no system has.
_MAX_PHASES = 100
# Rules of a message of single reports.
_SINGLE_REPORTS = {"index": ArrayRule(np.int64, (None,), 0), "bit": ArrayRule(np.uint8, (None,), 0, 1)}
_LOG = logging.getLogger("fastfedrec")


def digest_of_items(item_ids: np.ndarray) -> str:
    """Return a digest of a catalogue in 32 hexadecimal digits, independent of the ids' dtype."""
    plain = item_ids.tolist() if item_ids.dtype.kind in "iuU" else objects_to_json("item_ids", item_ids)
    text = json.dumps(plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def name_system(
    deployment: Deployment, min_crowd: int | None, unsealed: bool, roster: Sequence[str] | None = None
) -> str:
    """Return the text that server and nodes must agree on: class, parameters before the fit, shuffler and roster."""
    text = repr(deployment.model)
    if min_crowd is not None:
        # Runs of version 0.2.0 were unsealed, and their folders have a digest of this text.
        blind = "" if unsealed else " that cannot read reports"
        text += f", behind a shuffler{blind}, among at least {min_crowd} users"
    return text if roster is None else f"{text}, by secure sums of the nodes {', '.join(sorted(roster))}"


def answering(work: Callable[["Message", "Context"], "RecordDict"]) -> Callable[..., "Message"]:
    """Return a message's handler; if it fails, the server learns only that, and the node's log has the reason."""

    def handle(message: "Message", context: "Context") -> "Message":
        from flwr.app import Message, RecordDict

        try:
            content = work(message, context)
        except RefusalError as error:
            refusal = str(error)
        except DamagedFileError as error:
            _LOG.exception("a request of the server could not be answered")
            refusal = f"a file of this node ({error.name}) is damaged; see the node's log for the remedy"
        except OtherRunError:
            _LOG.exception("a request of the server could not be answered")
            refusal = "this node's data or settings changed since it began this run; see the node's log"
        except Exception as error:  # its text may quote data, so only its type is sent
            _LOG.exception("a request of the server failed")
            refusal = f"the node failed ({type(error).__name__}); see the node's log"
        else:
            return Message(content, reply_to=message)
        return Message(RecordDict({"config": config_record({"refusal": refusal})}), reply_to=message)

    return handle


@dataclass(frozen=True)
class _Request:
    """A server's request, with replacements for invalid numbers."""

    run: str
    items: Any
    phase: int
    round: int | None
    n_users: int
    state: dict[str, Any]


class Node:
    """Handlers of a ClientApp, with the arguments of `client_app`."""

    def __init__(
        self,
        deployment: Deployment,
        data_loader: Callable[["Context"], Interactions],
        seed: int | None,
        max_runs: int,
        n_threads: int,
        min_crowd: int | None,
        unsealed: bool,
        roster: Sequence[str] | None = None,
    ):
        self._deployment, self._data_loader = deployment, data_loader
        self._seed, self._max_runs, self._n_threads = seed, max_runs, n_threads
        self._min_crowd, self._unsealed, self._roster = min_crowd, unsealed, roster
        self._text = name_system(deployment, min_crowd, unsealed, roster)
        self._catalogue: tuple[np.ndarray | None, str] = None, ""  # the last one, and its digest

    def join(self, message: "Message", context: "Context") -> "RecordDict":
        """Return the node's name and its number of users."""
        from flwr.app import RecordDict

        request = self._read_request(message.content)
        shard, memory = self._load(request.items, context), self._memory(context)
        if memory is not None:
            memory.check_run(request.run)
        values: dict[str, Any] = {"name": _name(context), "simulation": self._seed is not None}
        values["num_examples"] = self._deployment.count_clients(shard)
        content = RecordDict({"config": config_record(values)})
        if self._deployment.names_users:
            content["users"] = array_record({"global_user_ids": shard.global_user_ids})
        return content

    def train(self, message: "Message", context: "Context") -> "RecordDict":
        """Return the message of a round; repeated requests get the same message."""
        from flwr.app import RecordDict

        request = self._read_request(message.content)
        shard, round_number = self._load(request.items, context), request.round
        try:
            rounds = self._deployment.rounds_of(request.phase, request.n_users, shard.item_ids)
        except ValueError as error:
            raise RefusalError(str(error)) from error
        if round_number is None or not 0 <= round_number < rounds.n_rounds:
            raise RefusalError(f"round must be from 0 to {rounds.n_rounds - 1}, got {round_number}")
        memory, name, position = self._memory(context), _name(context), rounds.n_before + round_number
        # Positions number the rounds of all phases, so a node's memory orders them.
        with nullcontext() if memory is None else memory.lock():
            run_memory = (
                None if memory is None else memory.of_run(request.run, self._describe(shard, request.run, name))
            )
            state = self._read_state(message.content, rounds, shard, request, name)
            sound = functools.partial(self._objection, rounds, state)
            update = None if run_memory is None else run_memory.answer(position, name, request.n_users, sound)
            if update is None:
                self._check_memory(rounds, state, shard)
                update = self._work(rounds, state, shard, run_memory, request, round_number, name)
        update = replace(update, round=round_number)
        if self._min_crowd is not None:
            return self._send_single(update, request.run, context, self._min_crowd, self._key(run_memory))
        arrays, values = split_update(update.arrays)
        values |= {"round": update.round, "num_examples": update.n_clients}
        return RecordDict({"update": array_record(arrays), "config": config_record(values)})

    def sum(self, message: "Message", context: "Context") -> "RecordDict":
        """Return the answer to a message of the secure sum of a round."""
        request = self._read_request(message.content)
        shard, memory = self._load(request.items, context), self._memory(context)
        assert memory is not None
        assert isinstance(self._deployment, FitDeployment)
        assert self._roster is not None
        agreement = SystemSums(
            self._deployment, self._roster, self._text, request.run, request.n_users, shard.item_ids, memory.check_run
        )

        def contribute(round_number: int) -> np.ndarray:
            rounds = self._deployment.rounds_of(round_number, request.n_users, shard.item_ids)
            state = self._read_state(message.content, rounds, shard, request, _name(context))
            self._check_memory(rounds, state, shard)
            # Exact sums draw no randomness; the node's share is drawn with a key of its own.
            system: Any = rounds.system
            update = system.local_round(state, shard, _key_of_seed(0), 0, n_threads=self._n_threads)
            sums: np.ndarray = system.flatten(rounds.state, update.arrays)
            return sums

        return answer_sum(agreement, message, context, contribute)

    def _send_single(self, update: Update, run: str, context: "Context", min_crowd: int, key: Key) -> "RecordDict":
        """Send single reports to the shuffler; the server learns only whether they arrived."""
        from flwr.app import RecordDict

        values: dict[str, Any] = {"round": update.round, "num_examples": update.n_clients}
        try:
            shuffler = _shuffler(context)
            about = shuffler.about()
            expected = {"min_crowd": min_crowd, "n_reports": self._deployment.separable().n_reports}
            if about["min_crowd"] < expected["min_crowd"] or about["n_reports"] != expected["n_reports"]:
                raise RefusalError(f"the shuffler is configured for {about}, and this node for {expected}")
            shuffler.submit(run, update.round, self._write_reports(update, run, context, about, key))
        except ShufflerError as error:
            values |= {"unsent": str(error)[:400], "again": not error.is_final}
        return RecordDict({"config": config_record(values)})

    def _write_reports(self, update: Update, run: str, context: "Context", about: dict[str, Any], key: Key) -> bytes:
        """Return reports as the shuffler takes them, sealed unless this node's app allows it to read them."""
        reports = update.arrays["index"], update.arrays["bit"]
        server_key = about.get("server_key")
        if self._unsealed:
            if server_key is not None:
                raise RefusalError("the shuffler takes sealed reports only, and this node's app has unsealed=True")
            return encode_reports(*reports, about["n_coordinates"])
        keys = _server_keys(context)
        if server_key not in keys.names:
            raise RefusalError(
                "the shuffler reads reports: it has no server's key"
                if server_key is None
                else f"the shuffler's key of the server, {server_key[:16]!r}, is not in this node's file of keys"
            )
        ids = report_ids(key, update.sender, update.round, len(reports[0]))
        return keys.seal(server_key, *reports, ids, n_coordinates=about["n_coordinates"], run=run, round=update.round)

    def _describe(self, shard: Interactions, run: str, name: str) -> dict[str, str]:
        """Return digests of the system, run, name and data that this node's key of a run is bound to."""
        return digests({"system": self._text, "run": run, "name": name} | data_parts(shard))

    def _read_state(
        self, content: "RecordDict", rounds: NodeRounds, shard: Interactions, request: _Request, name: str
    ) -> Any:
        kind = rounds.state if isinstance(rounds.state, type) else type(rounds.state)
        try:
            state = decode_state(kind, read_arrays(content["state"]), request.state)
        except (KeyError, ValueError, TypeError) as error:
            raise RefusalError(f"the state could not be read: {error}") from error
        objection = self._deployment.objection(rounds, state, shard, name)
        if objection is not None:
            raise RefusalError(objection)
        return state

    def _objection(self, rounds: NodeRounds, state: Any, stored: Update) -> str | None:
        """Return the fault of a stored message in the form in which it is sent, or None."""
        if self._min_crowd is not None:
            return find_violation(_SINGLE_REPORTS, stored.arrays)
        rules = rounds.system.rules(state, stored.n_clients)
        arrays, values = split_update(stored.arrays)
        capacity = sum(array.nbytes for array in arrays.values()) * 8 + 8
        return find_violation(rules, read_update(arrays, values, rules, capacity))

    def _work(
        self,
        rounds: NodeRounds,
        state: Any,
        shard: Interactions,
        memory: RunMemory | None,
        request: _Request,
        round_number: int,
        name: str,
    ) -> Update:
        key = self._key(memory)
        devices: dict[str, np.ndarray] = {}
        if self._min_crowd is not None:
            separable = self._deployment.separable()
            index, bit = separable.report_stream(
                state, shard, key, round_number, sender=name, n_threads=self._n_threads
            )
            update = Update(round_number, name, shard.n_users, {"index": index, "bit": bit})
        else:
            unpack = functools.partial(rounds.system.unpack_devices, round=round_number, shard=shard)
            stored_devices = None if memory is None else memory.devices(unpack)
            update, devices = self._deployment.work(
                rounds, state, shard, key, round_number, name, self._n_threads, stored_devices
            )
            packed = pack_update(update.arrays, rounds.system.rules(state, update.n_clients))
            update = replace(update, arrays=packed)
        if memory is not None:
            stored = replace(update, round=rounds.n_before + round_number)
            memory.keep_answer(stored, request.n_users, devices)
        return update

    def _key(self, memory: RunMemory | None) -> Key:
        # In a deployment each node has a key of its own; in a simulation all parties have the seed's key.
        if self._seed is None and memory is not None:
            return memory.key()
        return _key_of_seed(check_integer("seed", self._seed, high=None))

    def _check_memory(self, rounds: NodeRounds, state: Any, shard: Interactions) -> None:
        """Refuse a message that does not fit into this node's memory, before the computation."""
        n_clients = self._deployment.count_clients(shard)
        needed, available = _COPIES * self._deployment.largest_update(rounds.system, state, n_clients), memory_bytes()
        if available is not None and needed > available:
            raise RefusalError(
                f"this node's message needs up to {format_bytes(needed)} of memory, and {format_bytes(available)} are "
                "available; fit fewer items, or run the node on a larger machine"
            )

    def _read_request(self, content: "RecordDict") -> _Request:
        """Parse a request, and refuse a system that this node has not agreed to."""
        try:
            values = read_values(content["request"])
        except (KeyError, ValueError) as error:
            raise RefusalError("the request could not be read") from error
        if values.get("system") != self._text:
            raise RefusalError(
                f"the server runs {values.get('system')!r}, and this node is configured for {self._text}"
            )
        phase, round_number, n_users = (values.get(name) for name in ("phase", "round", "n_users"))
        return _Request(
            check_run_name(values.get("run")),
            values.get("items"),
            phase if type(phase) is int and 0 <= phase < _MAX_PHASES else _MAX_PHASES,
            round_number if type(round_number) is int else None,
            n_users if type(n_users) is int and n_users >= 0 else 1,
            {name.removeprefix(STATE): value for name, value in values.items() if name.startswith(STATE)},
        )

    def _load(self, items: Any, context: "Context") -> Interactions:
        """Load the node's users, and refuse a request with another catalogue; `items` is its digest."""
        data = self._data_loader(context)
        if not isinstance(data, Interactions):
            raise TypeError(f"data_loader must return Interactions, got {type(data).__name__}")
        ids, digest = self._catalogue
        if ids is not data.item_ids:  # read-only, so the same array is the same catalogue
            digest = digest_of_items(data.item_ids)
            self._catalogue = data.item_ids, digest
        if items != digest:
            raise RefusalError("this node's items must equal the server's catalogue, in the same order")
        shard = self._deployment.prepare(data)
        return shard if self._seed is not None else self._deployment.name_users(shard, _name(context))

    def _memory(self, context: "Context") -> NodeMemory | None:
        """Return the node's memory; None in a simulation without device state, where all nodes have the seed's key."""
        if self._seed is not None and not self._deployment.has_devices:
            return None
        folder = context.node_config.get("folder")
        if not isinstance(folder, str) or not folder:
            content = "key" if self._seed is None else "devices"
            raise RefusalError(
                f"this node has no folder for its {content}: start it with --node-config 'folder=\"...\"'"
            )
        # A simulation has no privacy cost, so the number of runs has no limit.
        return NodeMemory(os.path.expanduser(folder), self._max_runs if self._seed is None else None)


# One key for all messages; not an attribute of the node, since Flower's simulation pickles nodes.
@functools.lru_cache(maxsize=4)
def _key_of_seed(seed: int) -> Key:
    """Return the key of a simulation, which is used repeatedly."""
    return Key.from_seed(seed)


def _file(context: "Context", name: str) -> str | None:
    """Return a file of this node's configuration."""
    value = context.node_config.get(name)
    return None if value is None else os.path.expanduser(str(value))


def _server_keys(context: "Context") -> PublicKeys:
    """Return the server's public keys of this node's configuration, which the server cannot choose."""
    path = _file(context, "server-key")
    if path is None:
        raise RefusalError("this node has no file of the server's public key: add server-key to its configuration")
    try:
        return PublicKeys(path)
    except (ValueError, OSError, ImportError) as error:  # the text may hold this node's paths
        _LOG.exception("the server's public key cannot be used")
        raise RefusalError(f"this node's server-key cannot be used ({type(error).__name__})") from error


def _shuffler(context: "Context") -> ShufflerClient:
    """Return the shuffler of this node's configuration, which the server cannot choose."""
    config: Any = context.node_config
    path = functools.partial(_file, context)
    try:
        return ShufflerClient(
            str(config.get("shuffler", "")),
            name=_name(context),
            authority=path("shuffler-authority"),
            certificate=path("shuffler-certificate"),
            private_key=path("shuffler-private-key"),
        )
    except (ValueError, OSError) as error:  # the text may hold this node's paths
        raise RefusalError(f"this node's shuffler cannot be used ({type(error).__name__})") from error


def _name(context: "Context") -> str:
    """Return the node's configured name, or its name in a simulation."""
    # Eight digits, so that names sort like numbers.
    config: Any = context.node_config
    name = config.get("name")
    if isinstance(name, str) and name:
        return name
    if "partition-id" in config:
        return f"shard-{int(config['partition-id']):08d}"
    raise RefusalError("this node has no name: start it with --node-config 'name=\"...\"'")
