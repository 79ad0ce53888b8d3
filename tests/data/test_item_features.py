"""Tests of public item features: unit vectors of all kinds of columns in item order, and refused features."""

import copy
import datetime
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from support.array_kinds import Converted, Exported

from fastfedrec.data.item_features import ItemFeatures

HALF = 0.5**0.5
COLUMNS = {"item": ["b", "a", "c"], "genre": ["x", "x", "y"], "year": [1950, 1990, 1990]}
FRAMES = {
    "mapping": dict, "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "categories": lambda columns: pd.DataFrame(columns).astype({"genre": "category"}),
    "arrays": lambda columns: {name: np.array(column) for name, column in columns.items()},
    "objects": lambda columns: {name: np.array(column, dtype=object) for name, column in columns.items()},
}  # fmt: skip


def block(column):
    """The rows of one column's vectors."""
    return ItemFeatures.of("item_features", {"c": column}).blocks[0].toarray()


def cosines(column):
    rows = block(column).astype(float)
    return (rows @ rows.T).round(3).tolist()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_every_library_gives_the_same_vectors(library):
    features = ItemFeatures.of("item_features", FRAMES[library](COLUMNS))
    aligned = features.align("item_features", ["a", "b", "z", "c"])
    assert features.names == ("genre", "year")
    assert aligned.blocks[0].toarray().tolist() == [[1, 0], [1, 0], [0, 0], [0, 1]]
    # One year comes twice: ranks 0, 3/4, 3/4 of two knots.
    np.testing.assert_allclose(aligned.blocks[1].toarray()[1], [1, 0])
    np.testing.assert_allclose(aligned.blocks[1].toarray()[0], np.array([0.25, 0.75]) / np.hypot(0.25, 0.75))
    assert (aligned.n_known, aligned.unlisted.tolist()) == (3, [])
    assert features.digest == ItemFeatures.of("x", pd.DataFrame(COLUMNS)).digest


