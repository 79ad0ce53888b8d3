"""Side features: every value of every entry where it belongs, and one table of embeddings for all."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import Interactions
from fastfedrec.data.features import Features


def small(n_items=3):
    data = Interactions.from_arrays(
        ["ann", "ann", "bob"] + ["bob"] * (n_items - 2), ["a", "b", "b", *"cdefgh"[: n_items - 2]]
    )
    return data.with_features(
        user_features={"age": [30, 20], "town": ["Rome", "Oslo"]},
        item_features={"tags": [("x", "y"), (), ("y", "z", "y")], "cost": [2.0, 1.0, 2.0]},
    )


def values_of(table, entry):
    """{feature: values} of an entry, read back from the arrays."""
    out, offset = {}, 0
    for f, (name, vocabulary) in enumerate(zip(table.names, table.vocabularies, strict=True)):
        first, last = table.indptr[entry * table.n_features + f :][:2]
        out[name] = [vocabulary[i - offset] for i in table.indices[first:last]]
        offset += len(vocabulary)
    return out


# ---- oracle -----------------------------------------------------------------------------------------------------


def test_values_are_those_of_the_columns():
    features = Features.from_interactions(small(), user=["town", "age"], item=["tags", "cost"])
    assert [values_of(features.user, u) for u in (0, 1)] == [
        {"town": ["Rome"], "age": [30]},
        {"town": ["Oslo"], "age": [20]},
    ]
    assert [values_of(features.item, i) for i in (0, 1, 2)] == [
        {"item id": ["a"], "tags": ["x", "y"], "cost": [2.0]},
        {"item id": ["b"], "tags": [], "cost": [1.0]},
        {"item id": ["c"], "tags": ["y", "z"], "cost": [2.0]},
    ]
    assert (features.context.n_features, features.context.n_entries) == (0, 0)
    assert features.n_embeddings == 2 + 2 + 3 + 3 + 2


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sets(st.integers(0, 6))), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_columns_are_read_back(rows, given_vocabulary):
    n = len(rows)
    data = Interactions.from_arrays(range(n), range(n)).with_features(
        user_features={"one": [one for one, _ in rows], "some": [tuple(some) for _, some in rows]}
    )
    user = {"some": range(7), "one": range(5)} if given_vocabulary else ["some", "one"]
    log = {"day": [one for one, _ in rows] * 2, "set": [some for _, some in rows] * 2}
    features = Features.from_interactions(data, user=user, contexts=log)
    for entry, (one, some) in enumerate(rows):
        assert values_of(features.user, entry) == {"some": sorted(some), "one": [one]}
        assert values_of(features.context, n + entry) == {"day": [one], "set": sorted(some)}
    assert features.context.n_entries == 2 * n
    if given_vocabulary:
        assert features.user.n_values == 12


# ---- invariants -------------------------------------------------------------------------------------------------


def test_other_interactions_share_the_embeddings():
    data = small()
    log = {"day": ["mo", "tu", "mo"]}
    features = Features.from_interactions(data, user=["age", "town"], item=["tags"], contexts=log)
    for users, items in itertools.product(([1], [0, 1]), ([0, 1, 2], [0, 2])):
        part = data.select_users(np.array(users)).select_items(np.array(items))
        other = features.encode(part, contexts={"day": ["tu"]})
        assert [values_of(other.user, k) for k in range(len(users))] == [values_of(features.user, u) for u in users]
        assert [values_of(other.item, k) for k in range(len(items))] == [values_of(features.item, i) for i in items]
        assert values_of(other.context, 0) == {"day": ["tu"]}
        assert other.n_embeddings == features.n_embeddings


def test_arrays_are_read_only():
    table = Features.from_interactions(small()).item
    for array in (table.indptr, table.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"interactions": 3}, TypeError, "interactions must be Interactions"),
        ({"user": "age"}, TypeError, "user must be a list of column names or a mapping, got 'age'"),
        ({"user": ["sex"]}, KeyError, r"user='sex' is not a column; user_features has \['age', 'town'\]"),
        ({"item": ["sex"]}, KeyError, "item='sex' is not a column"),
        ({"item_ids": 1}, TypeError, "item_ids must be True or False"),
        ({"item_ids": False}, ValueError, "item must name a column if item_ids is False"),
        ({"user": {"age": [30, 40]}}, KeyError, "user feature 'age' id 20 is unknown"),
        ({"user": {"age": [30, 20, 30]}}, ValueError, "user feature 'age' vocabulary must be distinct"),
        ({"contexts": {"a": [1], "b": [1, 2]}}, ValueError, "contexts must have columns of equal length, got"),
        ({"contexts": {"a": [1.0, np.nan]}}, ValueError, r"context feature 'a'\[1\] is missing \(nan\)"),
        ({"contexts": {"a": ["x", None]}}, ValueError, r"context feature 'a'\[1\] is missing \(None\)"),
        ({"contexts": {"a": [(1,), 2]}}, TypeError, "context feature 'a' must hold either single values or tuples"),
    ],
)
def test_bad_features_are_named(change, error, message):
    with pytest.raises(error, match=message):
        Features.from_interactions(**({"interactions": small()} | change))


def test_encode_names_unknown_values():
    features = Features.from_interactions(small(), user=["age"], contexts={"day": [1]})
    with pytest.raises(KeyError, match="age' id 77 is unknown"):
        features.encode(small().with_features(user_features={"age": [30, 77]}))
    with pytest.raises(KeyError, match=r"contexts must have the columns \['day'\], got \['night'\]"):
        features.encode(small(), contexts={"night": [1]})
    with pytest.raises(KeyError, match=r"contexts must have the columns \['day'\], got \[\]"):
        features.encode(small())


def test_unlisted_values_count_as_none():
    data = small()
    listed = {"town": ["Oslo", "Bergen"], "age": None}
    with pytest.raises(KeyError, match="'Rome' is unknown"):
        Features.from_interactions(data, user=listed)
    features = Features.from_interactions(data, user=listed, ignore_unknown=True)
    assert [values_of(features.user, u) for u in (0, 1)] == [{"town": [], "age": [30]}, {"town": ["Oslo"], "age": [20]}]
    odd = data.with_features(user_features={"town": ["Bergen", ("Oslo", "Rome")], "age": [20, -5]})
    second_encoding = features.encode(odd, ignore_unknown=True)
    assert [values_of(second_encoding.user, u) for u in (0, 1)] == [
        {"town": ["Bergen"], "age": [20]},
        {"town": ["Oslo"], "age": []},
    ]
    assert second_encoding.n_embeddings == features.n_embeddings
    for hours in ([1, 3, 2], [1, 9, 2]):
        of_log = Features.from_interactions(data, contexts={"hour": [1, 2, 3]}).encode(
            data.with_features(user_features={}), contexts={"hour": hours}, ignore_unknown=True
        )
        assert [values_of(of_log.context, e)["hour"] for e in range(3)] == [[h] * (h < 4) for h in hours]
