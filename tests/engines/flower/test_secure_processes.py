"""A secure sum of twenty Flower nodes, each with processes of its own, with dropouts and a killed server."""

import importlib
import os
import signal

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from engines.flower.test_processes import EXAMPLES, Federation, pytestmark, wait_for  # noqa: F401 -- marks of pytest
from support.patience import HANG
from support.secure_nodes import noise_of

from fastfedrec.core.model_files import read_model
from fastfedrec.engines.aggregation import node_name

N = 20
# Flower ends a process that has not started within 30 s, and its first request then has the answer 401.  Twenty
# processes on two processors take longer.
PATIENT = f"import flwr.common.constant\n\nflwr.common.constant.HEARTBEAT_DEFAULT_INTERVAL = {HANG:.0f}\n"
# The server stops to wait for node 0 when it has the keys of all others, and not after a time.
CLOCK = """
class Clock:
    names = set()

    @classmethod
    def monotonic(cls):
        return 1e9 if len(cls.names) == N - 1 else 0.0

    @staticmethod
    def sleep(seconds):
        time.sleep(seconds)


def receive_signed(self, stage, message, receive=secure_sums.AggregationServer.receive_signed):
    name = receive(self, stage, message)
    Clock.names.add(name)
    return name


secure_sums.time, secure_sums.AggregationServer.receive_signed = Clock, receive_signed
"""


@pytest.fixture
def federation(tmp_path):
    roster, patient = tmp_path / "roster.txt", tmp_path / "patient"
    roster.write_text("\n".join(node_name(tmp_path / f"node-{i}") for i in range(N)))
    patient.mkdir()
    (patient / "sitecustomize.py").write_text(PATIENT)
    path = os.pathsep.join(filter(None, [str(patient), os.environ.get("PYTHONPATH")]))
    there = Federation(tmp_path, EXAMPLES / "secure_counts", None, FASTFEDREC_ROSTER=str(roster), PYTHONPATH=path)
    program = there.app / "secure_counts.py"
    text = program.read_text()
    for old, new in (
        ("_timeout=600.0", f"_timeout={HANG}"),
        ("import os\n", "import os\nimport time\n"),
        ("server_app = ServerApp()\n", f"server_app = ServerApp()\n{CLOCK.replace('N - 1', str(N - 1))}"),
        ("import secure_client_app, secure_sum\n", "import secure_client_app, secure_sum, secure_sums\n"),
    ):
        assert old in text
        text = text.replace(old, new)
    program.write_text(text)
    yield there
    there.close()


def test_twenty_nodes_with_dropouts_at_each_stage_and_a_killed_server(federation, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEDREC_ROSTER", str(tmp_path / "roster.txt"))
    monkeypatch.syspath_prepend(str(federation.app))
    task = importlib.import_module("secure_counts")
    state, memory = tmp_path / "server/round-0", f"sums-{task.SUMS.digest}"

    def has_stored(node, stage):
        path = tmp_path / f"node-{node}" / memory / "round-0"
        return path.exists() and f"{stage}.answer" in read_model(path)[1]

    def drop(node):
        """Take a node's folder away, so that it refuses all further messages."""
        (tmp_path / f"node-{node}").rename(tmp_path / f"gone-{node}")

    def is_at(stage):
        return state.exists() and read_model(state)[0]["stage"] == stage

    # Node 0 never comes.  Nodes 1 to 3 leave after their keys, after their vectors, and before their shares of seeds.
    for node in range(1, N):
        federation.start_node(f"node-{node}", node)
    federation.run()
    wait_for(lambda: has_stored(1, "keys"))
    drop(1)
    wait_for(lambda: is_at("mask"))
    for pid in wait_for(lambda: federation.processes("flwr-serverapp")):
        os.kill(pid, signal.SIGKILL)
    federation.run()
    wait_for(lambda: is_at("confirm"))
    drop(2)
    wait_for(lambda: is_at("reveal"))
    drop(3)
    result = tmp_path / "server/result-0"
    wait_for(result.exists)
    header, arrays = read_model(result)
    there = range(2, N)
    assert header["n_answers"] == N - 2
    folders = [tmp_path / f"{'gone' if node < 4 else 'node'}-{node}" for node in there]
    noise = sum(noise_of(folder, task.SUMS, 0) for folder in folders)
    np.testing.assert_array_equal(arrays["total"], counts(task, there) + noise)
    assert (noise != 0).any()
    answers = [read_model(folder / memory / "round-0")[1] for folder in folders]
    assert sum("reveal.answer" in answer for answer in answers) >= N - 4


def counts(task, nodes):
    """Return the exact counts of nodes."""

    class Context:
        node_config = {}  # noqa: RUF012 -- as Flower's

    total = 0
    for node in nodes:
        Context.node_config["partition-id"] = node
        total = total + task.count(None, Context)
    return total
