"""Checked attributes cannot change, since kernels and guarantees rely on them."""

import copy
import functools
import inspect
import pickle
import types
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from support.interaction_case import assert_same
from support.mechanism_table import CHOICES, MAKERS, values_of

from fastfedrec import Interactions, Key, mechanisms
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


COPIES = (copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made)))


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
    # The refused assignment and the refused deletion must not have changed the object.
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
    # A copy or an unpickled object is protected in the same way.
    for duplicate in (copied(mechanism) for copied in COPIES):
        assert vars(duplicate).keys() == vars(mechanism).keys()
        assert_stays(duplicate, next(iter(vars(duplicate))), 1)


def parts_of(made):
    """Yield every object that an object refers to, directly or not, with its path."""
    seen, waiting = {}, [("", made)]
    while waiting:
        way, part = waiting.pop()
        if id(part) in seen or isinstance(part, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(part)] = part  # kept, so that no number is used again
        yield way, part
        if isinstance(part, Mapping):
            waiting += [(f"{way}[{name!r}]", value) for name, value in part.items()]
        elif isinstance(part, tuple | list | set | frozenset):
            waiting += [(f"{way}[{number}]", value) for number, value in enumerate(part)]
        # A read-only view is no protection if its base can be written to.
        elif isinstance(part, np.ndarray):
            waiting += [(f"{way}.base", part.base)] * (part.base is not None)
        elif not isinstance(part, Fraction):
            slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
            names = [*getattr(part, "__dict__", {}), *(name for name in slots if hasattr(part, name))]
            waiting += [(f"{way}.{name}", getattr(part, name)) for name in names]


def used(name):
    """A mechanism after it has done all that it does, so that it holds everything that it ever holds."""
    mechanism = MECHANISMS[name]()
    if "Sampling" in name:
        mechanism.sample(10, key=Key.from_seed(1))
    elif name == "LargestResponse":
        mechanism.privatize(np.eye(4), key=Key.from_seed(1))
    elif name in CHOICES:
        mechanism.privatize([1, 2], key=Key.from_seed(1))
    else:
        reports = mechanism.privatize(values_of(name, 5), key=Key.from_seed(1))
        for method in ("estimate", "estimate_rated", "support"):
            if hasattr(mechanism, method):
                getattr(mechanism, method)(reports)
    # Cached properties are tables that appear at their first use.
    for field in dir(type(mechanism)):
        if isinstance(inspect.getattr_static(mechanism, field), functools.cached_property):
            getattr(mechanism, field)
    return mechanism


def networks():
    network = TwoTower(Features.from_interactions(interactions(), user=["age"]), n_factors=16, hidden=(16,))
    return [network, GRUEncoder(3, n_factors=16), JointNetwork(network)] + [
        MetaNetwork(network, method, learning_rate=0.1) for method in METHODS
    ]


def assert_read_only(made):
    n_arrays = 0
    for way, part in parts_of(made):
        assert not isinstance(part, list | dict | set | bytearray), f"{way} of {type(made).__name__} can be changed"
        if isinstance(part, np.ndarray):
            n_arrays += 1
            assert not part.flags.writeable, f"{way} of {type(made).__name__} can be written to"
            if not way.endswith(".base"):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    part.flags.writeable = True
    return n_arrays


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_array_of_a_mechanism_can_be_written_to(name):
    mechanism = used(name)
    n_arrays = assert_read_only(mechanism)
    for make_copy in COPIES:
        assert_read_only(make_copy(mechanism))
    assert n_arrays or not isinstance(mechanism, mechanisms.Channel)


def test_no_array_of_a_network_can_be_written_to():
    for network in networks():
        assert assert_read_only(network) or isinstance(network, GRUEncoder)
        for make_copy in COPIES:
            assert_read_only(make_copy(network))


