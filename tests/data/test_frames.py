"""Frames of pandas, polars and pyarrow: the same rows whichever library holds them, and what is refused."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.array_kinds import Converted, Exported
from support.interaction_case import assert_same

from fastfedrec import Interactions
from fastfedrec.data._frames import column_names, is_frame
from fastfedrec.data.log import InteractionLog

COLUMNS = {"user": ["b", "a", "b"], "item": [3, 3, 1], "value": [4.0, -5.0, 2.5], "other": ["x", "y", "z"]}
FRAMES = {
    "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
    "batch of arrow": lambda columns: pa.table(columns).to_batches()[0],
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
}  # fmt: skip


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_every_library_gives_the_same_interactions(library):
    frame = FRAMES[library](COLUMNS)
    assert is_frame(frame)
    assert column_names(frame) == list(COLUMNS)
    expected = Interactions.from_arrays(COLUMNS["user"], COLUMNS["item"], COLUMNS["value"])
    assert_same(Interactions.from_dataframe(frame, value="value"), expected)


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
def test_values_are_floats_whatever_numbers_a_column_holds(kind):
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
def test_ids_are_those_of_a_plain_list_whatever_column_holds_them(kind):
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


def test_of_a_lazy_frame_only_what_is_asked_for_is_read():
    def fail(batch):
        raise AssertionError("a column was read that nobody asked for")

    lazy = pl.LazyFrame(COLUMNS).with_columns(pl.col("other").map_batches(fail, return_dtype=pl.String))
    assert Interactions.from_dataframe(lazy).n_interactions == 3
    with pytest.raises(Exception, match="nobody asked for"):
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
def test_text_keeps_what_numpys_strings_would_lose(column):
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


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_that_is_not_there_is_named_and_no_row_is_shown(library):
    with pytest.raises(KeyError, match=r"item='movie' is not a column; the frame has \['user', 'item'") as caught:
        Interactions.from_dataframe(FRAMES[library](COLUMNS), item="movie")
    assert "'b'" not in str(caught.value)


def test_what_has_no_columns_by_name_is_refused():
    data = Interactions.from_arrays([1, 2], [3, 4])
    with pytest.raises(TypeError, match="item_features must be columns by their names, a mapping or a frame, got list"):
        data.with_features(item_features=[[1, 2]])
    with pytest.raises(TypeError, match="contexts must be columns by their names, a mapping or a frame, got ndarray"):
        InteractionLog.from_arrays([1, 2], [3, 4], np.arange(2))
    with pytest.raises(KeyError, match="user_features must have each name once"):
        data.with_features(user_features=pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))


@pytest.mark.parametrize("given", [[1, 2], np.eye(2), pd.Series([1]), pl.Series([1]), pa.chunked_array([[1]]), None])
def test_what_has_no_named_columns_is_no_frame(given):
    assert not is_frame(given)
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, or a pyarrow Table, got"):
        Interactions.from_dataframe(given)
