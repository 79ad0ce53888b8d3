"""Models with public features of items: statements, saved state and refusals, for every kind of model."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from support.data import of_dense
from support.decision_case import prefer
from support.hostile_files import pack, unpack

from fastfedrec import DPGram, DPSubspace, Key, ShuffledSketchGram, load
from fastfedrec.accounting import Ledger
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.engines.deployment.deployment_of import deployment_of

OPTIONS = {
    DPGram: {"epsilon": 20.0},
    ShuffledSketchGram: {"epsilon": 20.0, "n_rotations": 2},
    DPSubspace: {"epsilon": 20.0, "n_columns": 8},
}
N_ITEMS = 40


@pytest.fixture(scope="module")
def data():
    """Return interactions of users with even items, and of users with odd items."""
    rng = np.random.default_rng(1)
    chosen = (rng.random((300, N_ITEMS)) < 0.4) & (np.arange(300)[:, None] % 2 == np.arange(N_ITEMS) % 2)
    return of_dense(chosen.astype(float))


@pytest.fixture(scope="module")
def table():
    """Return features in another order than the items'."""
    return pd.DataFrame({"item": np.arange(N_ITEMS)[::-1], "kind": ["odd", "even"] * (N_ITEMS // 2)})


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """Make a model that may choose between candidates with and without features choose those with features."""
    prefer(monkeypatch, personal=True, with_features=True)


def fitted(kind, data, features, **options):
    return kind(item_features=features, **OPTIONS[kind]).fit(data, key=Key.from_seed(2), **options)


@pytest.mark.parametrize("kind", OPTIONS)
def test_features_are_used_and_the_ledger_states_it(kind, data, table):
    model, without = fitted(kind, data, table), fitted(kind, data, None)
    assert not np.array_equal(model.item_factors_, without.item_factors_)
    assumed, used = [note for note in model.ledger_.notes if "item features" in note]
    digest = ItemFeatures.of("x", table).digest
    assert (assumed.kind, used.kind) == ("assumption", "choice")
    assert f"They are kind of 40 of 40 items (digest {digest[:16]})." in assumed
    assert used.endswith("Their weight is fitted to the noisy release, at no further cost.")
    assert [note for note in without.ledger_.notes if "item features" in note] == []
    # Features have no privacy cost.
    assert model.ledger_.events == without.ledger_.events
    # Devices, shards and nodes do not use them: neither rounds nor columns exceed the plan.
    for ours, theirs in zip(model.communication_.rounds, without.communication_.rounds, strict=True):
        assert ours == theirs or (kind is DPSubspace and ours.upload <= N_ITEMS * 8 * 8)
    more = pd.concat([table, pd.DataFrame({"item": [977, 978], "kind": ["odd"] * 2})])
    assert (
        "2 of their ids are not in the list of items; the first is 977." in fitted(kind, data, more).ledger_.summary()
    )


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_model_of_popularity_alone_states_that_it_ignores_features(kind, data, table):
    """Check a model of one item, which has no pairs."""
    rows = data.select_items([0])
    model = kind(1.0 if kind is ShuffledSketchGram else 0.02, item_features=table).fit(rows, key=Key.from_seed(2))
    assert model.item_factors_.shape[1] == 0
    assert "They have no effect, because no pairs were released." in model.ledger_.summary()


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_loaded_model_keeps_the_digest_and_requires_features_for_a_refit(kind, data, table, tmp_path):
    model = fitted(kind, data, table)
    model.save(tmp_path / "with")
    loaded = load(tmp_path / "with")
    for a, b in zip(loaded.recommend(data.user_ids), model.recommend(data.user_ids), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.item_features.digest == model.item_features.digest
    assert loaded.item_features.blocks == ()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "with").read_bytes()
    ledger = Ledger()
    with pytest.raises(ValueError, match=r"item_features must hold .* only the digest .* set_params\(item_features="):
        loaded.fit(data, ledger=ledger)
    assert not ledger.events
    loaded.set_params(item_features=table).fit(data, key=Key.from_seed(2))
    np.testing.assert_array_equal(loaded.item_factors_, model.item_factors_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).item_factors_, model.item_factors_)


@pytest.mark.parametrize("kind", OPTIONS)
def test_they_are_a_parameter_like_any_other(kind, table):
    from sklearn.base import clone

    model = kind(item_features=table)
    features = model.get_params()["item_features"]
    assert f"<ItemFeatures: digest {features.digest[:16]}>" in repr(model)
    assert clone(model).item_features is copy.deepcopy(model).item_features is features
    assert kind(**model.get_params()).item_features is features
    assert model.set_params(item_features=None).item_features is None
    assert model.set_params(item_features=np.eye(3)).item_features.names == ("vectors",)
    with pytest.raises(TypeError, match="item_features must be a frame"):
        model.set_params(item_features=7)
    assert model.item_features.names == ("vectors",)


@pytest.mark.parametrize("kind", OPTIONS)
def test_features_that_do_not_match_the_items_are_refused_before_any_cost(kind, data):
    ledger = Ledger()
    for features, error, message in (
        (np.eye(39), ValueError, "must have 40 rows, one for each item in the order of item_ids, got 39"),
        ({"item": ["a"], "kind": ["x"]}, TypeError, "got strings and numbers"),
        ({"item": [99], "kind": ["x"]}, KeyError, "must contain some of the 40 items, got none"),
    ):
        with pytest.raises(error, match=message):
            fitted(kind, data, features, ledger=ledger)
    assert not ledger.events


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_order_of_rows_does_not_change_the_model(kind, data, table):
    model = fitted(kind, data, table)
    shuffled = fitted(kind, data, table.sample(frac=1, random_state=3))
    np.testing.assert_array_equal(shuffled.item_factors_, model.item_factors_)
    in_order = fitted(kind, data, table.set_index("item").loc[data.item_ids].reset_index()[["kind"]])
    np.testing.assert_array_equal(in_order.item_factors_, model.item_factors_)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_node_needs_the_digest_alone(kind, data, table):
    features = ItemFeatures.of("x", table)
    server, node = (deployment_of(kind(item_features=given, **OPTIONS[kind])) for given in (features, features.digest))
    assert repr(server.model) == repr(node.model)
    for phase in range(len(server.model._plan(data, Key.from_seed(1)))):
        theirs, ours = (side.rounds_of(phase, data.n_users, data.item_ids) for side in (server, node))
        assert type(theirs.system) is type(ours.system)
        assert repr(vars(theirs.state)) == repr(vars(ours.state))


def test_a_file_that_contains_features_is_refused(data, table, tmp_path):
    fitted(DPGram, data, table).save(tmp_path / "model")
    document, arrays = unpack((tmp_path / "model").read_bytes())
    assert isinstance(document["header"]["parameters"]["item_features"], str)
    document["header"]["parameters"]["item_features"] = {"kind": ["a"] * N_ITEMS}
    (tmp_path / "model").write_bytes(pack(document, arrays))
    with pytest.raises(ValueError, match="item_features must be null or a digest"):
        load(tmp_path / "model")


@pytest.mark.parametrize("kind", OPTIONS)
def test_features_of_single_items_do_no_harm(kind, data):
    model = fitted(kind, data, {"own": np.eye(N_ITEMS), "one": ["a"] + [None] * (N_ITEMS - 1), "all": ["a"] * N_ITEMS})
    assert np.isfinite(model.recommend(data.user_ids, n=3)[1]).all()
    with_single = fitted(kind, data, {"one": ["a"] + [None] * (N_ITEMS - 1), "all": ["a"] * N_ITEMS})
    np.testing.assert_array_equal(with_single.item_factors_, fitted(kind, data, None).item_factors_)
