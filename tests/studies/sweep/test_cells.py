"""Comparisons of cells, and fronts, computed by hand."""

import math

import pytest

from fastfedrec.studies.sweep.cells import Cell, is_better, margin, pareto_front, trusts_of


def cell(values, public, *, server=math.inf, shuffled=math.inf, n_tested=10_000, name="A", trust=("central",)):
    values = values if isinstance(values, tuple) else (values,)
    epsilon = {"server": server, "shuffled_server": shuffled, "public": public}
    seeds = tuple(range(len(values)))
    return Cell(name, {}, seeds, {"hr@10": values}, n_tested, epsilon, 1e-6, trust, None, 0.1)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_the_margin_and_what_is_better():
    a, b = cell(0.52, 1.0), cell(0.5, 1.0)
    assert margin(a, b, "hr@10") == pytest.approx(2 * math.hypot(a.error("hr@10"), b.error("hr@10")))
    assert is_better(a, b, "hr@10")
    assert not is_better(b, a, "hr@10")
    few = cell(0.52, 1.0, n_tested=1_000)
    assert not is_better(few, b, "hr@10")  # a tie
    assert not is_better(b, few, "hr@10")


def test_a_front_by_hand():
    cheap, tie, better = cell(0.50, 1.0), cell(0.505, 2.0), cell(0.6, 3.0)
    worse, open_to_all = cell(0.45, 3.0), cell(0.9, math.inf)
    assert pareto_front([worse, better, open_to_all, tie, cheap], "central", "hr@10") == [cheap, better]
    # A tie at the same cost is on the front as well, and a clearly worse cell at that cost is not.
    twin = cell(0.598, 3.02, name="B")
    assert pareto_front([cheap, better, twin, worse], "central", "hr@10") == [cheap, better, twin]
    # Small steps are insignificant one at a time, and significant in sum.
    steps = [cell(0.5 + 0.01 * n, 1.0 + n) for n in range(4)]
    assert pareto_front(steps, "central", "hr@10") == [steps[0], steps[2]]


def test_costs_are_compared_in_one_trust_model_only():
    local = cell(0.5, 1.0, server=8.0, shuffled=1.0, trust=("local",))
    central = cell(0.7, 0.5)
    both = [local, central]
    assert pareto_front(both, "central", "hr@10") == [central]
    assert pareto_front(both, "shuffle", "hr@10") == pareto_front(both, "local", "hr@10") == [local]
    assert [local.true_epsilon(trust) for trust in ("local", "shuffle", "central")] == [8.0, 1.0, 1.0]


def test_trust_in_an_entity_is_not_local():
    # Its ledger has an epsilon against the server, but the guarantee depends on an entity that sees the data.
    entity = cell(0.5, 1.0, server=1.0, shuffled=1.0, trust=("entity",))
    assert [entity.true_epsilon(trust) for trust in ("local", "shuffle", "central")] == [math.inf, math.inf, 1.0]
    assert pareto_front([entity], "local", "hr@10") == []
    assert entity.is_private


def test_trust_in_nodes_is_neither_local_nor_behind_a_shuffler():
    # Its ledger has an epsilon against the server, but the guarantee depends on the noise of other nodes.
    nodes, local = (cell(0.5, 0.8, server=1.0, shuffled=1.0, trust=(trust,)) for trust in ("aggregator", "local"))
    entity = cell(0.5, 0.8, server=1.0, shuffled=1.0, trust=("entity",))
    trusts = ("local", "shuffle", "aggregator", "central")
    assert [nodes.true_epsilon(trust) for trust in trusts] == [math.inf, math.inf, 1.0, 0.8]
    assert [local.true_epsilon(trust) for trust in trusts] == [1.0, 1.0, 1.0, 0.8]
    assert entity.true_epsilon("aggregator") == math.inf
    # Tables of sweeps without nodes have the columns that they had.
    assert trusts_of([local, entity]) == ("local", "shuffle", "central")
    assert trusts_of([local, nodes]) == trusts


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_the_order_of_cells_changes_no_front():
    cells = [cell(0.4 + 0.03 * (n % 5) + 0.005 * n, 0.5 + 0.4 * (n % 3), name=str(n)) for n in range(12)]
    front = pareto_front(cells, "central", "hr@10")
    assert {c.system for c in pareto_front(cells[::-1], "central", "hr@10")} == {c.system for c in front}
    assert front
    for member in front:  # no cell of at most this cost is better
        assert not [
            c for c in cells if c.epsilon["public"] <= member.epsilon["public"] and is_better(c, member, "hr@10")
        ]


def test_nothing_without_a_guarantee_is_private():
    assert not cell(0.5, math.inf).is_private
    assert pareto_front([cell(0.5, math.inf)], "central", "hr@10") == []
