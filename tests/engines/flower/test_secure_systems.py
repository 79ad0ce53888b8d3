"""DPGram over Flower without a trusted server: the server gets noisy sums, and nodes answer one plan."""

import json
import math
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import ConfigRecord, Message, RecordDict
from support.flower_grid import KilledError, MemoryGrid, make_context
from support.patience import Clock

from fastfedrec import FMFLDP, DPGram, DPSubspace, Key
from fastfedrec.core.model_files import read_model
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.aggregation import AggregationError, node_name
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.engines.deployment.system_sums import SystemSums
from fastfedrec.engines.flower import client_app, secure_sums, server, server_app
from fastfedrec.engines.flower.wire.records import STATE, read_arrays, read_values
from fastfedrec.engines.flower.wire.state_codec import decode_state

N = 9
DATA = generate_implicit(400, 40, key=Key.from_seed(7)).binarize()
SECURE = {"aggregation": "secure", "honest_fraction": 0.9, "dropout_fraction": 0.2}
SYSTEM = DPGram(8.0, **SECURE)


def shard_of(context):
    """Return the users of a node; the last node has none."""
    return DATA.select_users(np.arange(DATA.n_users) % (N - 1) == int(context.node_config["name"]))


class Nodes:
    """Nine nodes of a system with secure sums."""

    def __init__(self, folder, system=SYSTEM):
        self.system, self.folders = system, {100 + i: folder / f"node-{i}" for i in range(N)}
        self.roster = [node_name(path) for path in self.folders.values()]
        self.app = client_app(system, shard_of, roster=self.roster, n_threads=1)

    def grid(self, tamper=None):
        config = {node: {"name": str(node - 100), "folder": str(path)} for node, path in self.folders.items()}
        return MemoryGrid({node: (self.app, config[node]) for node in self.folders}, tamper)

    def serve(self, grid, folder=None, system=None, **options):
        finished, clock = [], Clock()
        app = server_app(
            system or self.system, DATA.item_ids, lambda *result: finished.append(result), n_nodes=N,
            roster=self.roster, folder=folder, join_timeout=0.3, round_timeout=0.3, **options,
        )  # fmt: skip
        with mock.patch.object(server, "time", clock), mock.patch.object(secure_sums, "time", clock):
            app(grid, make_context(1, {}))
        return finished[0]

    def share(self, node, run, rounds, round):
        """Return a node's share of the noise, from the key in its folder."""
        key = Key(bytes.fromhex(json.loads((self.folders[node] / f"run-{run}/key.json").read_text())["secret"]))
        zeros, name = np.zeros(rounds.system.n_sums(rounds.state), dtype=np.int64), node_name(self.folders[node])
        return rounds.system.with_share(rounds.state, zeros, key=key, sender=name, round=round)


def sums_of(grid):
    """Yield the phase, run and request of each sum."""
    for phase, message in {
        message.content["request"]["phase"]: message
        for message in grid.asked
        if message.metadata.message_type == "train" and message.content["secure-sum"]["stage"] == "mask"
    }.items():
        yield phase, message.content["request"]["run"], message.content


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "gone"),
    [(SYSTEM, set()), (SYSTEM, {103}), (DPSubspace(8.0, **SECURE), set())],
    ids=["all", "one leaves", "fewer columns than planned"],
)
def test_each_sum_of_a_run_is_exact_with_the_noise_of_its_nodes(tmp_path, system, gone):
    nodes = Nodes(tmp_path, system)
    grid = nodes.grid(
        lambda reply: [] if reply.metadata.src_node_id in gone and "secure-sum" in reply.content else [reply]
    )
    model, engine = nodes.serve(grid, tmp_path / "server")
    deployment, n_phases, n_shorter = deployment_of(system, N), 0, 0
    for phase, run, content in sums_of(grid):
        rounds = deployment.rounds_of(phase, DATA.n_users, DATA.item_ids)
        values = read_values(content["request"])
        values = {name.removeprefix(STATE): value for name, value in values.items() if name.startswith(STATE)}
        state = decode_state(type(rounds.state), read_arrays(content["state"]), values)
        expected = np.zeros(rounds.system.n_sums(rounds.state), dtype=np.int64)
        for node in set(nodes.folders) - gone:
            context = make_context(node, {"name": str(node - 100)})
            update = rounds.system.local_round(state, shard_of(context), Key.from_seed(0), 0)
            expected += rounds.system.flatten(rounds.state, update.arrays)
            expected += nodes.share(node, run, rounds, phase)
        _, arrays = read_model(tmp_path / f"server/sums/result-{phase}")
        np.testing.assert_array_equal(arrays["total"], expected)
        n_phases += 1
        n_shorter += rounds.system.n_sums(state) < len(expected)
    assert n_phases >= 2
    assert bool(n_shorter) == isinstance(system, DPSubspace)
    assert np.isfinite(model.item_factors_).all()
    assert bool(engine.rejections) == bool(gone)


