"""The parameters of a secure sum, and its graph."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.engines.aggregation import AggregationPlan, choose_degree
from fastfedrec.engines.aggregation._messages import neighbors_of, shuffled_nodes, witnesses_of

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
    assert reached_from(0, neighbors) == set(range(n_nodes))


def reached_from(node, neighbors):
    """Return the nodes that are connected with a node, by the neighbours of each."""
    reached, queue = {node}, [node]
    while queue:
        new = set(neighbors[queue.pop()]) & neighbors.keys() - reached
        reached |= new
        queue += new
    return reached


@pytest.mark.parametrize(("n_nodes", "degree"), [(7, 4), (8, 4), (8, 6)])
def test_a_server_with_few_dishonest_nodes_cannot_split_the_sum(n_nodes, degree):
    """Try all ways to split a ring: each node is in one of two parts, absent or dishonest."""
    edges = np.zeros((n_nodes, n_nodes), dtype=int)
    for node in range(n_nodes):
        edges[node, neighbors_of(np.arange(n_nodes), node, degree)] = 1
    kinds = np.arange(4**n_nodes)[:, np.newaxis] >> 2 * np.arange(n_nodes) & 3
    first, second, dishonest = (kinds == kind for kind in range(3))
    is_split = first.any(axis=1) & second.any(axis=1)
    # The server holds back all shares between the parts, which their other end sees in the list, and reveals nothing.
    reveals = dishonest | first & (second @ edges == 0)
    # It needs the own masks of the whole first part.
    n_shares = np.where(first, reveals @ edges, degree).min(axis=1)
    fewest = [dishonest[is_split & (n_shares >= t)].sum(axis=1).min() for t in range(degree // 2 + 1, degree + 1)]
    needed = [2 * t - degree for t in range(degree // 2 + 1, degree + 1)]
    assert all(np.greater_equal(fewest, needed))
    # Some graphs have a split by so many.
    assert any(np.equal(fewest, needed))


@pytest.mark.parametrize(("degree", "threshold"), [(4, 3), (6, 4), (118, 100)])
def test_few_neighbors_keep_at_least_the_share_of_the_threshold(degree, threshold):
    few = plan(degree=degree, threshold=threshold)
    for n in range(1, degree + 1):
        assert few.threshold_among(n) * degree >= n * threshold
        assert few.threshold_among(n) <= n
        # With half of the shares, two parts of the neighbours could recover both secrets of a node.
        assert 2 * few.threshold_among(n) > n


def test_each_key_list_and_round_has_another_graph():
    orders = [shuffled_nodes(AggregationPlan("test", n, **FIELDS), seed, 50) for n in (0, 1) for seed in (b"a", b"b")]
    assert len({tuple(order) for order in orders}) == 4
    assert 1 < len(witnesses_of(orders[0])) == len(set(witnesses_of(orders[0]))) == 50


@pytest.mark.parametrize("n_nodes", [200, 1000])
def test_the_degree_keeps_dishonest_neighbors_below_the_limit(n_nodes):
    degree, threshold = choose_degree(n_nodes, honest_fraction=0.9, min_answers=n_nodes - n_nodes // 20)
    counts = n_nodes, n_nodes // 10, n_nodes // 20
    assert max(failures(*counts, degree, threshold)) <= 1
    # No other threshold and no smaller degree is enough.
    assert all(max(failures(*counts, degree - 2, other)) > 1 for other in range(degree // 2, degree - 1))


def failures(n_nodes, n_dishonest, n_dropped, degree, threshold):
    """Return the probabilities of failures over their limits: two for secrecy, and one for a result."""

    def tail(low, marked, n, drawn):
        # The tail of the hypergeometric distribution by its definition.
        ways = sum(math.comb(marked, x) * math.comb(n - marked, drawn - x) for x in range(low, min(drawn, marked) + 1))
        return ways / math.comb(n, drawn)

    left, half = n_nodes - 1 - n_dropped, degree // 2
    # Two ends of a part need different dishonest nodes.
    has_ends = n_dishonest >= 2 * (threshold - half)
    return (
        n_nodes * tail(2 * threshold - degree, n_dishonest, left, degree) * 2.0**40,
        (n_nodes * tail(threshold - half, n_dishonest, left, half)) ** 2 * 2.0**40 * has_ends,
        n_nodes * tail(degree - threshold + 1, n_dropped, n_nodes - 1, degree) * 2.0**10,
    )


@settings(max_examples=25, deadline=None)
@given(n_nodes=st.integers(6, 240), honest=st.sampled_from([0.7, 0.8, 0.9, 1.0]), data=st.data())
def test_a_plan_for_more_dropouts_is_safe_for_fewer(n_nodes, honest, data):
    """Fewer nodes may drop out than planned, and then more nodes are in the graph and sign."""

    def choose(n_dropped):
        try:
            return choose_degree(n_nodes, honest_fraction=honest, min_answers=n_nodes - n_dropped)
        except ValueError:
            return None

    most = data.draw(st.integers(1, n_nodes // 3))
    fewer = data.draw(st.integers(0, most - 1))
    if (plan_of_most := choose(most)) is None:
        return
    degree, threshold = plan_of_most
    plan_of_fewer = choose(fewer)
    assert plan_of_fewer is not None
    assert plan_of_fewer[0] <= degree
    assert plan_of_fewer[0] < degree or plan_of_fewer[1] <= threshold
    n_dishonest = n_nodes - int(honest * n_nodes)
    for n_left in range(n_nodes - most, n_nodes + 1):  # all of them are witnesses
        assert n_dishonest < 2 * math.ceil(0.75 * n_left) - n_left
    for n_dropped in (fewer, most):
        assert max(failures(n_nodes, n_dishonest, n_dropped, degree, threshold)) <= 1


@pytest.mark.parametrize("honest_fraction", [0.5, 0.62])
def test_two_lists_of_answers_need_many_dishonest_witnesses(honest_fraction):
    # Two lists with three quarters of the signatures each share half of the 448 witnesses.
    n, n_dishonest = 950, 1000 - round(honest_fraction * 1000)
    pairs = sum(math.comb(n_dishonest, x) * math.comb(n - n_dishonest, 448 - x) for x in range(224, 449))
    assert pairs / math.comb(n, 448) > 2.0**-40
    with pytest.raises(ValueError, match="more honest nodes"):
        choose_degree(1000, honest_fraction=honest_fraction, min_answers=950)


def test_all_nodes_are_witnesses_of_a_small_round_also_if_fewer_leave_than_planned():
    # Of 39 nodes 30 must sign, so two lists share 21.  Of 40 nodes 30 must sign, too, and two lists share 20.
    with pytest.raises(ValueError, match="more honest nodes"):
        choose_degree(42, honest_fraction=22 / 42, min_answers=39)
    assert choose_degree(42, honest_fraction=23 / 42, min_answers=39)


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
        ({"n_values": 0}, "n_values must be at least 1"),
    ],
)
def test_bad_plans(changed, message):
    with pytest.raises(ValueError, match=message):
        plan(**changed)


def test_too_few_honest_nodes_have_no_degree():
    for honest_fraction, min_answers in ((0.5, 47), (1.0, 2), (0.0, 50)):
        with pytest.raises(ValueError, match="honest_fraction and min_answers must leave a threshold for 50 nodes"):
            choose_degree(50, honest_fraction=honest_fraction, min_answers=min_answers)
