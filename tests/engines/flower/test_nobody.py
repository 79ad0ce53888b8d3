"""Flower: whether there is anybody, and whether anybody has anything, changes neither who takes part nor the noise."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from support.flower_case import FMF, PROTOTYPES, RATINGS, SYSTEMS, assert_same
from support.flower_grid import HALF, SEED, MemoryGrid, serve

from fastfedrec import FMFLDP, DPGram, PrivatePrototypes
from fastfedrec.engines.flower import client_app

NOBODY, ALL = np.zeros(0, dtype=np.int64), np.arange(300)


def nodes_of(system, folder, seed, **shards):
    """A node for each shard, with its own folder."""
    app = client_app(system, lambda context: shards[context.node_config["name"]], seed=seed)
    return {11 + n: (app, {"name": name, "folder": str(folder / name)}) for n, name in enumerate(shards)}


def run(system, data, folder, seed=SEED, **shards):
    return serve(system, data, MemoryGrid(nodes_of(system, folder, seed, **shards)), seed=seed, n_nodes=len(shards))


def without_rows(data):
    """The same users, none of whom has anything."""
    return data.keep_interactions(np.zeros(data.n_interactions, dtype=bool))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SYSTEMS, *FMF])
def test_a_node_without_users_takes_part_and_changes_nothing(data, tmp_path, name):
    system = (SYSTEMS | FMF)[name]
    with_a, engine = run(system, data, tmp_path / "two", a=data.select_users(NOBODY), b=data)
    alone, _ = run(system, data, tmp_path / "one", b=data)
    assert engine.rejections == []
    assert engine.members == {"a": 0, "b": 300}
    if name in FMF:
        np.testing.assert_array_equal(with_a.item_factors_, alone.item_factors_)
    else:
        assert_same(alone, with_a)
    assert with_a.ledger_.to_dict() == alone.ledger_.to_dict()


@pytest.mark.parametrize("name", RATINGS)
def test_a_node_whose_users_have_rated_nothing_or_everything_with_1_takes_part(data, tmp_path, name):
    system = RATINGS[name]
    nothing = without_rows(data.select_users(np.flatnonzero(HALF == "a")))
    _, engine = run(system, data, tmp_path, seed=None, a=nothing, b=data)
    assert engine.rejections == []
    if system.channel is not None:  # values that are all 1 are stored as none
        ones = data.select_users(np.flatnonzero(HALF == "a")).binarize()
        _, engine = run(system, data, tmp_path / "ones", seed=None, a=ones, b=data)
        assert engine.rejections == []


@pytest.mark.parametrize("seed", [SEED, None])
@pytest.mark.parametrize("name", PROTOTYPES)
def test_an_entity_without_users_sends_noise_like_any_other(data, tmp_path, name, seed):
    system = PROTOTYPES[name]
    there, engine = run(system, data, tmp_path, seed=seed, a=data.select_users(NOBODY), b=data)
    assert engine.rejections == []
    full, _ = run(system, data, tmp_path / "full", seed=seed, a=data.select_users(ALL[:150]), b=data)
    assert there.ledger_.to_dict() == full.ledger_.to_dict()
    assert np.isfinite(there.item_factors_).all()


@pytest.mark.parametrize(
    "system",
    [DPGram(1.0), FMFLDP(n_rounds=2), *(PrivatePrototypes(n_prototypes=2, epsilon=e) for e in (1.0, None))],
)
def test_nobody_at_all_is_a_run_like_any_other(data, tmp_path, system):
    nobody = data.select_users(NOBODY)
    model, engine = run(system, data, tmp_path, seed=None, a=nobody, b=nobody)
    assert engine.rejections == []
    assert np.isfinite(model.item_factors_).all()


@pytest.mark.parametrize("name", ["fedrec", "laplace_rr_svd", "shuffled_sketch", "privrec"])
def test_where_a_number_of_users_is_public_nobody_is_refused_by_name(data, tmp_path, name):
    nobody = data.select_users(NOBODY)
    with pytest.raises(ValueError, match="must have at least one user"):
        run(SYSTEMS[name], data, tmp_path, a=nobody, b=nobody)
