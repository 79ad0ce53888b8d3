"""Tests of the figures of benches/engines/aggregation/bench_server.py; no test measures time."""

import csv
from pathlib import Path

import pytest
from support.benches_module import load_benches

pytest.importorskip("cryptography")

TABLE = Path(__file__).parents[1] / "docs/explanation/aggregation-costs.csv"


@pytest.fixture(scope="module")
def costs():
    return load_benches("engines.aggregation.bench_server")


def test_bytes_of_a_node_by_hand(costs):
    nodes = costs.Nodes(60, 7)
    degree, n_witnesses = nodes.plan.degree, len(set(nodes.list.witnesses) & set(nodes.answered))
    cost = costs.node_cost(nodes)
    # Keys, sealed shares, numbers, a signature and revealed shares; and the lists of keys and of nodes, and signatures.
    assert cost.sent == 160 + degree * (4 + 48) + 7 * 4 + 64 + degree * (4 + 16)
    assert cost.received == 60 * 160 + degree * (4 + 48) + 2 * 8 + n_witnesses * (4 + 64)


def test_derived_bytes_are_those_of_a_measured_round(costs):
    single, nodes = costs.Nodes(60, 1), costs.Nodes(60, 7)
    derived, _ = costs.whole_server(single, costs.server_cost(single), 0, 7)
    measured = costs.server_cost(nodes)
    assert (derived.sent, derived.received) == (measured.sent, measured.received)
    assert single.n_masks() == 57 + sum(
        other in single.answered for number in single.gone for other in single.list.neighbors(number)
    )


def test_derived_memory_is_that_of_a_measured_round(costs):
    n_values = 200_000
    single, nodes = costs.Nodes(60, 1), costs.Nodes(60, n_values)
    _, derived = costs.whole_server(single, costs.server_cost(single), costs.server_peak(single), n_values)
    measured = costs.server_peak(nodes)
    # The control is the memory of one vector of each node.
    assert measured < 1.1 * derived < 60 * 4 * n_values / 5


def test_the_page_has_every_row(costs):
    assert f":file: {TABLE.name}" in TABLE.with_name("aggregation.md").read_text()
    header, *cells = csv.reader(TABLE.read_text().splitlines())
    assert header == costs.HEADER
    lengths = [*costs.ITEMS, *map(costs.n_pairs, costs.ITEMS)]
    expected = [(f"{n_nodes:,}", f"{n_values:,}") for n_nodes in costs.NODES for n_values in lengths]
    assert [(row[0], row[2]) for row in cells] == expected
