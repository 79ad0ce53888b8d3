"""Secure sums over Flower: exact sums, dropouts at each stage, restarts of both sides, and refused messages."""

import os
import signal
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from support.flower_grid import KilledError, MemoryGrid, make_context
from support.maintainers import load_program
from support.patience import Clock
from support.secure_nodes import noise_of

from fastfedrec.accounting import Ledger
from fastfedrec.core.model_files import read_model
from fastfedrec.engines.aggregation import AggregationError, SecureSums, node_name
from fastfedrec.engines.aggregation.plan import STAGES
from fastfedrec.engines.flower import secure_client_app, secure_sum, secure_sums

WIDTH = 5


class Nodes:
    """Nodes of one agreement, each with a folder and a vector of its own."""

    def __init__(self, folder, n=9, **changed):
        self.folders = {100 + i: folder / f"node-{i}" for i in range(n)}
        self.names = {node: node_name(path) for node, path in self.folders.items()}
        options = {"n_values": WIDTH, "max_value": 50, "l2_sensitivity": 3.0, "variance": 60,
                   "honest_fraction": 0.9, "min_answers": n - 2, "n_rounds": 3}  # fmt: skip
        self.sums = SecureSums("test", list(self.names.values()), **(options | changed))
        self.n_calls = defaultdict(int)
        self.app = secure_client_app(self.sums, self.contribute)

    def contribute(self, message, context):
        self.n_calls[context.node_id] += 1
        return self.vector(context.node_id)

    @staticmethod
    def vector(node):
        return (np.arange(WIDTH) * node) % 101 - 50

    def grid(self, hook=None, app=None):
        return StagedGrid({node: (app or self.app, {"folder": str(path)}) for node, path in self.folders.items()}, hook)

    def expected(self, gone=(), round=0):
        """Return the sum of the vectors and of the noise that the nodes' keys give."""
        there = [node for node in self.folders if node not in gone]
        noise = [noise_of(self.folders[node], self.sums, round) for node in there]
        return sum(self.vector(node) for node in there) + sum(noise)


class StagedGrid(MemoryGrid):
    """Grid that calls `hook(grid, stage, node)` for each request; the request is lost unless it returns True."""

    def __init__(self, nodes, hook=None):
        super().__init__(nodes)
        self.hook, self.answers = hook, defaultdict(set)

    def push_messages(self, messages):
        (message,) = messages
        stage, node = message.content["secure-sum"]["stage"], message.metadata.dst_node_id
        if self.hook is not None and not self.hook(self, stage, node):
            return []
        ids = super().push_messages(messages)
        for reply in self.replies[ids[0]]:
            if "secure-sum" in reply.content:
                key = node, message.content["secure-sum"]["round"], stage
                self.answers[key].add(reply.content["secure-sum"]["answer"])
        return ids


def leaving(leavers):
    """Return a hook with nodes that leave before they answer in a stage: {stage: nodes}."""

    def hook(grid, stage, node):
        if node in leavers.get(stage, ()):
            grid.nodes.pop(node)
            return False
        return True

    return hook


def run(nodes, grid, round=0, **options):
    ledger = options.pop("ledger", None) or Ledger()
    with mock.patch.object(secure_sums, "time", Clock()):
        return secure_sum(grid, nodes.sums, round, ledger=ledger, **({"stage_timeout": 5.0} | options))


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_the_sum_is_that_of_the_vectors_and_of_each_nodes_noise(tmp_path):
    nodes, ledger = Nodes(tmp_path), Ledger()
    result = run(nodes, nodes.grid(), ledger=ledger)
    np.testing.assert_array_equal(result.total, nodes.expected())
    assert (result.n_answers, dict(result.refusals)) == (9, {})
    assert (result.total != sum(map(nodes.vector, nodes.folders))).any()  # it has noise
    # Each node has noise of its own.
    assert len({noise_of(path, nodes.sums, 0).tobytes() for path in nodes.folders.values()}) == 9
    assert dict(ledger.events) == {nodes.sums.event(): 1}
    assert not ledger.is_simulation


def test_another_round_has_other_noise_and_other_masks(tmp_path):
    nodes = Nodes(tmp_path)
    grid = nodes.grid()
    totals = [run(nodes, grid, round).total for round in (0, 1)]
    for round, total in enumerate(totals):
        np.testing.assert_array_equal(total, nodes.expected(round=round))
    assert (totals[0] != totals[1]).any()
    for node in nodes.folders:
        assert grid.answers[node, 0, "mask"] != grid.answers[node, 1, "mask"]


