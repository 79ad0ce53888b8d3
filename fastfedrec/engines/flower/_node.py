"""A node's end of a Flower run: what it answers, and what it refuses whoever asks."""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable
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
from fastfedrec.engines.deployment.deployment import Deployment, NodeRounds
from fastfedrec.engines.deployment.node_memory import NodeMemory, RefusalError, RunMemory, check_run_name
from fastfedrec.engines.flower.wire.records import STATE, array_record, config_record, read_arrays, read_values
from fastfedrec.engines.flower.wire.state_codec import decode_state
from fastfedrec.engines.flower.wire.updates import pack_update, read_update, split_update
from fastfedrec.engines.shuffling.reports import encode_reports
from fastfedrec.engines.shuffling.shuffler import ShufflerClient, ShufflerError
from fastfedrec.rounds.checkpoint import OtherRunError
from fastfedrec.rounds.system import ArrayRule, Update, find_violation

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

_COPIES = 3  # of an answer, at its peak: as it was computed, as it is kept, and as it is sent
_MOST_PHASES = 100  # that a server may speak of
_SINGLE_REPORTS = {"index": ArrayRule(np.int64, (None,), 0), "bit": ArrayRule(np.uint8, (None,), 0, 1)}
_LOG = logging.getLogger("fastfedrec")


