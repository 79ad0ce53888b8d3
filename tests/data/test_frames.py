"""Frames of pandas, polars and pyarrow: the same rows whichever library holds them, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.interaction_case import assert_same

from fastfedrec import Interactions
from fastfedrec.data._frames import column_names, is_frame

COLUMNS = {"user": ["b", "a", "b"], "item": [3, 3, 1], "value": [4.0, -5.0, 2.5], "other": ["x", "y", "z"]}
FRAMES = {
    "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
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


def test_of_a_lazy_frame_only_what_is_asked_for_is_read():
    def fail(batch):
        raise AssertionError("a column was read that nobody asked for")

    lazy = pl.LazyFrame(COLUMNS).with_columns(pl.col("other").map_batches(fail, return_dtype=pl.String))
    assert Interactions.from_dataframe(lazy).n_interactions == 3
    with pytest.raises(Exception, match="nobody asked for"):
        lazy.collect()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_that_is_not_there_is_named_and_no_row_is_shown(library):
    with pytest.raises(KeyError, match=r"item='movie' is not a column; the frame has \['user', 'item'") as caught:
        Interactions.from_dataframe(FRAMES[library](COLUMNS), item="movie")
    assert "'b'" not in str(caught.value)


@pytest.mark.parametrize("given", [[1, 2], np.eye(2), pd.Series([1]), pl.Series([1]), pa.chunked_array([[1]]), None])
def test_what_has_no_named_columns_is_no_frame(given):
    assert not is_frame(given)
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, or a pyarrow Table, got"):
        Interactions.from_dataframe(given)