@pytest.mark.parametrize("stage", STAGES)
def test_nodes_that_leave_at_a_stage(tmp_path, stage):
    nodes, gone = Nodes(tmp_path), {101, 106}
    result = run(nodes, nodes.grid(leaving({stage: gone})))
    has_arrived = stage in ("confirm", "reveal")
    np.testing.assert_array_equal(result.total, nodes.expected(() if has_arrived else gone))
    assert result.n_answers == (9 if has_arrived else 7)
    late = f"it sent no answer in stage {stage!r} in time"
    assert dict(result.refusals) == {nodes.names[node]: late for node in gone}


def test_the_servers_records_reach_the_function_of_the_vectors(tmp_path):
    nodes = Nodes(tmp_path)

    def contribute(message, context):
        return message.content["model"]["step"].numpy() * np.ones(WIDTH, dtype=np.int64)

    content = RecordDict({"model": ArrayRecord({"step": Array(np.array(7))})})
    result = run(nodes, nodes.grid(app=secure_client_app(nodes.sums, contribute)), content=content)
    noise = sum(noise_of(path, nodes.sums, 0) for path in nodes.folders.values())
    np.testing.assert_array_equal(result.total, 9 * 7 + noise)


def test_the_example(tmp_path, monkeypatch, capsys):
    folders = {100 + i: tmp_path / f"node-{i}" for i in range(20)}
    (tmp_path / "roster.txt").write_text("\n".join(map(node_name, folders.values())))
    monkeypatch.setenv("FASTFEDREC_ROSTER", str(tmp_path / "roster.txt"))
    monkeypatch.setenv("FASTFEDREC_FOLDER", str(tmp_path / "server"))
    program = load_program("examples/flower/secure_counts/secure_counts")
    # Flower finds an app by an assignment of its name alone.
    for name in ("client_app", "server_app"):
        assert f"\n{name} = " in Path(program.__file__).read_text()
    nodes = {node: {"folder": str(path), "partition-id": node} for node, path in folders.items()}
    grid = MemoryGrid({node: (program.client_app, config) for node, config in nodes.items()})
    program.server_app(grid, make_context(1, {}))
    exact = sum(program.count(None, make_context(node, config)) for node, config in nodes.items())
    noise = sum(noise_of(path, program.SUMS, 0) for path in folders.values())
    np.testing.assert_array_equal(read_model(tmp_path / "server/result-0")[1]["total"], exact + noise)
    assert exact.sum() == 20 * 25
    assert "20 nodes; most frequent items" in capsys.readouterr().out


# ---- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("has_folder", [True, False])
def test_a_killed_server_continues_and_no_node_answers_a_stage_in_two_ways(tmp_path, stage, has_folder):
    nodes, requests = Nodes(tmp_path), []

    def dies(grid, now, node):
        requests.append(now)
        if requests.count(stage) > 4:
            raise KilledError
        return True

    folder = tmp_path / "server" if has_folder else None
    first, second = nodes.grid(dies), nodes.grid()
    with pytest.raises(KilledError):
        run(nodes, first, folder=folder)
    result = run(nodes, second, folder=folder)
    np.testing.assert_array_equal(result.total, nodes.expected())
    assert result.n_answers == 9
    # Answers before and after the restart are the same bytes: no share, mask or signature is made twice.
    assert all(len(first.answers[key] | second.answers[key]) == 1 for key in second.answers)
    assert all(count == 1 for count in nodes.n_calls.values())


def test_a_finished_sum_is_read_from_the_folder(tmp_path):
    nodes = Nodes(tmp_path)
    result = run(nodes, nodes.grid(), folder=tmp_path / "server")
    ledger = Ledger()
    again = run(nodes, nodes.grid(leaving({"keys": set(nodes.folders)})), folder=tmp_path / "server", ledger=ledger)
    np.testing.assert_array_equal(again.total, result.total)
    assert again.n_answers == result.n_answers
    assert sum(ledger.events.values()) == 1


@pytest.mark.parametrize("stage", ["share", "mask", "reveal"])
def test_a_sum_with_too_few_answers_has_no_result_until_the_nodes_are_back(tmp_path, stage):
    nodes, folder, ledger = Nodes(tmp_path), tmp_path / "server", Ledger()
    with pytest.raises(AggregationError, match="min_answers is 7" if stage != "reveal" else "are needed"):
        run(nodes, nodes.grid(leaving({stage: range(100, 106)})), folder=folder, ledger=ledger)
    assert sum(ledger.events.values()) == 1  # a sum without a result counts
    back = nodes.grid()
    np.testing.assert_array_equal(run(nodes, back, folder=folder).total, nodes.expected())
    assert all(len(answers) == 1 for answers in back.answers.values())