def test_the_ledger_holds_against_the_server(tmp_path):
    nodes = Nodes(tmp_path)
    model, _ = nodes.serve(nodes.grid())
    ledger = model.ledger_
    assert not ledger.is_simulation
    # The figure of the guarantee is for zero_out; the ledger's is for replacing a user, at most twice as far away.
    here = SYSTEM.fit(DATA, key=Key.from_seed(1)).ledger_
    assert 0 < ledger.epsilon("public") < ledger.epsilon("server") <= here.epsilon("server") * 1.01
    assert math.isinf(DPGram(8.0).fit(DATA, key=Key.from_seed(1)).ledger_.epsilon("server"))
    assert not any("simulated in one process" in str(note) for note in ledger.notes)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_killed_server_continues_with_the_same_sums(tmp_path):
    nodes, count = Nodes(tmp_path), []

    def dies(reply):
        count.extend([1] * ("secure-sum" in reply.content))
        if len(count) > 100:  # in the third sum
            raise KilledError
        return [reply]

    with pytest.raises(KilledError):
        nodes.serve(nodes.grid(dies), tmp_path / "server")
    before = {path.name: read_model(path)[1]["total"] for path in tmp_path.glob("server/sums/result-*")}
    assert len(before) == 2
    grid = nodes.grid()
    model, _ = nodes.serve(grid, tmp_path / "server")
    # Finished sums are not requested again, and all sums belong to one run.
    assert {phase for phase, *_ in sums_of(grid)}.isdisjoint({0, 1})
    assert len(list(tmp_path.glob("node-0/run-*"))) == 1
    for name, total in before.items():
        np.testing.assert_array_equal(read_model(tmp_path / f"server/sums/{name}")[1]["total"], total)
    assert np.isfinite(model.item_factors_).all()


def answer_again(nodes, grid, change, node=104):
    """Return a node's answer to the first message of the last sum, changed by a dishonest server."""
    last = [message for message in grid.asked if message.metadata.message_type == "train"][-1].content
    content = RecordDict({name: ConfigRecord(dict(last[name])) for name in ("request", "secure-sum")})
    change(content)
    request = Message(content, dst_node_id=node, message_type="train")
    request.metadata.__dict__["_message_id"] = "1"
    config = {"name": str(node - 100), "folder": str(nodes.folders[node])}
    return nodes.app(request, make_context(node, config)).content["config"]["refusal"]


def test_a_node_answers_the_sums_of_one_plan(tmp_path):
    # Each plan costs the whole budget, so a server with the sums of two plans would get twice as much.
    nodes = Nodes(tmp_path)
    grid = nodes.grid()
    nodes.serve(grid)
    answered = {phase for phase, *_ in sums_of(grid)}
    deployment = deployment_of(SYSTEM, N)
    deployment.rounds_of(0, DATA.n_users, DATA.item_ids)
    assert deployment.is_of_one_plan(answered)
    phases = range(len(deployment._planned[1]))
    others = [phase for phase in phases if not deployment.is_of_one_plan(answered | {phase})]
    assert others

    def first_of(phase):
        def change(content):
            content["secure-sum"].update({"round": phase, "stage": "keys", "message": b""})

        return change

    for phase in others:
        assert "are of different plans" in answer_again(nodes, grid, first_of(phase))
    assert "ValueError" in answer_again(nodes, grid, first_of(phases.stop))


def test_a_node_refuses_a_round_without_a_secure_sum_and_other_numbers_of_users(tmp_path):
    nodes = Nodes(tmp_path)
    grid = nodes.grid()
    nodes.serve(grid)
    assert "the node failed (KeyError)" in answer_again(nodes, grid, lambda content: content.pop("secure-sum"))

    def other_size(content):
        content["request"]["n-users"] = 4

    assert "has another agreement on secure sums" in answer_again(nodes, grid, other_size)

    def other_run(content):
        content["request"]["run"] = "0" * 32
        system = content["request"]["system"]
        sums = SystemSums(deployment_of(SYSTEM, N), nodes.roster, system, "0" * 32, DATA.n_users, DATA.item_ids)
        content["secure-sum"].update({"sums": sums.digest, "round": 0, "stage": "keys", "message": b""})

    assert "max_runs is 1" in answer_again(nodes, grid, other_run)
    assert len(list(nodes.folders[104].glob("run-*"))) == 1


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_too_few_nodes_end_the_run_without_a_model(tmp_path):
    nodes = Nodes(tmp_path)
    gone = {100, 101, 102}

    def leave(reply):
        return [] if reply.metadata.src_node_id in gone and "secure-sum" in reply.content else [reply]

    with pytest.raises(AggregationError, match="6 nodes answered in stage 'keys', and min_answers is 7"):
        nodes.serve(nodes.grid(leave))


@pytest.mark.parametrize(
    ("system", "options", "complaint"),
    [
        (SYSTEM, {}, "roster must have the names of all nodes"),
        (DPGram(4.0), {"roster": ["0" * 64]}, "roster must be None with aggregation='central'"),
        (FMFLDP(), {"roster": ["0" * 64]}, "roster must be None with FMFLDP"),
        (SYSTEM, {"roster": ["0" * 64], "seed": 3}, "seed must be None with a roster"),
    ],
    ids=str,
)
def test_arguments_are_checked(system, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        client_app(system, shard_of, **options)
    with pytest.raises(ValueError, match=complaint):
        server_app(system, DATA.item_ids, print, n_nodes=N, **options)
