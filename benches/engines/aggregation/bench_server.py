"""Seconds and bytes of one node and of the server in a secure sum of many nodes.

    python benches engines.aggregation.bench_server --out docs/explanation/aggregation-costs.csv

One node and the server are measured; the other nodes only make the messages that these two need.  Seconds are those of
a processor, so that other processes change them little.
"""

import argparse
import csv
import math
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benches.floors import few
from fastfedrec import Key, doctor
from fastfedrec.core.version import __version__
from fastfedrec.engines.aggregation import AggregationNode, AggregationPlan, AggregationServer, Identity, choose_degree
from fastfedrec.engines.aggregation._messages import join_numbered, pack_nodes, read_key_list, split_numbered
from fastfedrec.engines.aggregation._sealing import is_signed
from fastfedrec.engines.aggregation.masks import add_masks
from fastfedrec.engines.aggregation.plan import STAGES
from fastfedrec.engines.aggregation.secret_sharing import SEED_BYTES, split_secret

NODES, ITEMS = (100, 1_000, 10_000), (1_000, 10_000)
HONEST, DROPPED = 0.8, 0.05
KEY = Key.from_seed(1)
SEALED_BYTES = 2 * SEED_BYTES + 16


def n_pairs(n_items):
    """Return the number of items and pairs of items."""
    return n_items * (n_items + 1) // 2


@dataclass
class Cost:
    """Bytes that a party sends and receives, and its seconds."""

    sent: int = 0
    received: int = 0
    seconds: float = 0.0

    def timed(self, function, *arguments):
        """Return the result of a call, and add its seconds."""
        started = time.process_time()
        result = function(*arguments)
        self.seconds += time.process_time() - started
        return result

    def answer(self, node, stage, message=b"", contribute=None):
        """Return the answer of a node to a message, and add its seconds and both sizes."""
        # Another node of this process may have checked the message.
        is_signed.cache_clear()
        read_key_list.cache_clear()
        answer = self.timed(node.answer, stage, message, contribute)
        self.received += len(message)
        self.sent += len(answer)
        return answer


class Nodes:
    """All nodes of a round after the first stage, of which some will not answer."""

    def __init__(self, n_nodes, n_values):
        n_answers = n_nodes - math.ceil(DROPPED * n_nodes)
        degree, threshold = choose_degree(n_nodes, honest_fraction=HONEST, min_answers=n_answers)
        # Most shares and vectors are no true ones, so every number of 32 bits must be a sum.
        self.plan = AggregationPlan(
            "costs", 0, n_values=n_values, max_sum=2**31 - 1, degree=degree, threshold=threshold, min_answers=n_answers
        )
        identities = (Identity(number.to_bytes(32, "big")) for number in range(1, n_nodes + 1))
        self.identities = sorted(identities, key=lambda identity: identity.name)
        self.names = [identity.name for identity in self.identities]
        self.roster = frozenset(self.names)  # all nodes hold this one
        self.nodes = [self.new_node(number) for number in range(n_nodes)]
        self.entries = [node.answer("keys", b"") for node in self.nodes]
        self.key_list = b"".join(self.entries)
        self.list = read_key_list(self.plan, self.key_list)
        self.gone = np.sort(np.argsort(KEY.words("dropouts", size=n_nodes))[n_answers:]).tolist()
        is_answer = np.ones(n_nodes, dtype=bool)
        is_answer[self.gone] = False
        self.answered = np.flatnonzero(is_answer).tolist()
        self.lists = pack_nodes(np.ones(n_nodes, dtype=bool), is_answer)

    def new_node(self, number):
        """Return a node that has answered no stage."""
        return AggregationNode(self.plan, self.identities[number], self.roster, KEY)

    def signatures(self, numbers):
        """Return signatures of the lists of answers, each after its node's number."""
        statement = self.list.statement(self.lists)
        return [(number, self.identities[number].sign(statement)) for number in numbers]

    def n_masks(self):
        """Return the number of masks that the server removes."""
        gone = set(self.gone)
        return len(self.answered) + sum(
            other not in gone for number in self.gone for other in self.list.neighbors(number)
        )


def node_cost(nodes):
    """Return the cost of the first node that answers all stages."""
    number = nodes.answered[0]
    sealed = [
        (other, split_numbered(nodes.nodes[other].answer("share", nodes.key_list), SEALED_BYTES)[number])
        for other in nodes.list.neighbors(number)
    ]
    witnesses = sorted(set(nodes.list.witnesses) & set(nodes.answered))
    messages = join_numbered(sealed), nodes.lists, join_numbered(nodes.signatures(witnesses))
    cost = Cost()
    node = cost.timed(nodes.new_node, number)
    vector = np.ones(nodes.plan.n_values, dtype=np.int64)
    for stage, message in zip(STAGES, (b"", nodes.key_list, *messages), strict=True):
        cost.answer(node, stage, message, lambda: vector)
    return cost


