"""Tests of Flower: the same bits as in one process, keys that stay on nodes, and a server that is killed.

The apps are Flower's, and messages take its wire form both ways; the grid between them is in memory
(`flower_grid.py`). `test_processes.py` covers SuperLink, SuperNodes and their processes, and
`test_messages.py` covers invalid messages.
"""

import os
import stat

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array, ArrayRecord, Message, RecordDict
from support.flower_case import FMF, PROTOTYPES
from support.flower_grid import (
    HALF,
    SEED,
    MemoryGrid,
    in_folders,
    make_context,
    requests_of,
    serve,
    two_nodes,
)

from fastfedrec import FMFLDP, DPGram, Key, PrivatePrototypes, load
from fastfedrec.core.folder_lock import FolderInUseError, FolderLock
from fastfedrec.engines import LocalEngine
from fastfedrec.engines.flower import client_app
from fastfedrec.engines.flower._node import digest_of_items

# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("name", FMF)
def test_two_nodes_make_the_fmf_ldp_of_one_process(data, name, n_threads):
    system = FMF[name]
    here = system.fit(data, key=Key.from_seed(SEED), n_threads=n_threads, engine=LocalEngine(2))
    there, engine = serve(system, data, MemoryGrid(two_nodes(system, data, "ba", n_threads=n_threads)))
    if system.epsilon is None:  # sums of floats, in another order: LocalEngine's halves are other users
        np.testing.assert_allclose(there.item_factors_, here.item_factors_, rtol=1e-4, atol=1e-6)
    else:
        np.testing.assert_array_equal(there.item_factors_, here.item_factors_)
    assert engine.rejections == []
    assert engine.members == {"a": 150, "b": 150}
    assert there.ledger_.epsilon("server") == here.ledger_.epsilon("server")
    served = there.with_users(data)
    np.testing.assert_allclose(served.user_factors_, here.user_factors_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("name", PROTOTYPES)
def test_two_nodes_make_the_prototypes_of_one_process(data, name, n_threads):
    system = PROTOTYPES[name]
    here = system.fit(data, entities=HALF, key=Key.from_seed(SEED), n_threads=n_threads)
    there, engine = serve(system, data, MemoryGrid(two_nodes(system, data, "ba", n_threads=n_threads)))
    np.testing.assert_array_equal(there.item_factors_, here.item_factors_)
    assert str(there.ledger_) == str(here.ledger_)
    assert engine.rejections == []
    np.testing.assert_array_equal(there.serve(data, entities=HALF).user_factors_, here.user_factors_)


def test_public_sizes_determine_the_number_of_prototypes(data):
    system, sizes = PrivatePrototypes(max_entries=5), {"a": 100_000, "b": 30_000}
    here = system.fit(data, entities=HALF, key=Key.from_seed(SEED), public_sizes=sizes)
    there, _ = serve(system, data, MemoryGrid(two_nodes(system, data)), public_sizes=sizes)
    assert here.n_prototypes_[0] > here.n_prototypes_[1] > 1
    np.testing.assert_array_equal(there.item_factors_, here.item_factors_)


def test_no_shuffler_no_shufflers_figure(data):
    system = FMFLDP(epsilon=0.05, n_reports=1, n_rounds=1)
    here = system.fit(data, key=Key.from_seed(SEED)).ledger_
    there = serve(system, data, MemoryGrid(two_nodes(system, data)))[0].ledger_
    assert here.epsilon("shuffled_server") < here.epsilon("server") == there.epsilon("server")
    assert there.epsilon("shuffled_server") == there.epsilon("server")


def test_a_catalogue_is_the_same_however_it_is_stored():
    ids = np.arange(5)
    same = [ids, ids.astype(np.int32), ids.astype(object)]
    assert len({digest_of_items(form) for form in same}) == 1
    assert len({digest_of_items(form) for form in (ids, ids[::-1], ids[:4], ids.astype(str))}) == 4


def test_the_bytes_that_were_sent_are_counted(data):
    system = FMFLDP(n_rounds=2)
    grid = MemoryGrid(two_nodes(system, data))
    model, engine = serve(system, data, grid)
    assert [traffic.n_clients for traffic in engine.messages.rounds] == [2, 2]
    arrays = 4 * model.item_factors_.size
    assert all(arrays < traffic.download < arrays + 1000 for traffic in engine.messages.rounds)
    assert all(0 < traffic.upload < 16 * 300 + 1000 for traffic in engine.messages.rounds)
    assert [traffic.n_clients for traffic in model.communication_.rounds] == [300, 300]


def test_two_servers_do_not_share_a_folder(data, tmp_path):
    system = FMFLDP(n_rounds=1)
    with FolderLock(tmp_path / "server"), pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} on"):
        serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path / "server")
    serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path / "server")


