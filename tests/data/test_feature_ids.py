"""Tests of features: any container is aligned by ids or refused, never assigned to other users or items."""

import pickle
import tempfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import DPGram, Interactions, Key, Popularity, load
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.data.store import open_interactions, store_interactions

IDS = {"item": [7, 8, 9], "user": [10, 20, 30]}
NAMES = {
    "item": ["item", "movieId", "item_id:token", "asin", "ISBN", "StockCode", "business_id"],
    "user": ["user", "userId", "user_id", "CustomerID", "Customer ID", "user_id:token"],
}
LIBRARIES = {
    "mapping": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "index": lambda columns: pd.DataFrame(columns).set_index(next(iter(columns))),
    "index beside rows": lambda columns: pd.DataFrame(columns).set_index(next(iter(columns)), drop=False),
    "indexed series": lambda columns: dict(pd.DataFrame(columns).set_index(next(iter(columns)))),
    "filtered frame": lambda columns: pd.DataFrame(columns, index=[5, 1, 3, 0][: len(next(iter(columns.values())))]),
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "floats": lambda columns: pd.DataFrame(columns).astype({next(iter(columns)): float}),
}  # fmt: skip
DATA = Interactions.from_arrays([10, 20, 30], [7, 8, 9])


def attach(axis, table, data=DATA):
    """The features of one axis, by name."""
    made = data.with_features(**{f"{axis}_features": table})
    return {name: column.tolist() for name, column in getattr(made, f"{axis}_features").items()}


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("axis", "name"), [(axis, name) for axis, names in NAMES.items() for name in names])
def test_rows_in_any_order_are_aligned_by_ids_of_any_usual_name(library, axis, name):
    ids = IDS[axis]
    table = LIBRARIES[library]({name: [ids[2], ids[0], 99, ids[1]], "age": [33, 11, 0, 22]})
    assert attach(axis, table) == {"age": [11, 22, 33]}
    if axis == "item":
        features = ItemFeatures.of("item_features", table)
        assert features.names == ("age",)
        rows = features.align("item_features", ids).blocks[0].toarray()
        expected = ItemFeatures.of("x", {"item": [*ids, 99], "age": [11, 22, 33, 0]}).align("x", ids).blocks[0]
        assert rows.tolist() == expected.toarray().tolist()


@given(st.permutations(range(6)), st.sampled_from(sorted(LIBRARIES)), st.sampled_from(NAMES["item"]))
def test_no_order_of_rows_changes_features(order, library, name):
    if library == "filtered frame":  # its index has four entries
        library = "pandas"
    data = Interactions.from_arrays([1] * 6, [3, 5, 8, 9, 12, 40])
    ids = data.item_ids[list(order)].tolist()
    table = LIBRARIES[library]({name: ids, "genre": [f"g{item}" for item in ids]})
    assert attach("item", table, data) == {"genre": [f"g{item}" for item in data.item_ids.tolist()]}


def test_the_constructor_aligns_too():
    fields = "indptr", "indices", "values", "timestamps", "user_ids", "item_ids", "global_user_ids"
    data = Interactions(
        *(getattr(DATA, field) for field in fields), item_features={"item": [9, 7, 8], "g": ["c", "a", "b"]}
    )
    assert data.item_features["g"].tolist() == ["a", "b", "c"]
    assert "item" not in data.item_features


