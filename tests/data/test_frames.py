"""Tests of frames of pandas, polars and pyarrow: the same rows from each library, and refused frames."""

import sys
import warnings
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
from support.interaction_case import assert_same

from fastfedrec import EASE, DPGram, Interactions, Key, Popularity
from fastfedrec.compute import clustering
from fastfedrec.data._frames import column_names, is_frame, native_frame
from fastfedrec.data.conversion import as_interactions, borrow_rows
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation import evaluate
from fastfedrec.testing import interactions


class Stream:
    """Table of another library, which has Arrow's C stream interface and can be read once."""

    def __init__(self, columns):
        self._readers = [pa.table(columns).to_reader()]

    def __arrow_c_stream__(self, requested_schema=None):
        return self._readers.pop().__arrow_c_stream__(requested_schema)


class Relation(Stream):
    """Relation of DuckDB or table of Ibis, with columns that are no arrays."""

    columns = ("user", "item", "value", "other")
    type = "SELECT_RELATION"

    def __getitem__(self, name):
        raise AssertionError("a column was taken that is none")

    def __len__(self):
        raise AssertionError("the rows were counted")


class Single:
    """Column of another library with the same interface."""

    dtype = "int64"
    __arrow_c_stream__ = Stream.__arrow_c_stream__


COLUMNS = {"user": ["b", "a", "b"], "item": [3, 3, 1], "value": [4.0, -5.0, 2.5], "other": ["x", "y", "z"]}
FRAMES = {
    "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "batch of arrow": lambda columns: pa.table(columns).to_batches()[0],
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "stream": Stream, "relation": Relation, "reader of arrow": lambda columns: pa.table(columns).to_reader(),
}  # fmt: skip


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_every_library_gives_the_same_interactions(library):
    frame = FRAMES[library](COLUMNS)
    assert is_frame(frame)
    frame = native_frame(frame)
    assert column_names(frame) == list(COLUMNS)
    expected = Interactions.from_arrays(COLUMNS["user"], COLUMNS["item"], COLUMNS["value"])
    assert_same(Interactions.from_dataframe(frame, value="value"), expected)


PAIRS = {"user": [1, 0, 1], "item": [2, 2, 0], "value": [1.0, 1.0, 1.0], "timestamp": [3, 2, 1]}
TRAIN = pd.DataFrame({"user": [0, 1], "item": [0, 1]})
STREAM_DOORS = {
    "from_dataframe": lambda frame: Interactions.from_dataframe(frame, value="value", timestamp="timestamp"),
    "as_interactions": lambda frame: as_interactions("interactions", frame),
    "borrow_rows": lambda frame: borrow_rows("rows", frame),
    "kmeans": lambda frame: clustering.kmeans(frame, 1, key=Key.from_seed(1)).centers,
    "fit": lambda frame: Popularity().fit(frame).interactions_,
    "evaluate": lambda frame: evaluate(Popularity().fit(TRAIN), TRAIN, frame),
    "recommend": lambda frame: EASE(1.0).fit(pd.DataFrame(PAIRS)).recommend_for(frame),
    "user features": lambda frame: as_interactions("", pd.DataFrame(PAIRS)).with_features(item_features=frame),
    "item features": lambda frame: ItemFeatures.of("item_features", frame).names,
}


def test_frames_of_narwhals_are_read():
    narwhals = pytest.importorskip("narwhals")
    expected = Interactions.from_arrays(COLUMNS["user"], COLUMNS["item"], COLUMNS["value"])
    for library in (pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table):
        frame = narwhals.from_native(library(COLUMNS))
        assert_same(Interactions.from_dataframe(frame, value="value"), expected)
        assert not is_frame(narwhals.from_native(pl.Series([1]), series_only=True))


@pytest.mark.parametrize("absent", [(), ("pyarrow",)])
@pytest.mark.parametrize("kind", [Stream, Relation])
@pytest.mark.parametrize("entry", STREAM_DOORS)
def test_every_entry_point_takes_an_arrow_stream_as_a_frame(entry, kind, absent, monkeypatch):
    columns = {"genre": ["x", "y"]} if entry.endswith("features") else PAIRS
    given, expected = kind(columns), STREAM_DOORS[entry](pl.DataFrame(columns))
    for library in absent:
        monkeypatch.setitem(sys.modules, library, None)
    np.testing.assert_equal(repr(STREAM_DOORS[entry](given)), repr(expected))