def test_a_restarted_server_that_lost_its_folder_gets_no_second_list(tmp_path):
    # Nodes have masked for a list of nine; without two of them the list differs, so no node answers.
    nodes = Nodes(tmp_path)

    def dies(grid, stage, node):
        if stage == "confirm":
            raise KilledError
        return True

    with pytest.raises(KilledError):
        run(nodes, nodes.grid(dies))
    with pytest.raises(AggregationError, match="0 nodes answered in stage 'share'"):
        run(nodes, nodes.grid(leaving({"keys": {101, 106}})))
    # The nodes have left the sum, so that no later list is tried either; another sum is possible.
    with pytest.raises(AggregationError, match="nodes answered in stage 'keys', and min_answers is 7"):
        run(nodes, nodes.grid())
    np.testing.assert_array_equal(run(nodes, nodes.grid(), round=1).total, nodes.expected(round=1))


SERVER = """
import os, signal, sys
from pathlib import Path
import numpy as np
from engines.flower.test_secure_sums import Nodes, run

def dies(grid, stage, node):
    count.append(stage)
    if count.count("reveal") == 4 and sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return True

count, folder = [], Path(sys.argv[1])
nodes = Nodes(folder)
result = run(nodes, nodes.grid(dies), folder=folder / "server")
np.testing.assert_array_equal(result.total, nodes.expected())
print(result.n_answers)
"""


def test_sigkill_of_the_server_and_its_nodes(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-P", "-c", textwrap.dedent(SERVER), str(tmp_path)]
    dead = subprocess.run([*command, "dies"], env=environment, check=False, capture_output=True)
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()
    alive = subprocess.run([*command, "lives"], env=environment, check=True, capture_output=True)
    assert alive.stdout.split() == [b"9"]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def answer_of(nodes, node, stage, message, round=0, digest=None):
    """Return a node's answer, or its refusal, to a message of a dishonest server."""
    nodes.grid()  # makes the process one of Flower's
    record = {"sums": digest or nodes.sums.digest, "round": round, "stage": stage, "message": message}
    content = RecordDict({"secure-sum": ConfigRecord(record)})
    request = Message(content, dst_node_id=node, message_type="train")
    request.metadata.__dict__["_message_id"] = "1"
    reply = nodes.app(request, make_context(node, {"folder": str(nodes.folders[node])}))
    return reply.content["config"]["refusal"] if "config" in reply.content else reply.content["secure-sum"]["answer"]


def requests_of(nodes, **options):
    """Return the messages of a sum by stage and node."""
    sent = {}
    grid = nodes.grid()
    run(nodes, grid, **options)
    for message in grid.asked:
        record = message.content["secure-sum"]
        sent[record["stage"], message.metadata.dst_node_id] = record["message"]
    return sent


def test_a_node_reveals_one_secret_of_each_neighbour_even_in_another_process(tmp_path):
    nodes = Nodes(tmp_path)
    sent = requests_of(nodes)
    stored = answer_of(nodes, 103, "reveal", sent["reveal", 103])
    assert isinstance(stored, bytes)
    assert answer_of(nodes, 103, "reveal", sent["reveal", 103]) == stored
    # Another list of answers would have the other secret of a node revealed.
    lists = bytearray(sent["confirm", 103])
    lists[-2] ^= 0x80
    assert "out of order, or differs from the first one" in answer_of(nodes, 103, "confirm", bytes(lists))
    for stage in STAGES:
        assert "left it: start another sum" in answer_of(nodes, 103, stage, sent[stage, 103])


def test_a_node_that_answers_twice_counts_once(tmp_path):
    nodes = Nodes(tmp_path)

    def twice(reply):
        if "secure-sum" not in reply.content:
            return [reply]
        other = RecordDict({"secure-sum": ConfigRecord({"answer": reply.content["secure-sum"]["answer"][:-1] + b"x"})})
        return [reply, Message(other, metadata=reply.metadata)]

    grid = nodes.grid()
    grid.tamper = twice
    result = run(nodes, grid)
    np.testing.assert_array_equal(result.total, nodes.expected())
    assert result.n_answers == 9


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda answer: answer[:-1] + bytes([answer[-1] ^ 1]), "lacks the signature"),
        (lambda answer: b"", "lacks the signature"),
        (lambda answer: 10**12, "an answer must be bytes, got int"),
        (lambda answer: "text", "an answer must be bytes, got str"),
    ],
)
@pytest.mark.parametrize("stage", ["keys", "mask"])
def test_garbage_is_refused_by_name_and_the_sum_goes_on(tmp_path, stage, answer, reason):
    nodes, stages = Nodes(tmp_path), {}

    def spoil(reply):
        if reply.metadata.src_node_id != 104 or stages[104] != stage:
            return [reply]
        content = answer(reply.content["secure-sum"]["answer"])
        return [Message(RecordDict({"secure-sum": ConfigRecord({"answer": content})}), metadata=reply.metadata)]

    def hook(grid, stage, node):
        stages[node] = stage
        return True

    grid = nodes.grid(hook)
    grid.tamper = spoil
    result = run(nodes, grid)
    np.testing.assert_array_equal(result.total, nodes.expected({104}))
    assert reason in result.refusals["104" if stage == "keys" else nodes.names[104]]
    assert set(result.refusals) <= {"104", nodes.names[104]}