def test_a_private_model_gets_the_features_of_its_items():
    users, chosen = np.arange(2000).repeat(6), np.random.default_rng(1).integers(0, 15, 12000)
    data = Interactions.from_arrays(users, 4 * chosen + users % 4, item_ids=np.arange(60), duplicates="first")
    kinds = np.array(["a", "b", "c", "d"])[data.item_ids % 4]
    shuffled = np.random.default_rng(0).permutation(60)
    frame = pd.DataFrame({"movieId": data.item_ids[shuffled], "kind": kinds[shuffled]})
    expected = DPGram(epsilon=4.0, item_features={"kind": kinds}).fit(data, key=Key.from_seed(2))
    for table in (frame, frame.set_index("movieId"), pl.DataFrame(frame), {"kind": frame.set_index("movieId")["kind"]}):
        model = DPGram(epsilon=4.0, item_features=table).fit(data, key=Key.from_seed(2))
        assert model.item_features.names == ("kind",)
        np.testing.assert_array_equal(model.recommend(None)[1], expected.recommend(None)[1])
    misplaced = DPGram(epsilon=4.0, item_features={"kind": kinds[shuffled]}).fit(data, key=Key.from_seed(2))
    assert (misplaced.recommend(None)[1] != expected.recommend(None)[1]).any()


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_rows_without_ids_are_in_the_order_of_the_axis(library):
    assert attach("item", library({"g": ["x", "y", "z"]})) == {"g": ["x", "y", "z"]}
    assert ItemFeatures.of("x", library({"g": ["x", "y", "z"]})).ids is None
    named = pd.DataFrame({"g": ["x", "y", "z"]}).rename_axis("row")
    assert attach("item", named) == {"g": ["x", "y", "z"]}


def test_a_column_called_as_the_axis_has_the_ids_and_other_usual_names_are_features():
    table = {"album_id": [1, 2, 3], "item": [9, 8, 7], "artist_id": [4, 5, 6]}
    assert attach("item", table) == {"album_id": [3, 2, 1], "artist_id": [6, 5, 4]}