def test_a_stream_needs_pyarrow_or_polars(monkeypatch):
    given = Stream(PAIRS)
    for library in ("pyarrow", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    message = r"reading a Stream needs pyarrow or polars: pip install 'fastfedrec\[data\]'"
    with pytest.raises(ImportError, match=message):
        Interactions.from_dataframe(given)


@pytest.mark.parametrize("column", [Single(), pa.chunked_array([[1]]), pl.Series([1]), pd.Series([1]), pa.array([1])])
def test_a_single_column_is_no_frame(column):
    assert not is_frame(column)


def test_a_stream_without_columns_is_refused_by_its_name():
    class Numbers:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.chunked_array([[1, 2]]).__arrow_c_stream__(requested_schema)

    with pytest.raises(TypeError, match="a Numbers must be an Arrow stream with named columns"):
        Interactions.from_dataframe(Numbers())


def test_columns_of_a_stream_are_named_when_one_is_not_there():
    with pytest.raises(
        KeyError, match=r"user and item must be given, because no column .* got \['a'\]; pass user='COLUMN'"
    ):
        Interactions.from_dataframe(Stream({"a": [1]}))
    with pytest.raises(
        KeyError, match=r"interactions must have the columns 'user' and 'item', .* the frame has \['a'\]"
    ):
        as_interactions("interactions", Stream({"a": [1]}))


@pytest.mark.parametrize("columns", [range(30), pd.MultiIndex.from_product([[1, 2], range(15)]), [2.5, 3.5] * 15])
def test_a_frame_that_is_a_matrix_is_refused_with_a_remedy(columns):
    dense = (np.random.default_rng(1).random((4, 30)) < 0.5).astype(float)
    frame = pd.DataFrame(dense, columns=columns)
    remedy = r"for a matrix of users x items, pass scipy.sparse.csr_array\(frame.to_numpy\(\)\)"
    for take in (Popularity().fit, lambda rows: clustering.kmeans(rows, 2, key=Key.from_seed(1))):
        with pytest.raises(KeyError, match=rf"must have the columns 'user' and 'item', .* the frame has .*; {remedy}"):
            take(frame)
    assert clustering.kmeans(frame.to_numpy(), 2, key=Key.from_seed(1)).centers.shape == (2, 30)  # the remedies work
    assert Popularity().fit(scipy.sparse.csr_array(frame.to_numpy())).interactions_.shape == (4, 30)
    with pytest.raises(KeyError, match="rename them"):
        Popularity().fit(pd.DataFrame({"title": [1], 5: [2]}))


DECIMALS = [Decimal("4.5"), Decimal("-0.5")]
VALUES = {
    "decimals of pandas": pd.Series(DECIMALS),
    "decimals of arrow": pa.array(DECIMALS),
    "decimals of polars": pl.Series(DECIMALS),
    "decimals of pandas of arrow": pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
    "nullable": pd.array([4.5, -0.5], dtype="Float64"),
    "of arrow": pd.Series([4.5, -0.5], dtype=pd.ArrowDtype(pa.float32())),
    "objects": pd.Series([4.5, -0.5], dtype=object),
    "categories": pd.Series(pd.Categorical([4.5, -0.5])),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_floats_for_any_numeric_column(kind):
    column, library = VALUES[kind], pd.DataFrame
    if not kind.endswith("pandas") and "decimals of" in kind:
        library = {"arrow": pa.table, "polars": pl.DataFrame}.get(kind.split()[2], pd.DataFrame)
    frame = library({"user": [1, 2], "item": [1, 2], "value": column})
    assert Interactions.from_dataframe(frame, value="value").values.tolist() == [4.5, -0.5]


IDS = {
    "categories of pandas": (pd.DataFrame, pd.Categorical(["b", "a", "b"])),
    "categories of numbers": (pd.DataFrame, pd.Categorical([3, 1, 3])),
    "categories of polars": (pl.DataFrame, pl.Series(["b", "a", "b"], dtype=pl.Categorical)),
    "enum of polars": (pl.DataFrame, pl.Series(["b", "a", "b"], dtype=pl.Enum(["a", "b"]))),
    "dictionary of arrow": (pa.table, pa.array(["b", "a", "b"]).dictionary_encode()),
    "dictionary of pandas of arrow": (
        pd.DataFrame,
        pd.Series(["b", "a", "b"]).astype(pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
    ),
    "strings of arrow": (pd.DataFrame, pd.Series(["b", "a", "b"], dtype="string[pyarrow]")),
    "large strings": (pa.table, pa.array(["b", "a", "b"], pa.large_string())),
    "nullable": (pd.DataFrame, pd.array([3, 1, 3], dtype="Int64")),
    "small": (pl.DataFrame, pl.Series([3, 1, 3], dtype=pl.UInt8)),
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_are_those_of_a_plain_list_for_any_column(kind):
    library, column = IDS[kind]
    plain = [1, 3] if kind in ("categories of numbers", "nullable", "small") else ["a", "b"]
    data = Interactions.from_dataframe(library({"user": column, "item": [1, 1, 2]}))
    assert data.user_ids.tolist() == plain
    assert data.indptr.tolist() == [0, 1, 3]


def test_ids_of_tensors_are_numbers():
    users, items = Exported(np.array([3, 1, 3])), Converted(np.array([1, 1, 2]))
    data = Interactions.from_arrays(users, items, Exported(np.array([1.0, 2.0, 3.0])))
    assert_same(data, Interactions.from_arrays([3, 1, 3], [1, 1, 2], [1.0, 2.0, 3.0]))
    assert data.user_index(Exported(np.array([3]))).tolist() == [1]


def test_only_requested_columns_of_a_lazy_frame_are_read():
    def fail(batch):
        raise AssertionError("a column was read that was not requested")

    lazy = pl.LazyFrame(COLUMNS).with_columns(pl.col("other").map_batches(fail, return_dtype=pl.String))
    assert Interactions.from_dataframe(lazy).n_interactions == 3
    with pytest.raises(Exception, match="that was not requested"):
        lazy.collect()


def test_a_batch_of_arrow_keeps_its_times():
    batch = pa.record_batch({"user": pa.array(["a"]), "item": pa.array([1]), "when": pa.array([7], pa.timestamp("us"))})
    data = Interactions.from_dataframe(batch, timestamp="when")
    assert data.timestamps.tolist() == [7000]


NUL_COLUMNS = [
    pl.Series, pd.Series, pa.array, lambda ids: pa.chunked_array([ids]),
    lambda ids: pl.Series(ids, dtype=pl.Categorical), lambda ids: np.array(ids, dtype=np.dtypes.StringDType()),
]  # fmt: skip


@pytest.mark.parametrize("column", NUL_COLUMNS)
def test_text_keeps_trailing_characters_that_numpy_strips(column):
    ids = ["a\0", "a"]
    data = Interactions.from_arrays(column(ids), [1, 2])
    assert data.user_ids.tolist() == ["a", "a\0"]
    assert data.user_index(column(ids)).tolist() == [1, 0]
    assert Interactions.from_arrays(ids, [1, 2], user_ids=column(ids)).user_ids.tolist() == ids
    for library in (pl.DataFrame, pd.DataFrame, pa.table):
        frame = library({"user": ids, "item": [1, 2]})
        assert Interactions.from_dataframe(frame).user_ids.tolist() == ["a", "a\0"]


@pytest.mark.parametrize("library", [dict, pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_columns_of_features_and_contexts_come_in_frames_too(library):
    columns = {"age": [31, 47], "city": ["b", "a"]}
    data = Interactions.from_arrays([1, 2], [3, 4])
    for found in (
        data.with_features(user_features=library(columns)).user_features,
        data.with_features(item_features=library(columns)).item_features,
        InteractionLog.from_arrays([1, 2], [3, 4], library(columns)).contexts,
    ):
        assert {name: column.tolist() for name, column in found.items()} == columns


@given(data=interactions(), with_timestamps=st.booleans())
def test_a_table_of_interactions_gives_them_back(data, with_timestamps):
    if with_timestamps:
        data = data._replace(timestamps=np.arange(data.n_interactions) * 7 - 3)
    frame = data.to_dataframe()
    named = {name: name for name in ("value", "timestamp") if name in frame.columns}
    assert list(frame.columns) == ["user", "item", *named]
    back = Interactions.from_dataframe(frame, user_ids=data.user_ids, item_ids=data.item_ids, **named)
    assert_same(back, data)


def test_a_table_without_pandas_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="a frame of pandas needs pandas: pip install pandas"):
        Interactions.from_arrays([1], [2]).to_dataframe()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_that_is_not_there_is_named_and_no_row_is_shown(library):
    with pytest.raises(KeyError, match=r"item='movie' is not a column; the frame has \['user', 'item'") as caught:
        Interactions.from_dataframe(FRAMES[library](COLUMNS), item="movie")
    assert "'b'" not in str(caught.value)


def test_data_without_named_columns_are_refused():
    data = Interactions.from_arrays([1, 2], [3, 4])
    with pytest.raises(TypeError, match="item_features must be a mapping or a frame, got list"):
        data.with_features(item_features=[[1, 2]])
    with pytest.raises(TypeError, match="contexts must be a mapping or a frame, got ndarray"):
        InteractionLog.from_arrays([1, 2], [3, 4], np.arange(2))
    with pytest.raises(KeyError, match="user_features must have distinct column names"):
        data.with_features(user_features=pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))


@pytest.mark.parametrize("given", [[1, 2], np.eye(2), pd.Series([1]), pl.Series([1]), pa.chunked_array([[1]]), None])
def test_data_without_named_columns_are_no_frame(given):
    assert not is_frame(given)
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, or a pyarrow Table, got"):
        Interactions.from_dataframe(given)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_written_mark_of_a_missing_id_is_noted_unless_the_fit_is_private(make):
    frame = make({"user": ["ann", "nan", "b"] * 2, "item": ["x", "", "Nan's", "z", "NA", "z"]})
    notes = [
        "the frame's user column has the id 'nan', and its rows count as one user; if it stands for a missing id, "
        "remove these rows",
        "the frame's item column has the id '', and its rows count as one item; if it stands for a missing id, remove "
        "these rows",
        "the frame's item column has the id 'NA', and its rows count as one item; if it stands for a missing id, "
        "remove these rows",
    ]
    for read in (Interactions.from_dataframe, EASE(1.0).fit):
        with pytest.warns(UserWarning, match="has the id") as noted:
            read(frame)
        assert [str(warning.message) for warning in noted] == notes
    # A warning of a private fit would depend on one user's rows.
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        DPGram(1.0).fit(frame, key=Key.from_seed(1))
    assert not [warning for warning in noted if "has the id" in str(warning.message)]