@pytest.mark.parametrize("n_failures", [1, 3, 4])
def test_a_node_that_ends_without_an_answer_is_asked_again(tmp_path, n_failures):
    nodes, failures = Nodes(tmp_path), defaultdict(int)

    class FailingGrid(MemoryGrid):
        def pull_messages(self, message_ids):
            replies = super().pull_messages(message_ids)
            for number, reply in enumerate(replies):
                stage = self.asked[-1].content["secure-sum"]["stage"]
                if reply.metadata.src_node_id == 103 and failures[stage] < n_failures * (stage == "confirm"):
                    failures[stage] += 1
                    replies[number] = Message(error=Error(1, "the process has ended"), metadata=reply.metadata)
            return replies

    grid = FailingGrid({node: (nodes.app, {"folder": str(path)}) for node, path in nodes.folders.items()})
    result = run(nodes, grid)
    np.testing.assert_array_equal(result.total, nodes.expected())
    assert failures["confirm"] == n_failures
    reason = "the node failed: 'the process has ended'"
    assert dict(result.refusals) == ({nodes.names[103]: reason} if n_failures == 4 else {})


def test_a_stranger_is_refused(tmp_path):
    nodes = Nodes(tmp_path)
    (tmp_path / "stranger").mkdir()
    grid = nodes.grid()
    node_name(tmp_path / "stranger")
    grid.nodes[999] = nodes.app, {"folder": str(tmp_path / "stranger")}
    grid.nodes[998] = nodes.app, {}
    result = run(nodes, grid)
    np.testing.assert_array_equal(result.total, nodes.expected())
    assert "is not in the roster" in result.refusals["999"]
    assert "has no folder for its keys" in result.refusals["998"]


@pytest.mark.parametrize(
    ("value", "kind"), [(51, "ValueError"), (0.5, "ValueError|TypeError"), (None, "RuntimeError")], ids=str
)
def test_a_vector_that_breaks_the_agreement_is_not_sent(tmp_path, value, kind):
    nodes = Nodes(tmp_path)

    def contribute(message, context):
        if context.node_id != 105:
            return nodes.vector(context.node_id)
        if value is None:
            raise RuntimeError("the secret of a user")
        return np.full(WIDTH, value)

    nodes.app = secure_client_app(nodes.sums, contribute)
    grid = nodes.grid()
    result = run(nodes, grid)
    np.testing.assert_array_equal(result.total, nodes.expected({105}))
    reason = result.refusals[nodes.names[105]]
    assert any(f"the node failed ({name})" in reason for name in kind.split("|"))
    assert "secret" not in reason
    # A server cannot try requests until one is answered.
    assert "left it: start another sum" in answer_of(nodes, 105, "keys", b"")


def test_a_node_refuses_other_agreements_and_further_sums(tmp_path):
    nodes = Nodes(tmp_path)
    assert "another agreement" in answer_of(nodes, 100, "keys", b"", digest="0" * 32)
    assert "the node failed (ValueError)" in answer_of(nodes, 100, "keys", b"", round=3)
    assert "the node failed (ValueError)" in answer_of(nodes, 100, "unmask", b"")
    assert isinstance(answer_of(nodes, 100, "keys", b"", round=2), bytes)


def test_the_ledger_has_the_sum_before_a_message_leaves(tmp_path):
    nodes, ledger = Nodes(tmp_path), Ledger()

    def dies(grid, stage, node):
        raise KilledError

    with pytest.raises(KilledError):
        run(nodes, nodes.grid(dies), ledger=ledger)
    assert dict(ledger.events) == {nodes.sums.event(): 1}


def test_arguments_are_checked(tmp_path):
    nodes = Nodes(tmp_path)
    with pytest.raises(TypeError, match="sums must be SecureSums, got NoneType"):
        secure_client_app(None, nodes.contribute)
    with pytest.raises(TypeError, match="ledger must be Ledger, got NoneType"):
        secure_sum(nodes.grid(), nodes.sums, ledger=None)
    with pytest.raises(ValueError, match="stage_timeout must be"):
        run(nodes, nodes.grid(), stage_timeout=0)
    with pytest.raises(ValueError, match="round must be"):
        run(nodes, nodes.grid(), round=3)