LABELS = [[1, 1, HALF, 0], [1, 1, HALF, 0], [HALF, HALF, 1, 0], [0, 0, 0, 0]]
KINDS = {
    "joined": ["war", "war", "drama|war|war", ""],
    "tuples": [("war",), ("war",), ("war", "drama"), ()],
    "lists": [["war"], ["war"], ["drama", "war"], []],
    "sets": [{"war"}, {"war"}, frozenset({"drama", "war"}), set()],
    "arrays": [np.array(["war"]), np.array(["war"]), np.array(["drama", "war"]), np.array([], dtype=str)],
    "numbers as labels": [[3], [3], [5, 3], []],
    "lists with NaN": [["war", np.nan], ["war"], ["drama", "war"], [np.nan]],
    "a null": ["war", "war", "drama|war", None],
    "NaN among text": pd.Series(["war", "war", "drama|war", np.nan]),
    "a null of polars": pl.Series([["war"], ["war"], ["war", "drama"], None]),
    "a null of arrow": pa.array([["war"], ["war"], ["war", "drama"], None]),
    "spaces": [" war ", "war", "drama | war", "|"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_however_they_are_written(kind):
    assert cosines(KINDS[kind]) == np.round(LABELS, 3).tolist()


def test_words_of_texts_weigh_more_the_rarer_they_are():
    texts = ["the old man", "the OLD sea", "the end", "a man", "sea!", "nothing else"]
    rows = block(texts).astype(float)
    weights = {"the": np.log(2), "old": np.log(3), "man": np.log(3), "sea": np.log(3)}
    first, second = ({w: weights[w] for w in words} for words in (("the", "old", "man"), ("the", "old", "sea")))
    expected = sum(first[w] * second.get(w, 0) for w in first)
    expected /= np.linalg.norm(list(first.values())) * np.linalg.norm(list(second.values()))
    assert rows[0] @ rows[1] == pytest.approx(expected, rel=1e-6)
    assert rows[2] @ rows[0] == pytest.approx(np.log(2) / np.linalg.norm(list(first.values())), rel=1e-6)
    assert not rows[5].any()  # its words are nowhere else


NUMBERS = {
    "whole": [3, 1, 2, 1],
    "fractions": [0.3, -5.0, 0.25, -5.0],
    "with an outlier": [1e300, -1.0, 0.0, -1.0],
    "decimals": [Decimal("3.5"), Decimal("1.5"), Decimal("2.5"), Decimal("1.5")],
    "single": np.array([3, 1, 2, 1], dtype=np.float32),
    "dates": [datetime.date(2000, 1, d) for d in (3, 1, 2, 1)],
    "times": pd.to_datetime(["2000-01-03", "2000-01-01", "2000-01-02", "2000-01-01"]),
    "times of NumPy": np.array(["2000-01-03", "2000-01-01", "2000-01-02", "2000-01-01"], dtype="M8[ns]"),
    "times of zones": [
        datetime.datetime(2000, 1, 1, hour, tzinfo=datetime.timezone(datetime.timedelta(hours=zone)))
        for hour, zone in ((9, -3), (11, 1), (11, 0), (10, 0))
    ],
    "times near year 1": pd.Series(
        [datetime.datetime(1, 1, day, tzinfo=datetime.timezone(datetime.timedelta(hours=9))) for day in (3, 1, 2, 1)],
        dtype=object,
    ),
    "times of polars": pl.Series([datetime.datetime(2000, 1, d) for d in (3, 1, 2, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_ranks_between_knots(kind):
    rows = block(NUMBERS[kind])
    # Ranks 1, 1/6, 2/3 and 1/6 of the way, over two knots between three values.
    expected = np.array([[0, 0, 1], [2 / 3, 1 / 3, 0], [0, 2 / 3, 1 / 3], [2 / 3, 1 / 3, 0]])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    "make", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_matrix, Converted, Exported, lambda x: x.astype("f4")]
)
def test_given_vectors_get_norm_one(make):
    vectors = np.array([[3.0, 4.0], [0.0, 0.0], [-2.0, 0.0]])
    given = make(vectors)
    for features in (ItemFeatures.of("x", given), ItemFeatures.of("x", {"v": given, "item": [5, 6, 7]})):
        ids = [0, 1, 2] if features.ids is None else [5, 6, 7]
        np.testing.assert_allclose(
            features.align("x", ids).blocks[0].toarray(), [[0.6, 0.8], [0, 0], [-1, 0]], rtol=1e-6
        )
    lists = pl.DataFrame({"v": [[3.0, 4.5], [0.0, 0.0], [-2.0, 0.0]]})
    np.testing.assert_allclose(ItemFeatures.of("x", lists).blocks[0].toarray()[2], [-1, 0])


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(
    column=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20)
    | st.lists(st.text(), min_size=1, max_size=20)
    | st.lists(st.none() | st.lists(st.text(max_size=3) | st.integers()), min_size=1, max_size=20)
    | st.lists(st.booleans() | st.none(), min_size=1, max_size=20)
    | st.lists(st.dates() | st.none(), min_size=1, max_size=20)
)
def test_rows_have_norm_one_or_are_zeros_and_follow_their_ids(column):
    ids = np.arange(len(column))[::-1] * 7
    features = ItemFeatures.of("x", {"item": ids, "c": column})
    rows = features.blocks[0].toarray().astype(float)
    norms = np.linalg.norm(rows, axis=1)
    assert ((norms == 0) | (np.abs(norms - 1) < 1e-5)).all()
    if len(column):
        np.testing.assert_array_equal(features.align("x", ids[::-1]).blocks[0].toarray(), rows[::-1])
    for value, norm in zip(column, norms, strict=True):
        assert value is not None or norm == 0


@given(
    rows=st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=6),
    scale=st.sampled_from([2.0**-400, 1.0, 2.0**20]),
)
def test_lengths_of_vectors_do_not_matter(rows, scale):
    array = np.array(rows)
    rows = ItemFeatures.of("x", array).blocks[0].toarray()
    with np.errstate(over="ignore"):
        scaled = array * scale
    if (
        np.isfinite(scaled).all()
        and ((scaled != 0) == (array != 0)).all()
        and (np.abs(scaled[scaled != 0]) > 1e-300).all()
    ):
        np.testing.assert_allclose(ItemFeatures.of("x", scaled).blocks[0].toarray(), rows, atol=1e-6)


def test_item_features_are_immutable_and_copies_are_equal():
    features = ItemFeatures.of("x", COLUMNS)
    assert copy.deepcopy(features) is copy.copy(features) is ItemFeatures.of("x", features) is features
    assert pickle.loads(pickle.dumps(features)).digest == features.digest
    with pytest.raises(ValueError, match="read-only"):
        features.blocks[0].data[0] = 2
    other = ItemFeatures.of("x", COLUMNS | {"year": [1950, 1990, 1991]})
    assert other.digest != features.digest != ItemFeatures.of("x", COLUMNS | {"item": ["b", "c", "a"]}).digest


def test_a_digest_replaces_features_that_a_file_omits():
    digest = ItemFeatures.of("x", COLUMNS).digest
    stored = ItemFeatures.of("item_features", digest)
    assert repr(stored) == repr(ItemFeatures.of("x", COLUMNS)) == f"<ItemFeatures: digest {digest[:16]}>"
    with pytest.raises(ValueError, match=f"item_features must hold features, got only the digest {digest[:16]}"):
        stored.align("item_features", ["a"])


def test_ids_that_are_no_items_and_items_without_a_row():
    aligned = ItemFeatures.of("x", {"item": [9, 8, 7], "c": ["a", "a", None]}).align("x", np.array([7, 8, 1]))
    assert aligned.blocks[0].toarray().tolist() == [[0], [1], [0]]
    assert aligned.unlisted.tolist() == [9]
    assert aligned.n_known == 1
    assert ItemFeatures.of("x", {"item": [9.0, 8.0], "c": ["a", "a"]}).align("x", [8, 1]).n_known == 1


# ---- bad inputs -----------------------------------------------------------------------------------------------------

BAD = {
    "NaN": ({"year": [1.0, np.nan]}, ValueError, r"item_features\['year'\]\[1\] must be finite, got nan"),
    "NaN of pandas": (pd.DataFrame({"y": [np.nan, 1.0]}), ValueError, r"\['y'\]\[0\] must be finite, got nan"),
    "NaN after a null": (
        pl.DataFrame({"y": [None, 1.0, float("nan")]}),
        ValueError,
        r"\['y'\]\[2\] must be finite, got nan",
    ),
    "infinite": ({"y": [1, float("-inf")]}, ValueError, r"\['y'\]\[1\] must be finite, got -inf"),
    "NaN in vectors": (
        np.array([[1.0, 2.0], [3.0, np.nan]]),
        ValueError,
        r"item_features\[1, 1\] must be finite, got nan",
    ),
    "NaN in a sparse": (
        scipy.sparse.csr_array([[0, 1.0], [np.inf, 0]]),
        ValueError,
        r"\[1, 0\] must be finite, got inf",
    ),
    "NaN in a list": ({"v": [None, [0.5, np.nan]]}, ValueError, r"\['v'\]\[1, 1\] must be finite, got nan"),
    "complex": (np.ones((2, 2), dtype=complex), TypeError, "real numbers .* complex128"),
    "masked vectors": (np.ma.masked_greater(np.ones((2, 2)), 0), ValueError, r"item_features\[0, 0\] is missing"),
    "too large": ({"y": [1, 10**400]}, ValueError, r"\['y'\] must hold numbers in the range of float64"),
    "mixed": ({"y": [1, "a"]}, TypeError, r"\['y'\] .* got number 1 at position 0 and text 'a' at position 1"),
    "times with and without a zone": (
        {"y": [datetime.datetime(2000, 1, 1), None, datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)]},
        TypeError,
        r"\['y'\] must hold times that all have a zone or all have none, got 2000-01-01 00:00:00 at position 0 and "
        r"2000-01-01 00:00:00\+00:00 at position 2",
    ),
    "bytes": ({"y": [b"a", b"b"]}, TypeError, r"\['y'\] .* got bytes b'a' at position 0"),
    "dicts": ({"y": [{"a": 1}]}, TypeError, "got dict"),
    "lists of lists": ({"y": [[["a"]], []]}, TypeError, r"\['y'\]\[0\] must hold labels, got \['a'\]"),
    "vectors of lengths": ({"y": [[0.5], [0.5, 1]]}, ValueError, "have equal lengths, got lengths from 1 to 2"),
    "three dimensions": ({"y": np.ones((2, 2, 2))}, ValueError, r"1 or 2 dimensions, got shape \(2, 2, 2\)"),
    "one text": ({"y": "abc"}, TypeError, r"\['y'\] must be a column with an entry for each item, got str"),
    "a number": (5, TypeError, "must be a frame, a mapping .* got int"),
    "a column": (["a", "b"], TypeError, "got list; name a column as"),
    "an array of one dimension": (np.ones(3), TypeError, r"got ndarray of shape \(3,\)"),
    "text": ("genres", TypeError, "got str"),
    "nothing": ({}, ValueError, "must have a column other than 'item'"),
    "ids alone": ({"item": [1, 2]}, ValueError, "must have a column other than 'item'"),
    "no row": ({"item": [], "y": []}, ValueError, "must have at least one row, got none"),
    "ids twice": ({"item": [1, 2, 1], "y": [1, 2, 3]}, ValueError, r"\['item'\] must be distinct, .* 0 and 2"),
    "an id missing": ({"item": ["a", None], "y": [1, 2]}, ValueError, r"\['item'\]\[1\] is missing"),
    "lengths": ({"item": [1, 2], "y": [1, 2, 3]}, ValueError, "columns of equal length, got {'item': 2, 'y': 3}"),
    "names twice": (pd.DataFrame([[1, 2]], columns=["y", "y"]), KeyError, "distinct column names"),
    "names that are numbers": (pd.DataFrame([[1, 2]]), TypeError, "column names that are text, got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_features_are_refused_by_name(case):
    given, error, message = BAD[case]
    with pytest.raises(error, match=message):
        ItemFeatures.of("item_features", given)


def test_features_that_do_not_fit_the_items_are_refused():
    table = ItemFeatures.of("item_features", {"item": [1, 2], "y": [1, 2]})
    with pytest.raises(
        TypeError, match=r"item_features\['item'\] must have the type of the items' ids, got numbers and str"
    ):
        table.align("item_features", ["1", "2"])
    with pytest.raises(KeyError, match=r"\['item'\] must contain some of the 2 items, got none: its first id is 1, "):
        table.align("item_features", [7, 8])
    with pytest.raises(ValueError, match="must have 3 rows, one for each item in the order of item_ids, got 2; add"):
        ItemFeatures.of("item_features", np.ones((2, 4))).align("item_features", [1, 2, 3])
