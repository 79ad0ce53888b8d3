"""The parameters of a secure sum, and its graph."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec.engines.aggregation.plan import (
    AggregationPlan,
    choose_degree,
    neighbors_of,
    shuffled_nodes,
    witnesses_of,
)

FIELDS = {"n_values": 3, "max_sum": 100, "degree": 4, "threshold": 3, "min_answers": 4}


def plan(**changed):
    return AggregationPlan("test", 7, **(FIELDS | changed))


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(n_nodes=st.integers(2, 80), degree=st.integers(1, 20).map(lambda half: 2 * half), seed=st.binary(max_size=8))
def test_the_graph_is_regular_and_symmetric_and_connected(n_nodes, degree, seed):
    order = shuffled_nodes(plan(), seed, n_nodes)
    assert sorted(order.tolist()) == list(range(n_nodes))
    neighbors = {int(order[position]): neighbors_of(order, position, degree) for position in range(n_nodes)}
    assert {len(others) for others in neighbors.values()} == {min(degree, n_nodes - 1)}
    assert all(node in neighbors[other] for node, others in neighbors.items() for other in others)
    reached, queue = {0}, [0]
    while queue:
        new = set(neighbors[queue.pop()]) - reached
        reached |= new
        queue += new
    assert len(reached) == n_nodes


def test_each_key_list_and_round_has_another_graph():
    orders = [shuffled_nodes(AggregationPlan("test", n, **FIELDS), seed, 50) for n in (0, 1) for seed in (b"a", b"b")]
    assert len({tuple(order) for order in orders}) == 4
    assert 1 < len(witnesses_of(orders[0])) == len(set(witnesses_of(orders[0]))) == 50


@pytest.mark.parametrize("n_nodes", [200, 1000])
def test_the_degree_keeps_dishonest_neighbors_below_the_limit(n_nodes):
    # The tails of the hypergeometric distribution by its definition.
    degree, threshold = choose_degree(n_nodes, honest_fraction=0.9, dropout_fraction=0.05)
    n_dishonest, n_dropped = n_nodes // 10, n_nodes // 20

    def tail(low, marked, n, drawn):
        ways = sum(math.comb(marked, x) * math.comb(n - marked, drawn - x) for x in range(low, min(drawn, marked) + 1))
        return ways / math.comb(n, drawn)

    def failures(degree, threshold):
        left, half = n_nodes - 1 - n_dropped, degree // 2
        return (
            n_nodes * tail(2 * threshold - degree, n_dishonest, left, degree) * 2.0**40,
            (n_nodes * tail(threshold - half, n_dishonest, left, half)) ** 2 * 2.0**40,
            n_nodes * tail(degree - threshold + 1, n_dropped, n_nodes - 1, degree) * 2.0**10,
        )

    assert max(failures(degree, threshold)) <= 1
    # No other threshold and no smaller degree is enough.
    assert all(max(failures(degree - 2, other)) > 1 for other in range(degree // 2, degree - 1))


@pytest.mark.parametrize("honest_fraction", [0.5, 0.62])
def test_two_lists_of_answers_need_many_dishonest_witnesses(honest_fraction):
    # Two lists with three quarters of the signatures each share half of the 448 witnesses.
    n, n_dishonest = 950, 1000 - round(honest_fraction * 1000)
    pairs = sum(math.comb(n_dishonest, x) * math.comb(n - n_dishonest, 448 - x) for x in range(224, 449))
    assert pairs / math.comb(n, 448) > 2.0**-40
    with pytest.raises(ValueError, match="more honest nodes"):
        choose_degree(1000, honest_fraction=honest_fraction, dropout_fraction=0.05)


@pytest.mark.parametrize(("max_sum", "n_bits"), [(2**31 - 1, 32), (2**31, 64), (2**63 - 1, 64)])
def test_bits_hold_every_sum(max_sum, n_bits):
    assert plan(max_sum=max_sum).n_bits == n_bits
    signed = np.array([max_sum, -max_sum]).astype(plan(max_sum=max_sum).dtype).view(f"<i{n_bits // 8}")
    assert signed.tolist() == [max_sum, -max_sum]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"degree": 5}, "degree must be even, got 5; use 6"),
        ({"threshold": 2}, "threshold must be at least 3"),
        ({"threshold": 5}, "threshold must be at most 4"),
        ({"max_sum": 2**63}, "max_sum must be"),
        ({"min_answers": 1}, "min_answers must be at least 2"),
    ],
)
def test_bad_plans(changed, message):
    with pytest.raises(ValueError, match=message):
        plan(**changed)


def test_too_few_honest_nodes_have_no_degree():
    for fractions in ((0.5, 0.05), (1.0, 1.0), (0.0, 0.0)):
        with pytest.raises(ValueError, match="honest_fraction and dropout_fraction must leave a threshold for 50"):
            choose_degree(50, honest_fraction=fractions[0], dropout_fraction=fractions[1])
