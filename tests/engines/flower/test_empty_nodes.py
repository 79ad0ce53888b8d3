"""Tests of Flower with empty nodes: neither the participants nor the noise depends on users or ratings."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from support.flower_case import FMF, PROTOTYPES, RATINGS, SYSTEMS, assert_same
from support.flower_grid import HALF, SEED, MemoryGrid, serve

from fastfedrec import FMFLDP, DPGram, PrivatePrototypes
from fastfedrec.engines.flower import client_app

NO_USERS, ALL = np.zeros(0, dtype=np.int64), np.arange(300)


def nodes_of(system, folder, seed, **shards):
    """A node for each shard, with its own folder."""
    app = client_app(system, lambda context: shards[context.node_config["name"]], seed=seed)
    return {11 + n: (app, {"name": name, "folder": str(folder / name)}) for n, name in enumerate(shards)}


def run(system, data, folder, seed=SEED, **shards):
    return serve(system, data, MemoryGrid(nodes_of(system, folder, seed, **shards)), seed=seed, n_nodes=len(shards))


def without_rows(data):
    """Return the same users without interactions."""
    return data.keep_interactions(np.zeros(data.n_interactions, dtype=bool))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SYSTEMS, *FMF])
def test_a_node_without_users_takes_part_and_leaves_the_model(data, tmp_path, name):
    system = (SYSTEMS | FMF)[name]
    with_a, engine = run(system, data, tmp_path / "two", a=data.select_users(NO_USERS), b=data)
    of_one_node, _ = run(system, data, tmp_path / "one", b=data)
    assert engine.rejections == []
    assert engine.members == {"a": 0, "b": 300}
    if name in FMF:
        np.testing.assert_array_equal(with_a.item_factors_, of_one_node.item_factors_)
    else:
        assert_same(of_one_node, with_a)
    assert with_a.ledger_.to_dict() == of_one_node.ledger_.to_dict()


@pytest.mark.parametrize("name", RATINGS)
def test_a_node_with_no_ratings_or_only_ones_takes_part(data, tmp_path, name):
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
    there, engine = run(system, data, tmp_path, seed=seed, a=data.select_users(NO_USERS), b=data)
    assert engine.rejections == []
    full, _ = run(system, data, tmp_path / "full", seed=seed, a=data.select_users(ALL[:150]), b=data)
    assert there.ledger_.to_dict() == full.ledger_.to_dict()
    assert np.isfinite(there.item_factors_).all()


@pytest.mark.parametrize(
    "system",
    [DPGram(1.0), FMFLDP(n_rounds=2), *(PrivatePrototypes(n_prototypes=2, epsilon=e) for e in (1.0, None))],
)
def test_a_run_without_any_users_has_a_finite_model(data, tmp_path, system):
    no_users = data.select_users(NO_USERS)
    model, engine = run(system, data, tmp_path, seed=None, a=no_users, b=no_users)
    assert engine.rejections == []
    assert np.isfinite(model.item_factors_).all()


@pytest.mark.parametrize("name", ["fedrec", "laplace_rr_svd", "shuffled_sketch", "privrec"])
def test_systems_with_a_public_number_of_users_refuse_0_users(data, tmp_path, name):
    no_users = data.select_users(NO_USERS)
    with pytest.raises(ValueError, match="must have at least one user"):
        run(SYSTEMS[name], data, tmp_path, a=no_users, b=no_users)