def test_two_nodes_do_not_share_a_folder(data, tmp_path):
    system = DPGram(1.0)
    nodes = {
        11 + n: (client_app(system, lambda context: data), {"name": name, "folder": str(tmp_path)})
        for n, name in enumerate("ab")
    }
    _, engine = serve(system, data, MemoryGrid(nodes), seed=None)
    assert {refused.sender for refused in engine.rejections} == {"b"}
    assert "changed since it began this run" in engine.rejections[0].reason


def test_a_model_without_users_is_saved_and_served(data, tmp_path):
    model, _ = serve(FMFLDP(n_rounds=1), data, MemoryGrid(two_nodes(FMFLDP(n_rounds=1), data)))
    model.save(tmp_path / "model")
    ids, _ = load(tmp_path / "model").with_users(data).recommend(data.user_ids[:2], n=3)
    assert ids.shape == (2, 3)


# ---- keys -----------------------------------------------------------------------------------------------------------


def test_each_node_of_a_deployment_has_a_separate_key(data, tmp_path):
    system = FMFLDP(n_rounds=2)
    model, _ = serve(system, data, MemoryGrid(in_folders(system, data, tmp_path)), seed=None)
    assert not model.ledger_.is_simulation
    keys = sorted(tmp_path.glob("*/run-*/key.json"))
    assert [path.parts[-3] for path in keys] == ["a", "b"]
    assert len({path.read_text() for path in keys}) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (tmp_path / "a", keys[0].parent)} == {0o700}
    simulated, _ = serve(system, data, MemoryGrid(two_nodes(system, data)))
    assert simulated.ledger_.is_simulation
    assert (simulated.item_factors_ != model.item_factors_).any()


def test_a_repeated_request_gets_the_same_message(data, tmp_path):
    system = FMFLDP(n_rounds=2)
    nodes = in_folders(system, data, tmp_path)
    grid = MemoryGrid(nodes)
    serve(system, data, grid, seed=None)
    first, *_, last = [message for message in requests_of(grid) if message.metadata.dst_node_id == 11]
    app, config = nodes[11]
    another_state = Message(RecordDict(dict(last.content)), metadata=last.metadata)
    factors = last.content["state"]["item-factors"].numpy() + np.float32(1)
    another_state.content["state"] = ArrayRecord({"item-factors": Array(factors)})
    same = [app(message, make_context(11, config)).content for message in (last, another_state)]
    assert set(same[0]["update"]) == {"coordinate", "total"}
    for field in same[0]["update"]:
        assert same[0]["update"][field].data == same[1]["update"][field].data
    assert same[0]["config"]["update.n-reports"] == same[1]["config"]["update.n-reports"] != bytes(8)
    late = app(first, make_context(11, config)).content
    assert "round 0 is over" in late["config"]["refusal"]


def test_a_second_run_is_for_the_node_to_allow(data, tmp_path):
    system = FMFLDP(n_rounds=1)
    serve(system, data, MemoryGrid(in_folders(system, data, tmp_path)), seed=None)
    with pytest.raises(RuntimeError, match=r"0 of 2 nodes joined.*took part in 1 runs, and max_runs is 1"):
        serve(system, data, MemoryGrid(in_folders(system, data, tmp_path)), seed=None)
    serve(system, data, MemoryGrid(in_folders(system, data, tmp_path, max_runs=2)), seed=None)
    assert len({path.read_text() for path in tmp_path.glob("a/run-*/key.json")}) == 2


@pytest.mark.parametrize("server_seed", [SEED, None])
def test_seeds_and_keys_do_not_mix(data, tmp_path, server_seed):
    system = FMFLDP(n_rounds=1)
    nodes = in_folders(system, data, tmp_path) if server_seed is not None else two_nodes(system, data)
    with pytest.raises(RuntimeError, match="a run is a simulation for all or none"):
        serve(system, data, MemoryGrid(nodes), seed=server_seed)


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_node_answers_are_unrelated_between_keys(data, tmp_path):
    """Two nodes with the same users and keys of their own draw other reports; with one seed, the same ones."""
    system = FMFLDP(n_rounds=1)

    def totals(app, configs, seed):
        grid, seen = MemoryGrid({11 + n: (app, config) for n, config in enumerate(configs)}), []
        grid.tamper = lambda reply: [seen.append(reply.content), reply][1:]
        serve(system, data, grid, seed=seed)
        return [content["update"]["total"].data for content in seen if "update" in content]

    shared_app = client_app(system, lambda context: data)
    separate = totals(shared_app, [{"name": name, "folder": str(tmp_path / name)} for name in "ab"], None)
    same = totals(client_app(system, lambda context: data, seed=SEED), [{"name": "a"}, {"name": "b"}], SEED)
    assert separate[0] != separate[1]
    assert same[0] == same[1]
