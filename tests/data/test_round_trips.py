"""Tests of frames of interactions: each library gives the same interactions back, under any usual column names."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.interaction_case import assert_same

from fastfedrec import Interactions
from fastfedrec.data.conversion import as_interactions
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.datasets import load_table

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
IDS = {
    "small integers": [5, -3, 2**40],
    "large integers": [2**63 + 5, 2**64 - 1],
    "floats": [0.5, -2.0],
    "text": ["ann", "Zoë", "007"],
    "days": list(np.array(["2024-09-12", "1969-01-01"], dtype="M8[D]")),
    "moments": list(np.array(["2024-09-12T15:15:37.5", "1969-01-01"], dtype="M8[us]")),
    "tuples": [(1, "film"), (2, "book")],
    "several types": ["ann", 7, (1, 2)],
}
STORED_BY_ARROW = [kind for kind in IDS if kind not in ("tuples", "several types")]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    library=st.sampled_from(list(LIBRARIES)), user_kind=st.sampled_from(list(IDS)),
    item_kind=st.sampled_from(list(IDS)),
    rows=st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 9), st.integers(-4, 4).map(lambda n: n / 2 + 0.1),
            st.none() | st.integers(-(2**60), 2**60),
        ), min_size=1, max_size=12, unique_by=lambda row: (row[0] % 3, row[1] % 3),
    ),
    has_values=st.booleans(), has_times=st.booleans(),
)  # fmt: skip
@example("pandas", "small integers", "several types", [(0, 1, 0.1, None), (1, 0, 0.1, None)], False, False)
@example("polars", "several types", "text", [(1, 0, 0.1, None), (0, 0, 0.1, None)], False, False)
def test_every_library_gives_interactions_back(library, user_kind, item_kind, rows, has_values, has_times):
    users, items = (
        [IDS[kind][row[at] % len(IDS[kind])] for row in rows] for at, kind in enumerate([user_kind, item_kind])
    )
    times = [row[3] for row in rows]
    data = Interactions.from_arrays(
        users, items, [row[2] for row in rows] if has_values else None,
        [MISSING_TIMESTAMP if time is None else time for time in times] if has_times else None, duplicates="last",
    )  # fmt: skip
    if library == "pyarrow" and not {user_kind, item_kind} <= set(STORED_BY_ARROW):
        with pytest.raises(TypeError, match="must hold numbers, dates or text of one type for pyarrow"):
            data.to_frame(library)
        return
    frame = data.to_frame(library)
    assert isinstance(frame, {"pyarrow": pa.Table}.get(library, LIBRARIES[library]))
    # Ids of several types keep the order of first appearance, and the rows of a frame follow the users.
    kinds = {"user_ids": user_kind, "item_ids": item_kind}
    listed = {name: getattr(data, name) for name, kind in kinds.items() if kind == "several types"}
    back = Interactions.from_dataframe(frame, **listed)._replace(catalogue=data.catalogue)
    if library == "pandas":  # its dates have seconds at least
        data = data._replace(user_ids=in_seconds(data.user_ids), item_ids=in_seconds(data.item_ids))
    assert_same(back, data)
    if has_times and None in times:
        column = frame["timestamp"]
        n_null = (
            column.null_count
            if library == "pyarrow"
            else column.null_count()
            if library == "polars"
            else column.isna().sum()
        )
        assert n_null == (data.timestamps == MISSING_TIMESTAMP).sum()


def in_seconds(ids):
    """Return days as seconds, and other ids as they are."""
    return ids.astype("M8[s]") if ids.dtype == "M8[D]" else ids


def test_other_values_are_not_equal():
    """The comparison of the round trip can fail."""
    data = Interactions.from_arrays([1, 2], [3, 4], [1.0, 2.0])
    with pytest.raises(AssertionError):
        assert_same(Interactions.from_dataframe(data.to_frame().assign(value=[1.0, 2.5])), data)


NAMES = [
    ("userId", "movieId", "rating", "timestamp"),
    ("user_id", "item_id", "value", "date"),
    ("uid", "Track ID", "plays", "datetime"),
    ("user:token", "item:token", "rating:float", "time"),
]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_names_and_times_are_those_of_load_table(names, library, tmp_path):
    columns = (
        ["b", "a", "b"], ["x", "x", "y"], [4.0, 5.0, 2.5],
        ["2024-09-12 15:15:37", "2024-09-13T00:00:00Z", "2024-09-12T15:15:37+02:00"],
    )  # fmt: skip
    frame = LIBRARIES[library](dict(zip(names, columns, strict=True)))
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in zip(*columns, strict=True)), ""]))
    expected = load_table(path, timestamp_unit="ns")
    assert expected.timestamps is not None
    assert_same(Interactions.from_dataframe(frame), expected)
    assert_same(as_interactions("interactions", frame), expected)  # as `fit` reads it


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_column_with_the_name_of_the_role_has_priority():
    frame = pd.DataFrame({"item": [1, 2], "movieId": [3, 4], "user": [5, 6], "customer_id": [7, 8]})
    data = Interactions.from_dataframe(frame)
    assert data.item_ids.tolist() == [1, 2]
    assert data.user_ids.tolist() == [5, 6]
    named = Interactions.from_dataframe(frame, item="movieId")
    assert named.item_ids.tolist() == [3, 4]


def test_named_columns_exclude_values_and_times_that_are_not_named():
    frame = pl.DataFrame({"userId": [1], "movieId": [2], "rating": [4.5], "timestamp": [9]})
    data = Interactions.from_dataframe(frame, user="userId", item="movieId")
    assert data.values is None
    assert data.timestamps is None
    assert Interactions.from_dataframe(frame).values.tolist() == [4.5]
    assert Interactions.from_dataframe(frame, value="rating").timestamps.tolist() == [9]


def test_a_length_and_the_first_rows():
    data = Interactions.from_arrays(["ann", "bob", "bob"], [7, 8, 9], [5.0, 3.0, 1.0])
    assert len(data) == data.n_interactions == 3
    assert data.head(2, "polars").rows() == [("ann", 7, 5.0), ("bob", 8, 3.0)]
    assert isinstance(data.head(), pd.DataFrame)
    assert len(data.head(0)) == 0
    assert len(data.head(99, "pyarrow")) == 3
    empty = data.select_users([])
    assert len(empty) == 0
    assert empty, "empty interactions are not false, since they are data"
    assert len(empty.head()) == 0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_a_column_that_only_its_name_suggests_as_times_is_skipped_with_a_warning():
    frame = pd.DataFrame({"userId": [1], "movieId": [2], "date": ["yesterday"]})
    with pytest.warns(UserWarning, match="column 'date' has a usual name of times, but is skipped: .*'yesterday'"):
        assert Interactions.from_dataframe(frame).timestamps is None
    with pytest.raises(TypeError, match="got the text 'yesterday'"):
        Interactions.from_dataframe(frame, timestamp="date")


def test_refused_frames():
    data = Interactions.from_arrays([1], [2])
    for call, error, message in (
        (
            lambda: data.to_frame("numpy"),
            ValueError,
            "library must be one of 'pandas', 'polars', 'pyarrow', got 'numpy'",
        ),
        (lambda: data.head(-1), ValueError, "n must be at least 0, got -1"),
        (lambda: data.head(1, "arrow"), ValueError, "library must be one of"),
        (
            lambda: Interactions.from_dataframe(pd.DataFrame({"userId": [1], "uid": [1], "item": [2]})),
            KeyError,
            r"user must be one column, got \['userId', 'uid'\]; name one, for example user='userId'",
        ),
        (
            lambda: Interactions.from_dataframe(pd.DataFrame({"userId": [1], "thing": [2]})),
            KeyError,
            r"item must be given, because no column of the frame has a usual name, got \['userId', 'thing'\]; pass",
        ),
    ):
        with pytest.raises(error, match=message):
            call()


def test_dates_of_python_and_text_are_the_same_times():
    days = ["2024-09-12", "1969-12-31"]
    text, dates = (
        Interactions.from_arrays([1, 2], [1, 1], timestamps=times, timestamp_unit="s")
        for times in (days, [dt.date.fromisoformat(day) for day in days])
    )
    assert text.timestamps.tolist() == dates.timestamps.tolist()
