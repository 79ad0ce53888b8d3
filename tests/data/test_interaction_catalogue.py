"""Tests of a given list of items: it is public, and the items are exactly this list in its order for any rows."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from naive.data import interactions as naive
from support.interaction_case import assert_same, assert_well_formed, table_of

from fastfedrec import Interactions, datasets
from fastfedrec.cli.main import build_parser
from fastfedrec.data.ids import Coded
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import load_table, store_table, stored_tables

ids = st.one_of(
    st.lists(st.integers(-3, 6), max_size=15),
    st.lists(st.sampled_from("abcde"), max_size=15),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab")), max_size=15),
)
lists = st.one_of(
    st.none(),
    st.lists(st.integers(-3, 6), unique=True, max_size=10),
    st.lists(st.sampled_from("abcde"), unique=True, max_size=5),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab")), unique=True, max_size=4),
)


def can_be_listed(ids, listed):
    """Return whether the list has an id of the rows' type."""
    return not ids or not listed or type(ids[0]) is type(listed[0])


@st.composite
def cases(draw):
    users, items = draw(ids), draw(ids)
    n = min(len(users), len(items))
    values = draw(st.none() | st.lists(st.integers(0, 5), min_size=n, max_size=n))
    return users[:n], items[:n], values, draw(lists), draw(lists)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(cases(), st.sampled_from(["sum", "mean", "first", "last", "max"]))
def test_listed_axes_equal_the_twin(case, duplicates):
    users, items, values, user_ids, item_ids = case
    options = {"duplicates": duplicates, "user_ids": user_ids, "item_ids": item_ids}
    if not (can_be_listed(users, user_ids) and can_be_listed(items, item_ids)):
        for unlisted in ("error", "drop"):  # a list of another type is an error, and no rows are dropped
            with pytest.raises(TypeError, match=r"(user|item)_ids must have the type of the (user|item)s, got "):
                Interactions.from_arrays(users, items, values, **options, unlisted=unlisted)
        return
    listed_rows = [
        row
        for row, (user, item) in enumerate(zip(users, items, strict=True))
        if (user_ids is None or user in user_ids) and (item_ids is None or item in item_ids)
    ]
    if len(listed_rows) < len(users):
        with pytest.raises(ValueError, match=r"(users|items)\[\d+\] must be in .*, got .* \(\d+ of \d+ rows have"):
            Interactions.from_arrays(users, items, values, **options)
    data = Interactions.from_arrays(users, items, values, **options, unlisted="drop")
    assert_well_formed(data)
    users, items = [users[row] for row in listed_rows], [items[row] for row in listed_rows]
    values = None if values is None else [values[row] for row in listed_rows]
    assert data.user_ids.tolist() == (naive.in_order(users) if user_ids is None else user_ids)
    assert data.item_ids.tolist() == (naive.in_order(items) if item_ids is None else item_ids)
    expected = naive.from_rows(users, items, values, duplicates)
    assert table_of(data) == {user: expected.get(user, {}) for user in data.user_ids.tolist()}
    assert data.catalogue == ("data" if item_ids is None else "public")


@given(cases())
def test_logs_on_listed_axes_equal_their_rows(case):
    users, items, _, user_ids, item_ids = case
    assume(can_be_listed(users, user_ids) and can_be_listed(items, item_ids))
    listed_rows = [
        row
        for row, (user, item) in enumerate(zip(users, items, strict=True))
        if (user_ids is None or user in user_ids) and (item_ids is None or item in item_ids)
    ]
    options = {"user_ids": user_ids, "item_ids": item_ids}
    if len(listed_rows) < len(users):
        with pytest.raises(ValueError, match=r"(users|items)\[\d+\] must be in (user|item)_ids, got"):
            InteractionLog.from_arrays(users, items, {"row": range(len(users))}, **options)
    log = InteractionLog.from_arrays(users, items, {"row": range(len(users))}, **options, unlisted="drop")
    assert log.contexts["row"].tolist() == listed_rows
    assert [log.interactions.user_ids.tolist()[row] for row in log.users] == [users[row] for row in listed_rows]
    assert [log.interactions.item_ids.tolist()[column] for column in log.items] == [items[row] for row in listed_rows]
    dropped = Interactions.from_arrays(users, items, duplicates="sum", **options, unlisted="drop")
    assert table_of(log.interactions) == table_of(dropped)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=20), data=st.data())