def answers(nodes):
    """Yield the answers of all nodes for each stage; only the shares of absent nodes' mask keys are true ones."""
    seal, vector = bytes(SEALED_BYTES), bytes(nodes.plan.n_values * nodes.plan.dtype.itemsize)
    everyone = range(len(nodes.names))
    yield ((number, nodes.entries[number]) for number in everyone)
    yield ((number, join_numbered((other, seal) for other in nodes.list.neighbors(number))) for number in everyone)
    yield ((number, vector) for number in nodes.answered)
    yield iter(nodes.signatures(nodes.answered))
    shares = {}
    for number in nodes.gone:
        neighbors = nodes.list.neighbors(number)
        threshold = nodes.plan.threshold_among(len(neighbors))
        seed = nodes.nodes[number]._mask_seed
        shares[number] = dict(
            zip(neighbors, split_secret(seed, len(neighbors), threshold, randomness=bytes(32)), strict=True)
        )
    any_share = bytes(SEED_BYTES)
    yield (
        (number, join_numbered((other, shares.get(other, {}).get(number, any_share)) for other in neighbors))
        for number in nodes.answered
        for neighbors in [nodes.list.neighbors(number)]
    )


def server_cost(nodes):
    """Return the cost of the server in a whole round."""
    cost, server = Cost(), AggregationServer(nodes.plan, nodes.roster)
    is_signed.cache_clear()
    read_key_list.cache_clear()
    for stage in answers(nodes):
        for number, message in stage:
            cost.timed(server.receive, nodes.names[number], message)
            cost.received += len(message)
        cost.sent += sum(len(message) for message in cost.timed(server.advance).values())
    if server.n_answers != len(nodes.answered):
        raise AssertionError("the server lacks answers")
    return cost


def server_peak(nodes):
    """Return the largest number of bytes that the server holds at a time."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        server_cost(nodes)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def vector_seconds(n_values):
    """Return the seconds of one sum of two vectors, and of one mask."""
    values, n_masks = np.ones((2, n_values), dtype=np.uint32), 5
    best = [math.inf, math.inf]
    for _ in range(few(3)):
        cost = Cost()
        cost.timed(np.add, *values, values[0])
        best[0] = min(best[0], cost.seconds)
        cost = Cost()
        cost.timed(add_masks, values[0], [bytes(32)] * n_masks, [1] * n_masks)
        best[1] = min(best[1], cost.seconds / n_masks)
    return best


def whole_server(nodes, measured, peak, n_values):
    """Return the cost and the peak of the server for other vectors, from those of a round of single numbers."""
    add, mask = vector_seconds(n_values)
    n_answers, more_bytes = len(nodes.answered), (n_values - 1) * nodes.plan.dtype.itemsize
    # A sum, the vector that arrives, and the total of 64 bits.
    return Cost(
        measured.sent,
        measured.received + n_answers * more_bytes,
        measured.seconds + n_answers * add + nodes.n_masks() * mask,
    ), peak + 4 * more_bytes


class Round:
    """Sums of one number for each item, with four of five nodes honest and a twentieth absent."""

    param_names, params, timeout = ("n_nodes", "n_items"), (NODES, ITEMS), 900

    def setup(self, n_nodes, n_items):
        self.nodes = Nodes(n_nodes, n_items)

    def track_node_seconds(self, n_nodes, n_items):
        return node_cost(self.nodes).seconds

    def track_node_bytes(self, n_nodes, n_items):
        cost = node_cost(self.nodes)
        return cost.sent + cost.received

    def track_server_seconds(self, n_nodes, n_items):
        return server_cost(self.nodes).seconds

    def track_server_bytes(self, n_nodes, n_items):
        cost = server_cost(self.nodes)
        return cost.sent + cost.received

    def track_server_peak(self, n_nodes, n_items):
        return server_peak(self.nodes)

    track_node_seconds.unit = track_server_seconds.unit = "seconds"
    track_node_bytes.unit = track_server_bytes.unit = track_server_peak.unit = "bytes"


def rows(node_counts, lengths):
    """Yield the cells of each number of nodes and length of a vector."""
    for n_nodes in node_counts:
        single = Nodes(n_nodes, 1)
        server, peak = server_cost(single), server_peak(single)
        for n_values in lengths:
            nodes = Nodes(n_nodes, n_values)
            node = node_cost(nodes)
            whole, whole_peak = whole_server(single, server, peak, n_values)
            yield [
                f"{n_nodes:,}", f"{nodes.plan.degree}", f"{n_values:,}",
                *(_megabytes(size) for size in (node.sent, node.received)), _seconds(node.seconds),
                *(_megabytes(size) for size in (whole.received, whole.sent)), _seconds(whole.seconds),
                _megabytes(whole_peak), _seconds(n_nodes * node.seconds + whole.seconds),
            ]  # fmt: skip


def _megabytes(size):
    return f"{size / 1e6:,.2f}" if size < 1e8 else f"{size / 1e6:,.0f}"


def _seconds(seconds):
    return f"{seconds:,.3f}" if seconds < 10 else f"{seconds:,.0f}"


HEADER = [
    "nodes", "neighbours", "numbers", "a node sends, MB", "receives, MB", "seconds", "the server receives, MB",
    "sends, MB", "seconds", "peak, MB", "all, seconds",
]  # fmt: skip


def main(argv=None):
    """Measure all rows, print them, and write the table of docs/explanation/aggregation.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--items", type=int, nargs="+", default=ITEMS)
    parser.add_argument("--out", type=Path, metavar="CSV")
    arguments = parser.parse_args(argv)
    lengths = [*arguments.items, *map(n_pairs, arguments.items)]
    cells = []
    for row in rows(arguments.nodes, lengths):
        print(" ".join(row), flush=True)
        cells.append(row)
    print(f"version {__version__}, {doctor.describe_machine()}")
    if arguments.out:
        with arguments.out.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *cells])


if __name__ == "__main__":
    main()
