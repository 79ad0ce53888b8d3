"""Long runs on Flower with hostile, late and silent nodes: flat memory, and a ledger of those who answered."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import Array
from support.flower_grid import MemoryGrid, serve
from support.soak import MAX_GROWTH, N_NODES, MemoryProbe, count_answers, kind_of, record

from fastfedrec import FMFLDP, Key
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines.flower import client_app


class MixedGrid(MemoryGrid):
    """Grid with three nodes that do not answer well, which keeps no messages, and notes the memory."""

    def __init__(self, nodes, probe, leaks=False):
        super().__init__(nodes, self.change)
        self.probe, self.leaks, self.noted = probe, leaks, -1

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        if not self.leaks:
            self.asked.clear()
        return ids

    def change(self, reply):
        if reply.metadata.message_type != "train" or not reply.has_content():
            return [reply]
        round_number = reply.content["config"]["round"]
        if round_number != self.noted:  # the first answer of a round
            self.noted = round_number
            self.probe(None, round_number)
        kind = kind_of(reply.metadata.src_node_id, round_number)
        if kind == "late":
            reply.content["config"]["round"] = round_number - 1
        if kind == "hostile":
            reply.content["update"]["total"] = Array(np.zeros(3, dtype=np.int64))
        return [] if kind == "silent" else [reply]


def run(n_rounds, probe, *, leaks=False):
    """Serve nodes in this process, and return the model, the engine and the numbers of users of the nodes."""
    data = generate_implicit(310, 2_000, key=Key.from_seed(7))
    users = np.array_split(np.arange(data.n_users), N_NODES)
    app = client_app(
        FMFLDP(n_rounds=n_rounds), lambda context: data.select_users(users[context.node_config["number"]]), seed=3
    )
    nodes = {node: (app, {"name": f"node-{node}", "number": node}) for node in range(N_NODES)}
    grid = MixedGrid(nodes, probe, leaks)
    model, engine = serve(FMFLDP(n_rounds=n_rounds), data, grid, n_nodes=N_NODES)
    return model, engine, [len(part) for part in users]


def check_two_hundred_rounds():
    """Run 200 rounds, check the memory, the ledger and the refusals, and return the probe."""
    probe = MemoryProbe(50, 200)
    model, engine, sizes = run(200, probe)
    assert probe.growth < MAX_GROWTH
    counts = {event.n_users: times for event, times in model.ledger_.events.items()}
    assert counts == count_answers(sizes, 200)
    kinds = [rejection.kind for rejection in engine.rejections]
    assert kinds.count("late") == kinds.count("invalid") == 200
    assert kinds.count("missing") == 3 * 200
    return probe


@pytest.mark.nightly
def test_two_hundred_rounds_on_flower_leave_the_memory_flat():
    check_two_hundred_rounds()


@pytest.mark.nightly
def test_messages_that_are_kept_in_each_round_are_seen_in_the_memory():
    """The control: a leak in fewer rounds."""
    probe = MemoryProbe(5, 25)
    run(25, probe, leaks=True)
    assert probe.growth > MAX_GROWTH


if __name__ == "__main__":
    record("Flower", 200, check_two_hundred_rounds())
