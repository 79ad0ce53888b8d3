"""Graphs of users, and the weights of walks on them."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.dmf import model as naive
from support.significance import counts_are

from fastfedrec import Key
from fastfedrec.systems.dmf._graph import check_graph, draw_graph, walk_weights

KEY = Key.from_seed(4)
graphs = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0, 0, 1, 2.5]), min_size=n, max_size=n), min_size=n, max_size=n)
)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(graph=graphs, walk_length=st.integers(0, 4))
def test_walks_are_those_of_chances_step_by_step(graph, walk_length):
    weights = walk_weights(check_graph(graph, len(graph)), walk_length)
    dense = np.array(graph, dtype=float)
    np.fill_diagonal(dense, 0)
    np.testing.assert_allclose(weights.toarray(), naive.walks(dense, walk_length), atol=1e-12)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_each_walk_length_has_the_weight_of_the_users_it_reaches():
    weights = walk_weights(draw_graph(np.arange(50, dtype=np.uint64), 3, KEY), 1)
    np.testing.assert_allclose(weights.sum(axis=1), np.diff(weights.indptr))
    assert not weights.diagonal().any()


def test_no_user_draws_itself_and_a_single_user_has_no_neighbour():
    for n in (1, 2, 40):
        graph = draw_graph(np.arange(n, dtype=np.uint64), 3, KEY)
        assert not graph.diagonal().any()
        np.testing.assert_array_equal(graph.sum(axis=1), np.full(n, 3 * (n > 1)))


def test_an_edge_without_weight_is_no_edge():
    graph = scipy.sparse.csr_array(np.array([[0, 2.0, 0, 0], [0, 0, 0, 1.0], [0, 0, 0, 0], [3.0, 0, 0, 0]]))
    stored = scipy.sparse.csr_array(([2.0, 0.0, 1.0, 3.0], [1, 2, 3, 0], [0, 2, 3, 3, 4]), shape=(4, 4))
    for same in (graph.tobsr((2, 2)), stored, graph.todia(), graph.toarray()):
        assert check_graph(same, 4).nnz == graph.nnz


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((2, 3)), r"graph must have shape \(3, 3\)"),
        (scipy.sparse.csr_array((4, 4)), r"graph must have shape \(3, 3\)"),
        (np.full((3, 3), -1.0), "graph must have finite weights"),
        (scipy.sparse.csr_array(np.full((3, 3), np.inf)), "graph must have finite weights"),
        ("friends", "graph must"),
    ],
)
def test_bad_graphs(graph, message):
    with pytest.raises((ValueError, TypeError), match=message):
        check_graph(graph, 3)


# ---- statistics -----------------------------------------------------------------------------------------------------


def test_neighbors_are_drawn_uniformly():
    n = 20_000
    drawn = draw_graph(np.arange(n, dtype=np.uint64), 1, KEY).indices
    steps = (drawn - np.arange(n)) % n
    assert counts_are(np.bincount((steps - 1) * 10 // (n - 1), minlength=10), np.full(10, 0.1))
    wrong = np.where(np.arange(n) % 50 == 0, 1, steps)  # every fiftieth draw is the next user
    assert not counts_are(np.bincount((wrong - 1) * 10 // (n - 1), minlength=10), np.full(10, 0.1))
