"""Tests of servers and nodes that are killed, absent, or have damaged files: the same model or a clear error."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from support.flower_grid import (
    SEED,
    KilledError,
    MemoryGrid,
    dies,
    in_folders,
    make_context,
    of_node,
    requests_of,
    serve,
    time_of_the_server,
    two_nodes,
)

from fastfedrec import FMFLDP, DPGram, Key, NoAnswerError
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.engines.flower import client_app, server_app

# ---- a server that is killed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("is_simulation", [True, False])
def test_a_server_that_dies_comes_back(data, tmp_path, after, is_simulation):
    system = FMFLDP(n_rounds=3)
    nodes = two_nodes(system, data) if is_simulation else in_folders(system, data, tmp_path)
    options = {"folder": tmp_path / "server", "seed": SEED if is_simulation else None}
    # Each answered request of the first server is stored, so the second one does not repeat it.
    dying, restarted = MemoryGrid(nodes, dies(after)), MemoryGrid(nodes)
    with pytest.raises(KilledError):
        serve(system, data, dying, **options)
    model, engine = serve(system, data, restarted, **options)
    # Three rounds with two nodes are six requests; complete rounds before the kill are not repeated.
    assert len(requests_of(restarted)) == 6 - 2 * (after // 2)
    assert sum(model.ledger_.events.values()) == len(model.communication_.rounds) == len(engine.messages.rounds) == 3
    assert model.ledger_.epsilon("server", 0) == 3 * 250.0
    if is_simulation:
        np.testing.assert_array_equal(model.item_factors_, system.fit(data, key=Key.from_seed(SEED)).item_factors_)
    else:
        assert len(list(tmp_path.glob("a/run-*"))) == 1
        finished, _ = serve(system, data, MemoryGrid(nodes), **options)  # a run that is over is not run again
        np.testing.assert_array_equal(finished.item_factors_, model.item_factors_)


@pytest.mark.parametrize("is_simulation", [True, False])
def test_a_key_without_a_state_makes_no_noise(data, tmp_path, is_simulation):
    """Without its state a server cannot know the uses of its key, so it starts another run."""
    system = DPGram(4.0)
    options = {"folder": tmp_path / "server", "seed": SEED if is_simulation else None, "n_nodes": 2}
    nodes = two_nodes(system, data) if is_simulation else in_folders(system, data, tmp_path, max_runs=2)
    serve(system, data, MemoryGrid(nodes), **options)
    key = (tmp_path / "server/key.json").read_text()
    (tmp_path / "server/state").unlink()
    with pytest.raises(DamagedFileError, match="round-0-0' is damaged: the state of its run is missing"):
        serve(system, data, MemoryGrid(nodes), **options)
    for path in (tmp_path / "server").glob("round-*"):
        path.unlink()
    serve(system, data, MemoryGrid(nodes), **options)
    keys = [json.loads(text) for text in (key, (tmp_path / "server/key.json").read_text())]
    assert keys[0]["bound_to"]["run"] != keys[1]["bound_to"]["run"]
    # A simulation derives its key from the seed; a deployment draws a new one.
    assert (keys[0]["secret"] == keys[1]["secret"]) == is_simulation


@pytest.mark.parametrize("content", [b"", b"{", b"7", b"{}", bytes(99)])
@pytest.mark.parametrize("name", ["key.json", "state", "round-0-0"])
def test_a_damaged_file_of_the_server_is_named(data, tmp_path, name, content):
    system = DPGram(4.0)
    nodes = two_nodes(system, data)
    serve(system, data, MemoryGrid(nodes), folder=tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"{name}' is damaged: .*; put the folder back"):
        serve(system, data, MemoryGrid(nodes), folder=tmp_path)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("state", {"run": "../x"}, "must be named by 32 hexadecimal digits"),
        ("state", {"members": {}}, "members must be a dict of names"),
        ("state", {"members": {"a": -1, "b": 150}}, r"members\['a'\] must be at least 0"),
        ("state", {"members": {"a": "150", "b": 150}}, r"members\['a'\] must be an integer"),
        ("state", {"round": 2}, "round must be at most 1"),
        ("state", {"values": {}}, "FMFState must have the fields"),
        ("state", {"values": {"rotation": "x" * 50}}, "FMFState must have the fields|whole number"),
        ("state", {"rounds": [[1, 2]]}, "not enough values"),
        ("state", {"messages": [[1, 2, "3"]]}, "traffic must be an integer"),
    ],
)
def test_each_field_of_a_servers_state_is_checked(data, tmp_path, name, changes, complaint):
    system = FMFLDP(n_rounds=2)
    serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path)
    header, arrays = read_model(tmp_path / name)
    write_model(tmp_path / name, header | changes, arrays)
    with pytest.raises(DamagedFileError, match=f"{name}' is damaged: .*{complaint}"):
        serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path)


@pytest.mark.parametrize(
    ("changes", "spoil", "complaint"),
    [
        ({"n_clients": 301}, None, "n_clients must be at most the users of nodes that answered"),
        ({"n_clients": -1}, None, "n_clients must be at least 0"),
        ({"answered": ["a", "c"]}, None, "answered must only have members of the run"),
        ({"answered": [1]}, None, "must be text"),
        ({"rejections": [[0, "a"]]}, None, "not enough values"),
        ({"traffic": None}, None, "not iterable|cannot unpack"),
        ({}, lambda total: total[:-1], "must have shape"),
        ({}, lambda total: total * 1.0, "must have dtype"),
        ({}, lambda total: total - 2**60, "must be at least"),
    ],
)
def test_each_field_of_a_received_round_is_checked(data, tmp_path, changes, spoil, complaint):
    system, path = DPGram(4.0), tmp_path / "round-0-0"
    serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path)
    header, arrays = read_model(path)
    if spoil is not None:
        arrays = {name: spoil(array) for name, array in arrays.items()}
    write_model(path, header | changes, arrays)
    with pytest.raises(DamagedFileError, match=f"round-0-0' is damaged: .*({complaint})"):
        serve(system, data, MemoryGrid(two_nodes(system, data)), folder=tmp_path)


def test_a_node_with_a_damaged_file_names_it(data, tmp_path, caplog):
    system = FMFLDP(n_rounds=3)
    nodes = in_folders(system, data, tmp_path)

    def tamper(reply):
        if reply.metadata.message_type == "train" and reply.content["config"].get("round") == 0:
            for path in tmp_path.glob("b/run-*/key.json"):
                path.write_bytes(b"")
        return [reply]

    _, engine = serve(system, data, MemoryGrid(nodes, tamper), seed=None)
    reasons = {(r.round, r.sender): r.reason for r in engine.rejections if "refuses" in r.reason}
    assert set(reasons) == {(1, "b"), (2, "b")}
    assert all("a file of this node (key.json) is damaged" in reason for reason in reasons.values())
    assert str(tmp_path) not in "".join(reasons.values())  # the path stays private to the node
    assert f"{tmp_path}/b/run-" in caplog.text
    assert "take part in the next run" in caplog.text


def test_a_node_whose_data_change_in_mid_run_answers_no_more(data, tmp_path):
    system, now = FMFLDP(n_rounds=3, use_values=True), [data]
    app = client_app(system, lambda context: of_node(now[0])(context))
    nodes = {node: (app, {"name": name, "folder": str(tmp_path / name)}) for node, name in ((11, "a"), (12, "b"))}

    def tamper(reply):
        if reply.metadata.message_type == "train" and reply.content["config"].get("round") == 1:
            values = data.values.copy()
            values[data.indptr[1] : data.indptr[2]] += 1  # values of the second user, on node b
            now[0] = data._replace(values=values)
        return [reply]

    _, engine = serve(system, data, MemoryGrid(nodes, tamper), seed=None)
    reasons = {(r.round, r.sender): r.reason for r in engine.rejections if "refuses" in r.reason}
    assert {(2, "b")} <= set(reasons) <= {(1, "b"), (2, "b")}
    assert all("changed since it began this run" in reason for reason in reasons.values())


@pytest.mark.parametrize("system", [FMFLDP(n_rounds=2), DPGram(4.0)], ids=["own", "fit"])
def test_an_unanswered_run_is_an_error_and_its_last_round_is_repeated(data, tmp_path, system):
    nodes, options = two_nodes(system, data), {"folder": tmp_path}
    finished = []
    app = server_app(system, data.item_ids, lambda *results: finished.append(results), n_nodes=2, seed=SEED,
                     join_timeout=0.3, round_timeout=0.3, **options)  # fmt: skip
    with pytest.raises(NoAnswerError, match="so there is no model") as caught, time_of_the_server():
        app(
            MemoryGrid(nodes, lambda reply: [] if reply.metadata.message_type == "train" else [reply]),
            make_context(1, {}),
        )
    assert not finished
    assert {r.sender for r in caught.value.rejections} == {"a", "b"}
    assert caught.value.ledger.events
    assert not list(tmp_path.glob("round-*"))
    model, engine = serve(system, data, MemoryGrid(nodes), **options)
    assert not engine.rejections
    assert np.isfinite(model.item_factors_).all()


def test_a_run_is_resumed_without_a_member_that_is_gone(data, tmp_path):
    system = FMFLDP(n_rounds=2)
    nodes = two_nodes(system, data)
    with pytest.raises(KilledError):
        serve(system, data, MemoryGrid(nodes, dies(2)), folder=tmp_path)
    _, engine = serve(system, data, MemoryGrid({11: nodes[11]}), folder=tmp_path)
    assert [(r.round, r.sender, r.reason) for r in engine.rejections] == [(1, "b", "no acceptable message arrived")]
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        serve(FMFLDP(n_rounds=3), data, MemoryGrid(nodes), folder=tmp_path)


@pytest.mark.parametrize("number", [12, 99])
def test_a_node_that_is_killed_comes_back_in_the_round(data, number):
    """The node loses its connection after a request, returns with the same or another number, and gets the request."""
    system = FMFLDP(n_rounds=3)
    nodes, gone = two_nodes(system, data), []

    class Returning(MemoryGrid):
        def get_node_ids(self):
            there = super().get_node_ids()
            if gone:
                self.nodes[number] = gone.pop()
            return there

    def tamper(reply):
        is_b = reply.metadata.src_node_id == 12 and reply.metadata.message_type == "train"
        if is_b and reply.content["config"]["round"] == 1 and not killed:
            killed.append(gone.append(grid.nodes.pop(12)))
            return []
        return [reply]

    killed, grid = [], Returning(nodes, tamper)
    model, engine = serve(system, data, grid, round_timeout=20)
    np.testing.assert_array_equal(model.item_factors_, system.fit(data, key=Key.from_seed(SEED)).item_factors_)
    assert engine.rejections == []
    requested = [message.metadata.dst_node_id for message in requests_of(grid)]
    # Three rounds with two nodes are six requests, and the lost one is repeated.
    assert len(requested) == 7
    assert number in requested


def test_a_node_that_stays_away_is_waited_for_once(data):
    system = FMFLDP(n_rounds=4)
    looks, since = [0], []  # how often the server looked who is there, in all and at each of a's answers

    class Counting(MemoryGrid):
        def get_node_ids(self):
            looks[0] += 1
            return super().get_node_ids()

    def tamper(reply):
        if reply.metadata.message_type != "train":
            return [reply]
        if reply.metadata.src_node_id == 12:
            grid.nodes.pop(12)
            return []
        since.append(looks[0])
        return [reply]

    grid = Counting(two_nodes(system, data), tamper)
    _, engine = serve(system, data, grid, round_timeout=0.5)
    assert [(r.round, r.sender) for r in engine.rejections] == [(number, "b") for number in range(4)]
    waited, *later = np.diff(since)
    assert waited > 3
    assert later == [1, 1]


SERVER = """
import os, signal, sys
import numpy as np
from fastfedrec import FMFLDP
from fastfedrec.datasets import generate_implicit
from support.flower_grid import KEY, MemoryGrid, serve, two_nodes

def tamper(reply):
    count.extend([1] * (reply.metadata.message_type == "train"))
    if len(count) == 5 and sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return [reply]

count, system, data = [], FMFLDP(n_rounds=4), generate_implicit(300, 60, key=KEY, ratings=True)
model, _ = serve(system, data, MemoryGrid(two_nodes(system, data), tamper), folder=sys.argv[1])
np.save(os.path.join(sys.argv[1], "model.npy"), model.item_factors_)
"""


def test_sigkill_of_the_server(data, tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-P", "-c", textwrap.dedent(SERVER), str(tmp_path / "server")]
    dead = subprocess.run([*command, "dies"], env=environment, check=False, capture_output=True)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    assert not (tmp_path / "server/model.npy").exists()
    subprocess.run([*command, "lives"], env=environment, check=True)
    here = FMFLDP(n_rounds=4).fit(data, key=Key.from_seed(SEED))
    np.testing.assert_array_equal(np.load(tmp_path / "server/model.npy"), here.item_factors_)
