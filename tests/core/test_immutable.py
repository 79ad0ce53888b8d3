"""What a constructor checked stays so: kernels and guarantees rely on it."""

import copy
import pickle

import numpy as np
import pytest
from support.interaction_case import assert_same
from support.mechanism_table import MAKERS

from fastfedrec import Interactions, mechanisms
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.joint_loss import JointNetwork
from fastfedrec.compute.networks.meta_learning import METHODS, MetaNetwork
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.immutable import Immutable
from fastfedrec.data.features import Features
from fastfedrec.data.log import InteractionLog
from fastfedrec.data.store import open_interactions, store_interactions

MECHANISMS = MAKERS | {
    "LargestResponse": lambda: mechanisms.LargestResponse(1.0),
    "PoissonSampling": lambda: mechanisms.PoissonSampling(0.5),
    "FixedSizeSampling": lambda: mechanisms.FixedSizeSampling(5),
}


def interactions():
    return Interactions.from_arrays(
        ["ann", "ann", "bob"], [10, 30, 10], [1.0, 2.0, 3.0], [5, 6, 7], timestamp_unit="s"
    ).with_features(user_features={"age": [20, 30]}, item_features={"kind": ["a", "b"]})


@pytest.fixture(params=["in memory", "stored"])
def data(request, tmp_path):
    if request.param == "in memory":
        return interactions()
    store_interactions(interactions(), tmp_path / "store")
    return open_interactions(tmp_path / "store")


def assert_stays(made, name, value):
    before = getattr(made, name)
    with pytest.raises(AttributeError, match=f"'{name}' of {type(made).__name__} cannot be changed.*make a new"):
        setattr(made, name, value)
    with pytest.raises(AttributeError, match="cannot be changed"):
        delattr(made, name)
    after = getattr(made, name)
    assert after is before or after == before  # a bound method is made anew


def test_every_public_mechanism_is_walked():
    public = {name for name in mechanisms.__all__ if isinstance(getattr(mechanisms, name), type)}
    assert public <= {type(make()).__name__ for make in MECHANISMS.values()}


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_that_a_mechanism_claims_can_be_changed(name):
    mechanism = MECHANISMS[name]()
    for field in vars(mechanism):
        assert_stays(mechanism, field, 1)
    for method in ("privatize", "epsilon", "variance", "sample"):
        if callable(getattr(type(mechanism), method, None)):
            assert_stays(mechanism, method, lambda *_: 0.0)
    for again in (copy.copy(mechanism), copy.deepcopy(mechanism), pickle.loads(pickle.dumps(mechanism))):
        assert vars(again).keys() == vars(mechanism).keys()
        assert_stays(again, next(iter(vars(again))), 1)


def test_sizes_that_kernels_are_told_of_networks_cannot_be_changed():
    network = TwoTower(Features.from_interactions(interactions(), user=["age"]), n_factors=16, hidden=(16,))
    meta = MetaNetwork(network, METHODS[0], learning_rate=0.1)
    for made in (network, meta, GRUEncoder(3, n_factors=16), JointNetwork(network)):
        for field in vars(made):
            assert_stays(made, field, 1)


def test_rows_that_kernels_add_updates_to_cannot_be_changed():
    arrays = {"starts": [0, 2], "row_starts": [0, 1], "rows": [0], "rejected": [False]}
    kinds = {"starts": np.int64, "row_starts": np.int64, "rows": np.int32, "rejected": bool}
    mine = {name: np.array(values, dtype=kinds[name]) for name, values in arrays.items()}
    updates = ClientUpdates(np.ones(2, dtype=np.float32), **mine, n_dense=0, n_factors=2, n_parameters=4)
    for name in ("starts", "row_starts", "rows"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(updates, name)[-1] = 10**8
        mine[name][-1] = 10**8
    assert updates.total().tolist() == [1, 1, 0, 0]


def test_items_cannot_be_renumbered_past_the_check(data):
    for field in ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids"):
        found = getattr(data, field)
        with pytest.raises(AttributeError, match=f"'{field}' of {type(data).__name__} cannot be changed"):
            setattr(data, field, found[1:])
        with pytest.raises(AttributeError, match="cannot be changed"):
            delattr(data, field)
        with pytest.raises(ValueError, match="read-only"):
            found[:1] = found[:1]
        with pytest.raises(ValueError, match="WRITEABLE"):
            found.flags.writeable = True
        assert getattr(data, field) is found
    assert_same(data, interactions())


def test_features_stay_as_long_as_their_axis(data):
    for columns in (data.user_features, data.item_features):
        with pytest.raises(TypeError, match="item assignment"):
            columns["more"] = np.array([1])
    log = InteractionLog.from_arrays(["ann", "bob"], [10, 10], {"hour": [1, 2]})
    with pytest.raises(TypeError, match="item assignment"):
        log.contexts["hour"] = np.array([1])
    longer = data.with_features(item_features={**data.item_features, "size": [1, 2]})
    assert list(longer.item_features) == ["kind", "size"]
    assert list(data.item_features) == ["kind"]


def test_rows_of_a_log_are_its_own():
    mine = np.array([0, 1])
    log = InteractionLog(interactions(), mine, [0, 0], {})
    mine[0] = 10**9
    assert log.users.tolist() == [0, 1]
    for rows in (log.users, log.items):
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 10**9


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["copy", "deep", "pickle"]
)
def test_copies_are_whole_and_cannot_be_changed_either(data, again):
    made = again(data)
    assert_same(made, data)
    assert made.user_features["age"].tolist() == [20, 30]
    with pytest.raises(AttributeError, match="cannot be changed"):
        made.indices = data.indices + 1
    log = InteractionLog.from_arrays(["ann", "bob"], [10, 10], {"hour": [1, 2]})
    assert again(log).contexts["hour"].tolist() == [1, 2]


class _Checked(Immutable):
    def __init__(self, epsilon):
        self.noise = 1 / epsilon

    def epsilon(self):
        return 1 / self.noise


def test_without_it_a_claim_can_be_changed():
    """The control: the same class without the base takes both."""
    with pytest.raises(AttributeError):
        _Checked(1.0).noise = 5.0
    plain = type("Plain", (), dict(vars(_Checked)))(1.0)
    plain.noise = 5.0
    assert plain.epsilon() == 0.2