def digest_of_items(item_ids: np.ndarray) -> str:
    """A catalogue in 32 hexadecimal digits, whatever integers or strings it is stored as."""
    plain = item_ids.tolist() if item_ids.dtype.kind in "iuU" else objects_to_json("item_ids", item_ids)
    text = json.dumps(plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def name_system(deployment: Deployment, min_crowd: int | None) -> str:
    """What server and nodes must agree on: class and parameters, before fitting, and whether there is a shuffler."""
    through = "" if min_crowd is None else f", behind a shuffler, among at least {min_crowd} users"
    return repr(deployment.model) + through


@dataclass(frozen=True)
class _Request:
    """What a server asks: of numbers, those that may be meant."""

    run: str
    items: Any
    phase: int
    round: int | None
    n_users: int
    state: dict[str, Any]


class Node:
    """The functions behind a ClientApp; arguments as those of `client_app`."""

    def __init__(
        self,
        deployment: Deployment,
        data_loader: Callable[["Context"], Interactions],
        seed: int | None,
        max_runs: int,
        n_threads: int,
        min_crowd: int | None,
    ):
        self._deployment, self._data_loader = deployment, data_loader
        self._seed, self._max_runs, self._n_threads, self._min_crowd = seed, max_runs, n_threads, min_crowd
        self._text = name_system(deployment, min_crowd)
        self._catalogue: tuple[np.ndarray | None, str] = None, ""  # the last one, and its digest

    def answer(self, work: Callable[["Message", "Context"], "RecordDict"]) -> Callable[..., "Message"]:
        """A message's handler; where it fails, the server is told that it did, and the node's own log says why."""

        def handle(message: "Message", context: "Context") -> "Message":
            from flwr.app import Message, RecordDict

            try:
                content = work(message, context)
            except RefusalError as error:
                refusal = str(error)
            except DamagedFileError as error:
                _LOG.exception("a request of the server could not be answered")
                refusal = f"a file that this node keeps ({error.name}) is damaged; its own log says what to do"
            except OtherRunError:
                _LOG.exception("a request of the server could not be answered")
                refusal = "this node's data or settings are not those with which it began this run; see its own log"
            except Exception as error:  # its text may quote data
                _LOG.exception("a request of the server failed")
                refusal = f"the node failed ({type(error).__name__}); its own log says why"
            else:
                return Message(content, reply_to=message)
            return Message(RecordDict({"config": config_record({"refusal": refusal})}), reply_to=message)

        return handle

    def join(self, message: "Message", context: "Context") -> "RecordDict":
        """Say by which name this node signs and how many users it stands for."""
        from flwr.app import RecordDict

        asked = self._read_request(message.content)
        shard, memory = self._load(asked.items, context), self._memory(context)
        if memory is not None:
            memory.check_run(asked.run)
        told: dict[str, Any] = {"name": _name(context), "simulation": self._seed is not None}
        told["num_examples"] = self._deployment.count_clients(shard)
        content = RecordDict({"config": config_record(told)})
        if self._deployment.names_users:
            content["users"] = array_record({"global_user_ids": shard.global_user_ids})
        return content

    def train(self, message: "Message", context: "Context") -> "RecordDict":
        """Answer a round, once: asked again, the same message is sent again."""
        from flwr.app import RecordDict

        asked = self._read_request(message.content)
        shard, round_number = self._load(asked.items, context), asked.round
        try:
            rounds = self._deployment.rounds_of(asked.phase, asked.n_users, shard.item_ids)
        except ValueError as error:
            raise RefusalError(str(error)) from error
        if round_number is None or not 0 <= round_number < rounds.n_rounds:
            raise RefusalError(f"round must be from 0 to {rounds.n_rounds - 1}, got {round_number}")
        memory, name, place = self._memory(context), _name(context), rounds.n_before + round_number
        with nullcontext() if memory is None else memory.alone():
            kept = None if memory is None else memory.of_run(asked.run, self._describe(shard, asked.run, name))
            state = self._read_state(message.content, rounds, shard, asked, name)
            sound = functools.partial(self._objection, rounds, state)
            update = None if kept is None else kept.answer(place, name, asked.n_users, sound)
            if update is None:
                self._check_room(rounds, state, shard)
                update = self._work(rounds, state, shard, kept, asked, round_number, name)
        update = replace(update, round=round_number)
        if self._min_crowd is not None:
            return self._send_single(update, asked.run, context, self._min_crowd)
        arrays, told = split_update(update.arrays)
        told |= {"round": update.round, "num_examples": update.n_clients}
        return RecordDict({"update": array_record(arrays), "config": config_record(told)})

    def _send_single(self, update: Update, run: str, context: "Context", min_crowd: int) -> "RecordDict":
        """Give single reports to the shuffler; the server is only told whether they are there."""
        from flwr.app import RecordDict

        told: dict[str, Any] = {"round": update.round, "num_examples": update.n_clients}
        try:
            shuffler = _shuffler(context)
            about = shuffler.about()
            wanted = {"min_crowd": min_crowd, "n_reports": self._deployment.check_separable()}
            if about["min_crowd"] < wanted["min_crowd"] or about["n_reports"] != wanted["n_reports"]:
                raise RefusalError(f"the shuffler is set up for {about}, and this node for {wanted}")
            body = encode_reports(update.arrays["index"], update.arrays["bit"], about["n_coordinates"])
            shuffler.submit(run, update.round, body)
        except ShufflerError as error:
            told |= {"unsent": str(error)[:400], "again": not error.is_final}
        return RecordDict({"config": config_record(told)})

    def _describe(self, shard: Interactions, run: str, name: str) -> dict[str, str]:
        """Digests of what this node's noise in a run is for."""
        return digests({"system": self._text, "run": run, "name": name} | data_parts(shard))

    def _read_state(
        self, content: "RecordDict", rounds: NodeRounds, shard: Interactions, asked: _Request, name: str
    ) -> Any:
        kind = rounds.state if isinstance(rounds.state, type) else type(rounds.state)
        try:
            state = decode_state(kind, read_arrays(content["state"]), asked.state)
        except (KeyError, ValueError, TypeError) as error:
            raise RefusalError(f"the state could not be read: {error}") from error
        objection = self._deployment.objection(rounds, state, shard, name)
        if objection is not None:
            raise RefusalError(objection)
        return state

    def _objection(self, rounds: NodeRounds, state: Any, kept: Update) -> str | None:
        """What is wrong with an answer that was found on disk, in the form in which it is sent."""
        if self._min_crowd is not None:
            return find_violation(_SINGLE_REPORTS, kept.arrays)
        rules = rounds.system.rules(state, kept.n_clients)
        arrays, told = split_update(kept.arrays)
        room = sum(array.nbytes for array in arrays.values()) * 8 + 8
        return find_violation(rules, read_update(arrays, told, rules, room))

    def _work(
        self,
        rounds: NodeRounds,
        state: Any,
        shard: Interactions,
        memory: RunMemory | None,
        asked: _Request,
        round_number: int,
        name: str,
    ) -> Update:
        if self._seed is None and memory is not None:
            key = memory.key()
        else:
            key = _key_of_seed(check_integer("seed", self._seed, high=None))
        devices: dict[str, np.ndarray] = {}
        if self._min_crowd is not None:
            update = self._deployment.single_reports(state, shard, key, round_number, name, self._n_threads)
        else:
            unpack = functools.partial(self._deployment.unpack_devices, round=round_number, shard=shard)
            known = None if memory is None else memory.devices(unpack)
            update, devices = self._deployment.work(
                rounds, state, shard, key, round_number, name, self._n_threads, known
            )
            packed = pack_update(update.arrays, rounds.system.rules(state, update.n_clients))
            update = replace(update, arrays=packed)
        if memory is not None:
            kept = replace(update, round=rounds.n_before + round_number)
            memory.keep_answer(kept, asked.n_users, devices)
        return update

    def _check_room(self, rounds: NodeRounds, state: Any, shard: Interactions) -> None:
        """Refuse an answer that does not fit into this node's memory, before any of it is computed."""
        n_clients = self._deployment.count_clients(shard)
        needed, there = _COPIES * self._deployment.largest_update(rounds.system, state, n_clients), memory_bytes()
        if there is not None and needed > there:
            raise RefusalError(
                f"this node's answer may take {format_bytes(needed)} of memory, and there are {format_bytes(there)}; "
                "fit fewer items, or run the node on a larger machine"
            )

    def _read_request(self, content: "RecordDict") -> _Request:
        """Refused where nobody here agreed to the system that is meant."""
        try:
            asked = read_values(content["request"])
        except (KeyError, ValueError) as error:
            raise RefusalError("the request could not be read") from error
        if asked.get("system") != self._text:
            raise RefusalError(f"the server asks for {asked.get('system')!r}, and this node is set up for {self._text}")
        phase, round_number, n_users = (asked.get(name) for name in ("phase", "round", "n_users"))
        return _Request(
            check_run_name(asked.get("run")),
            asked.get("items"),
            phase if type(phase) is int and 0 <= phase < _MOST_PHASES else _MOST_PHASES,
            round_number if type(round_number) is int else None,
            n_users if type(n_users) is int and n_users >= 0 else 1,
            {name.removeprefix(STATE): value for name, value in asked.items() if name.startswith(STATE)},
        )

    def _load(self, items: Any, context: "Context") -> Interactions:
        """The node's own users; refused where `items`, which the request names, is not their catalogue's digest."""
        data = self._data_loader(context)
        if not isinstance(data, Interactions):
            raise TypeError(f"data_loader must return Interactions, got {type(data).__name__}")
        ids, digest = self._catalogue
        if ids is not data.item_ids:  # read-only, so the same array is the same catalogue
            digest = digest_of_items(data.item_ids)
            self._catalogue = data.item_ids, digest
        if items != digest:
            raise RefusalError("this node's items are not those of the server's catalogue, in its order")
        shard = self._deployment.prepare(data)
        return shard if self._seed is not None else self._deployment.name_users(shard, _name(context))

    def _memory(self, context: "Context") -> NodeMemory | None:
        """None in a simulation, where a seed is everybody's key, if devices have nothing to remember either."""
        if self._seed is not None and not self._deployment.has_devices:
            return None
        folder = context.node_config.get("folder")
        if not isinstance(folder, str) or not folder:
            what = "key" if self._seed is None else "devices"
            raise RefusalError(f"this node has no folder for its {what}: start it with --node-config 'folder=\"...\"'")
        # A simulation costs its users nothing, so there may be any number of them.
        return NodeMemory(os.path.expanduser(folder), self._max_runs if self._seed is None else None)


@functools.lru_cache(maxsize=4)  # one for all messages; not the node's own field, for Flower's simulation pickles nodes
def _key_of_seed(seed: int) -> Key:
    """The key of a simulation, which may be used again and again."""
    return Key.from_seed(seed)


def _shuffler(context: "Context") -> ShufflerClient:
    """The one that this node's own configuration names; the server has no say in it."""
    config: Any = context.node_config

    def path(name: str) -> str | None:
        found = config.get(f"shuffler-{name}")
        return None if found is None else os.path.expanduser(str(found))

    try:
        return ShufflerClient(
            str(config.get("shuffler", "")),
            name=_name(context),
            authority=path("authority"),
            certificate=path("certificate"),
            private_key=path("private-key"),
        )
    except (ValueError, OSError) as error:  # the text may hold this node's paths
        raise RefusalError(f"this node's shuffler cannot be used ({type(error).__name__})") from error


def _name(context: "Context") -> str:
    """The node's own, or the one a simulation gives it; a place in a list of eight digits sorts as its number."""
    config: Any = context.node_config
    name = config.get("name")
    if isinstance(name, str) and name:
        return name
    if "partition-id" in config:
        return f"shard-{int(config['partition-id']):08d}"
    raise RefusalError("this node has no name: start it with --node-config 'name=\"...\"'")