def test_stored_tables_on_a_list_equal_loaded_ones(tmp_path_factory, rows, data):
    here = tmp_path_factory.mktemp("tables")
    listed = data.draw(st.lists(st.integers(1, 8), unique=True, min_size=1, max_size=6))
    frame = pd.DataFrame({"user": [f"u{u}" for u, _ in rows], "item": [i for _, i in rows]})
    frame["value"], frame["timestamp"] = range(len(rows)), range(100, 100 + len(rows))
    frame.to_csv(here / "table.csv", index=False)
    options = {name: name for name in ("user", "item", "value", "timestamp")}
    options |= {"duplicates": "last", "item_ids": listed, "unlisted": "drop"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_tables, "_BLOCK", 3)
        stored = store_table(here / "table.csv", here / "stored", **options)
    assert_same(stored, load_table(here / "table.csv", **options))
    assert stored.catalogue == "public"


def entry_points():
    """Return the parameters of public functions that take a list of items and rows."""
    functions = {f"datasets.{name}": getattr(datasets, name) for name in datasets.__all__}
    for kind in (Interactions, InteractionLog):
        functions |= {f"{kind.__name__}.{name}": getattr(kind, name) for name in vars(kind) if name.startswith("from_")}
    functions = {name: inspect.signature(entry).parameters for name, entry in functions.items() if callable(entry)}
    for name in ("load_item_features", "load_movielens_items"):  # tables of items without users' rows
        del functions[f"datasets.{name}"]
    del functions["Interactions.from_scipy"]  # every entry of a matrix is on its axes
    return {name: entry for name, entry in functions.items() if "item_ids" in entry or "path" in entry}


def test_one_rule_for_unlisted_ids_in_all_functions():
    assert len(entry_points()) >= 10
    for name, parameters in entry_points().items():
        for argument, default in (("item_ids", None), ("unlisted", "error")):
            assert argument in parameters, (name, argument)
            assert parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY, name
            assert parameters[argument].default == default, name
    actions = {a.dest: a for a in build_parser()._actions}["command"].choices
    for name in ("fit", "evaluate", "sweep"):
        options = {text for action in actions[name]._actions for text in action.option_strings}
        assert {"--data", "--catalogue", "--drop-unlisted"} <= options, name
    for name, command in actions.items():  # no other command makes a catalogue of rows
        options = {text for action in command._actions for text in action.option_strings}
        assert name in ("reproduce", "recommend") or ("--data" in options) == ("--catalogue" in options), name


def test_times_and_values_stay_with_their_rows():
    data = Interactions.from_arrays(
        [3, 1, 2, 1], ["x", "b", "a", "a"], [9.0, 2.0, 3.0, 4.0], [90, 20, 30, 40], item_ids=["b", "c", "a"],
        unlisted="drop",
    )  # fmt: skip
    assert table_of(data) == {1: {"b": 2.0, "a": 4.0}, 2: {"a": 3.0}}
    assert data.timestamps.tolist() == [20, 40, 30]
    everybody = Interactions.from_arrays([1], ["a"], user_ids=[3, 2, 1, 0], item_ids=["a"])
    assert everybody.interactions_per_user().tolist() == [0, 0, 1, 0]
    nothing = Interactions.from_arrays([], [], user_ids=[1, 2], item_ids=["a", "b", "c"])
    assert (nothing.shape, nothing.n_interactions, nothing.catalogue) == ((2, 3), 0, "public")


def test_a_listed_catalogue_does_not_depend_on_one_user():
    catalogue = list("abcdef")
    with_her = Interactions.from_arrays([1, 2, 3], ["a", "b", "f"], item_ids=catalogue)
    without = Interactions.from_arrays([1, 2], ["a", "b"], item_ids=catalogue)
    np.testing.assert_array_equal(with_her.item_ids, without.item_ids)
    assert not np.array_equal(
        *(Interactions.from_arrays(*c).item_ids for c in (([1, 2], ["a", "b"]), ([1, 2], ["a", "f"])))
    )