# ---- bad inputs -----------------------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"g": ["c", "b", "a"]}, index=[9, 8, 7])
BAD = {
    "an index without a name": (FRAME, r"begins with 9; name ids .*_axis\('item'\).*_index\(drop=True\)"),
    "rows that were sorted": (FRAME.reset_index(drop=True).sort_values("g"), "begins with 2"),
    "an index of texts": (FRAME.set_axis(["p", "q", "r"]), "begins with 'p'"),
    "an index of an unknown name": (FRAME.rename_axis("row"), "begins with 9"),
    "an index of several levels": (FRAME.set_index(["g", FRAME.index]).assign(h=1), "must have an index from 0 to n"),
    "series with an index": ({"g": FRAME["g"]}, "begins with 9"),
    "series with other indexes": ({"g": FRAME["g"], "h": FRAME["g"][::-1]}, "different indexes of 'h' and 'g'"),
    "ids of another index": ({"item": pd.Series([7, 8, 9]), "g": FRAME["g"]}, "different indexes of 'g' and 'item'"),
    "a list as well": ({"g": FRAME["g"].rename_axis("item"), "h": [1, 2, 3]}, r"'h'\] must have the index 'item'"),
    "two columns of ids": ({"asin": [9, 8, 7], "movieId": [7, 8, 9]}, "rename the right one to 'item'"),
    "a column and an index": (FRAME.rename_axis("asin").assign(movieId=[7, 8, 9]), "rename the right one to 'item'"),
    "ids twice": ({"movieId": [7, 8, 7], "g": [1, 2, 3]}, r"\['movieId'\] must be distinct, .* 0 and 2 .*; keep one"),
    "an id missing": ({"movieId": pd.Series([7, None, 9]), "g": [1, 2, 3]}, r"\['movieId'\]\[1\] is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_features_with_ambiguous_ids_are_refused(case):
    table, message = BAD[case]
    with pytest.raises((KeyError, ValueError), match=message):
        ItemFeatures.of("item_features", table)
    with pytest.raises((KeyError, ValueError), match=message):
        DATA.with_features(item_features=table)


@given(st.permutations(IDS["item"]), st.sampled_from([list, np.array, pl.Series, lambda ids: np.array(ids, float)]))
def test_ids_under_an_unknown_name_are_refused_unless_they_are_in_order(ids, make):
    table = {"film": make(ids), "g": ["x", "y", "z"]}
    features = ItemFeatures.of("item_features", table)
    if list(ids) == IDS["item"]:
        assert features.align("item_features", IDS["item"]).n_known == 3
        assert attach("item", table)["g"] == ["x", "y", "z"]
        return
    message = (
        r"item_features\['film'\] must not hold ids in another order than item_ids, got the ids of 3 of the 3 items"
    )
    with pytest.raises(ValueError, match=message):
        features.align("item_features", IDS["item"])
    with pytest.raises(ValueError, match=message):
        attach("item", table)


@pytest.mark.parametrize("name", ["id", "title_id", "tmdbId", "UID2_id"])
def test_numbers_of_rows_under_a_name_of_ids_are_refused_unless_they_are_in_order(name):
    data = Interactions.from_arrays([0, 1, 2, 3], [3, 2, 1, 0])
    table = {name: [2, 0, 3, 1], "g": ["x", "y", "z", "w"]}
    for axis in ("user", "item"):
        argument = f"{axis}_features"
        with pytest.raises(ValueError, match=rf"{argument}\['{name}'\] must not .* got the ids of 4 of the 4 {axis}s"):
            data.with_features(**{argument: table})
        for harmless in ({**table, name: [0, 1, 2, 3]}, {"rank": table[name], "g": table["g"]}, {name: [2, 0, 2, 0]}):
            assert len(getattr(data.with_features(**{argument: harmless}), argument)) == len(harmless)
    with pytest.raises(ValueError, match=f"'{name}'"):
        ItemFeatures.of("item_features", table).align("item_features", data.item_ids)


def test_items_without_a_row_are_counted_and_users_are_not_named():
    with pytest.raises(
        ValueError,
        match=r"item_features\['asin'\] must have a row for each of the 3 items, .* 2 of them, the first is 7",
    ):
        attach("item", {"asin": [8, 1], "g": [1, 2]})
    with pytest.raises(
        ValueError, match=r"must have a row for each of the 3 users, got no row for 1 of them; add"
    ) as caught:
        attach("user", {"uid": [10, 20], "g": [1, 2]})
    assert "30" not in str(caught.value)
    with pytest.raises(
        TypeError, match=r"item_features\['item'\] must have the type of the items' ids, got strings and numb"
    ):
        attach("item", {"item": ["7", "8", "9"], "g": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"\['g'\] must have 3 entries, one for each id, got 2"):
        attach("item", {"item": [7, 8, 9], "g": [1, 2]})


@given(
    st.sampled_from(["user", "item"]), st.sampled_from(["movieId", "uid", "asin", "film"]),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
)  # fmt: skip
def test_features_are_aligned_once(axis, called, values):
    """A feature with the name or the values of ids keeps its order in files, pickles and models."""
    features = {axis: IDS[axis][::-1], called: values[::-1], "g": ["c", "b", "a"]}
    data = DATA.with_features(**{f"{axis}_features": features})
    with tempfile.TemporaryDirectory() as folder:
        store_interactions(data, f"{folder}/stored")
        Popularity().fit(data).save(f"{folder}/model.npz")
        stored, model = open_interactions(f"{folder}/stored"), load(f"{folder}/model.npz")
        for copy in (stored, pickle.loads(pickle.dumps(stored)), pickle.loads(pickle.dumps(data)), model.interactions_):
            assert columns_of(getattr(copy, f"{axis}_features")) == {called: values, "g": ["a", "b", "c"]}


def columns_of(features):
    return {name: column.tolist() for name, column in features.items()}


@given(st.permutations(range(20)), st.integers(0, 1))
def test_a_column_of_nearly_all_ids_is_refused_unless_it_is_in_order(order, n_others):
    items = np.arange(100, 120)
    data = Interactions.from_arrays(np.zeros(20, int), items)
    film = items[list(order)]
    film[:n_others] = 7
    if list(order) == list(range(20)) and not n_others:
        return
    with pytest.raises(ValueError, match=f"another order .* got the ids of {20 - n_others} of the 20 items"):
        data.with_features(item_features={"film": film, "g": np.arange(20.0)})
    year = {"year": np.tile([101, 102], 10)}  # few ids, each many times
    assert columns_of(data.with_features(item_features=year).item_features) == {"year": [101, 102] * 10}