def test_arrays_that_can_be_written_to_are_found():
    """The control: an array at any depth."""

    class Deep:
        __slots__ = ("inner",)

    deep = Deep()
    for inner in (np.zeros(1), (1, (np.zeros(1),)), MappingProxyType({"x": np.zeros(1)}), np.zeros(2)[:1]):
        deep.inner = inner
        with pytest.raises(AssertionError, match="can be written to"):
            assert_read_only(deep)
    # A read-only view of a writable array is found by its base, or because its flag can be set again.
    view = np.zeros(2)[:1]
    view.flags.writeable = False
    deep.inner = view
    with pytest.raises((AssertionError, pytest.fail.Exception), match=r"inner.base of Deep|DID NOT RAISE"):
        assert_read_only(deep)


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_computed_at_its_first_use_cannot_be_put_there_before(name):
    """Nor can any constant, method or property of the class be hidden by an attribute of its name."""
    for field in (name for name in dir(type(MECHANISMS[name]())) if not name.startswith("__")):
        mechanism = MECHANISMS[name]() if field == "_thresholds" else made(name)
        with pytest.raises(AttributeError, match=r"cannot be changed|is now called"):
            setattr(mechanism, field, 1)


@functools.cache
def made(name):
    return MECHANISMS[name]()


def test_sizes_that_kernels_are_told_of_networks_cannot_be_changed():
    for network in networks():
        for field in vars(network):
            assert_stays(network, field, 1)


def test_rows_that_kernels_add_updates_to_cannot_be_changed():
    arrays = {"starts": [0, 2], "row_starts": [0, 1], "rows": [0], "rejected": [False]}
    kinds = {"starts": np.int64, "row_starts": np.int64, "rows": np.int32, "rejected": bool}
    mine = {name: np.array(values, dtype=kinds[name]) for name, values in arrays.items()}
    updates = ClientUpdates(np.ones(2, dtype=np.float32), **mine, n_dense=0, n_factors=2, n_parameters=4)
    for name in ("starts", "row_starts", "rows"):
        # The kernels use these arrays as indices without a check, so a change could write outside the sums.
        with pytest.raises(ValueError, match="read-only"):
            getattr(updates, name)[-1] = 10**8
        # The constructor copied the caller's arrays, so this assignment has no effect.
        mine[name][-1] = 10**8
    assert updates.total().tolist() == [1, 1, 0, 0]


def test_items_cannot_be_renumbered_past_the_check(data):
    for field in ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids"):
        result = getattr(data, field)
        with pytest.raises(AttributeError, match=f"'{field}' of {type(data).__name__} cannot be changed"):
            setattr(data, field, result[1:])
        with pytest.raises(AttributeError, match="cannot be changed"):
            delattr(data, field)
        with pytest.raises(ValueError, match="read-only"):
            result[:1] = result[:1]
        with pytest.raises(ValueError, match="WRITEABLE"):
            result.flags.writeable = True
        assert getattr(data, field) is result
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
    # The log has a copy, so the caller's array may change.
    mine[0] = 10**9
    assert log.users.tolist() == [0, 1]
    for rows in (log.users, log.items):
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 10**9


@pytest.mark.parametrize("make_copy", COPIES, ids=["copy", "deep", "pickle"])
def test_copies_are_whole_and_cannot_be_changed_either(data, make_copy):
    made = make_copy(data)
    assert_same(made, data)
    assert made.user_features["age"].tolist() == [20, 30]
    with pytest.raises(AttributeError, match="cannot be changed"):
        made.indices = data.indices + 1
    log = InteractionLog.from_arrays(["ann", "bob"], [10, 10], {"hour": [1, 2]})
    assert make_copy(log).contexts["hour"].tolist() == [1, 2]


class _Checked(Immutable):
    def __init__(self, epsilon):
        self.noise = 1 / epsilon

    def epsilon(self):
        return 1 / self.noise


def test_without_it_a_claim_can_be_changed():
    """The control: the same class without the base takes both."""
    with pytest.raises(AttributeError):
        _Checked(1.0).noise = 5.0
    # The claimed epsilon of 1 becomes 0.2 by an assignment to the noise.
    plain = type("Plain", (), dict(vars(_Checked)))(1.0)
    plain.noise = 5.0
    assert plain.epsilon() == 0.2