@pytest.mark.parametrize(
    "make",
    [
        list, tuple, np.array, pd.Series, pd.Index, pd.Categorical, pd.CategoricalIndex, pl.Series, dict.fromkeys,
        lambda ids: pd.Series(ids, index=range(5, 5 + len(ids))), lambda ids: pd.array(ids, dtype="Int64"),
        lambda ids: np.array(ids, dtype=">i8"), lambda ids: np.ma.array(ids), lambda ids: memoryview(np.array(ids)),
        lambda ids: np.repeat(ids, 2)[::2], lambda ids: pytest.importorskip("pyarrow").array(ids),
        lambda ids: pytest.importorskip("pyarrow").chunked_array([ids[:1], ids[1:]]),
        lambda ids: pytest.importorskip("pyarrow").array(ids).dictionary_encode(),
    ],
)  # fmt: skip
def test_lists_of_any_kind(make):
    data = Interactions.from_arrays([1, 2], [7, 3], item_ids=make([9, 3, 7]), user_ids=make([2, 1]))
    assert table_of(data) == {2: {3: 1.0}, 1: {7: 1.0}}
    assert (data.item_ids.tolist(), data.item_ids.dtype) == ([9, 3, 7], np.int64)
    assert all(type(item) is int for item in data.item_ids.tolist())


@pytest.mark.parametrize(
    ("listed", "items"),
    [
        ([1.0, 2.0], [2, 1]),
        (np.array([1, 2], dtype=np.uint8), [2, 1]),
        ([2**80, 1, -(2**70)], [1, 2**80]),
        (np.array([2**63, 1], dtype=np.uint64), [1, 2**63]),
        (np.array([-(2**63), 5]), np.array([5], dtype=np.uint8)),
        ([True, 5], [5, 1]),
        ([1, "1", 2.5, ("a", 1)], ["1", 1, ("a", 1)]),
        (pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), [("b", 2)]),
        (np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"), np.array(["2021-01-01"], dtype="M8[D]")),
        (["a\0", "a"], ["a", "a\0"]),
        (["", "é", "e\u0301"], ["é", ""]),
    ],
)
def test_a_row_is_found_by_equality_for_any_types(listed, items):
    data = Interactions.from_arrays(range(len(items)), items, item_ids=listed)
    names = list(listed)
    assert list(data.item_ids) == names
    assert data.indices.tolist() == [names.index(item) for item in items]
    assert Interactions.from_arrays([], [], item_ids=listed).item_ids.tolist() == data.item_ids.tolist()


@pytest.mark.parametrize("wrong", [2**53 - 2, -1, 2**64, 0.5, 1e15])
def test_numbers_that_only_look_equal_are_not(wrong):
    for listed in ([2.0**53 - 1], np.array([2**64 - 1], dtype=np.uint64), [0], np.array([255], dtype=np.uint8)):
        data = Interactions.from_arrays([1], [wrong], item_ids=listed, unlisted="drop")
        assert data.n_interactions == 0


def test_frames_logs_and_tables_take_a_list(tmp_path):
    columns = {"user": ["b", "a"], "item": [3, 5], "value": [4.0, 2.0]}
    expected = Interactions.from_arrays(*columns.values(), item_ids=[5, 4, 3])
    arrow = pytest.importorskip("pyarrow")
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), arrow.table(columns)):
        assert_same(Interactions.from_dataframe(frame, value="value", item_ids=[5, 4, 3]), expected)
        with pytest.raises(ValueError, match=r"items\[1\] must be in item_ids, got 5 \(1 of 2 rows have an unlisted"):
            Interactions.from_dataframe(frame, item_ids=[3])
        dropped = Interactions.from_dataframe(frame, item_ids=[3], unlisted="drop")
        assert table_of(dropped) == {"b": {3: 4.0}}
    pd.DataFrame(columns).to_csv(tmp_path / "table.csv", index=False)
    pd.DataFrame(columns).to_parquet(tmp_path / "table.parquet")
    for name in ("table.csv", "table.parquet"):
        roles = {"user": "user", "item": "item", "value": "value"}
        assert_same(load_table(tmp_path / name, **roles, item_ids=[5, 4, 3]), expected)
        stored = store_table(tmp_path / name, tmp_path / f"{name}.store", **roles, item_ids=[5, 4, 3])
        assert_same(stored, expected)
        with pytest.raises(ValueError, match=r"item_ids must list all items of the table, but 3 is missing \(1"):
            store_table(tmp_path / name, tmp_path / "other", **roles, item_ids=[5, 4])
        with pytest.raises(ValueError, match="unlisted must be one of 'error', 'drop', got 'all'"):
            store_table(tmp_path / name, tmp_path / "other", **roles, item_ids=[5, 4], unlisted="all")
        assert not (tmp_path / "other").exists()
    log = InteractionLog.from_arrays(["b", "a", "a"], [3, 5, 5], item_ids=[5, 4, 3], user_ids=["a", "b", "c"])
    assert table_of(log.interactions) == {"a": {5: 2.0}, "b": {3: 1.0}, "c": {}}
    assert (log.users.tolist(), log.items.tolist()) == ([1, 0, 0], [2, 0, 0])


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"item_ids": [1, 2]}, ValueError, r"items\[2\] must be in item_ids, got 3 \(1 of 3 rows have"),
        ({"item_ids": ["1", "2", "3"]}, TypeError, "item_ids must have the type of the items, got strings and numbers"),
        ({"user_ids": [("a", 1)], "unlisted": "drop"}, TypeError, "user_ids must have the type of the users, got tup"),
        ({"item_ids": np.array([b"1"])}, TypeError, "item_ids must have the type of the items, got bytes and numbers"),
        ({"item_ids": np.array(3)}, ValueError, r"item_ids must have 1 dimension, got shape \(\)"),
        ({"item_ids": [1.0, 2.0, float("nan")]}, ValueError, r"item_ids\[2\] is missing \(nan\)"),
        ({"item_ids": pd.array([1, None], dtype="Int64")}, ValueError, r"item_ids\[1\] is missing"),
        ({"item_ids": pl.Series([1, None])}, ValueError, r"item_ids\[1\] is missing"),
        ({"item_ids": np.ma.array([1, 2, 3], mask=[0, 1, 0])}, ValueError, r"item_ids\[1\] is missing"),
        ({"item_ids": [1, 1.0, 3]}, ValueError, "item_ids must be distinct, got 1 repeated"),
        ({"user_ids": [10, 20]}, ValueError, r"users\[2\] must be in user_ids, got an unlisted user \(1 of 3"),
        ({"item_ids": [1, 2, 3, 3]}, ValueError, "item_ids must be distinct, got 1 repeated"),
        ({"item_ids": [1, 2, None]}, ValueError, r"item_ids\[2\] is missing"),
        ({"item_ids": "abc"}, TypeError, "item_ids must be a sequence of ids, got str"),
        ({"item_ids": (i for i in range(3))}, TypeError, "item_ids must be a sequence of ids, got generator"),
        ({"item_ids": [b"a", b"b"]}, TypeError, r"item_ids\[0\] must be a number, .* got b'a' \(bytes\), which can"),
        ({"item_ids": [1, 2, 3], "unlisted": "ignore"}, ValueError, "unlisted must be one of 'error', 'drop', got 'ig"),
    ],
)
def test_lists_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Interactions.from_arrays([10, 20, 30], [1, 2, 3], **options)


def test_an_item_is_named_as_it_was_given():
    for items, listed, shown in (
        (["x", "y"], ["x"], "'y'"),
        (Coded(["y", "x"], np.array([1, 0])), ["x"], "'y'"),
        (np.array([4, 5]), [4], "5"),
        ([("a", 1), ("b", 2)], [("a", 1)], r"\('b', 2\)"),
        (pl.Series(["x", "y"]), ["x"], "'y'"),
    ):
        with pytest.raises(ValueError, match=rf"items\[1\] must be in item_ids, got {shown} "):
            Interactions.from_arrays([1, 2], items, item_ids=listed)
