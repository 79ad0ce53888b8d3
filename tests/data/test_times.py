"""Tests of times: the same integers from any source, no truncation, zones in UTC, and marked missing times."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.array_kinds import Exported

from fastfedrec import Interactions, Key
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.times import UNITS, check_timestamps
from fastfedrec.evaluation import LeaveOneOut, TemporalSplit

KEY = Key.from_seed(1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONE = "Europe/Berlin"
#: Half past a second, and an hour, in winter and in summer: of the zone, and so of UTC an hour or two before.
LOCAL = [dt.datetime(2020, 1, 1, 12, 0, 0, 500_000), dt.datetime(2020, 7, 1, 12, 0, 0)]
NAIVE = [int(moment.replace(tzinfo=dt.UTC).timestamp() * 1000) * 10**6 for moment in LOCAL]
IN_UTC = [NAIVE[0] - 3600 * 10**9, NAIVE[1] - 7200 * 10**9]
BERLIN = [dt.timezone(dt.timedelta(hours=hours)) for hours in (1, 2)]

zoned = pd.Series(LOCAL).dt.tz_localize(ZONE)
KNOWN = {
    "numpy ns": (np.array(LOCAL, dtype="M8[ns]"), NAIVE),
    "numpy ms": (np.array(LOCAL, dtype="M8[ms]"), NAIVE),
    "python": (LOCAL, NAIVE),
    "python zoned": ([a.replace(tzinfo=b) for a, b in zip(LOCAL, BERLIN, strict=True)], IN_UTC),
    "pandas": (pd.Series(LOCAL), NAIVE),
    "pandas ms": (pd.Series(LOCAL).astype("M8[ms]"), NAIVE),
    "pandas index": (pd.DatetimeIndex(LOCAL), NAIVE),
    "pandas zoned": (zoned, IN_UTC),
    "pandas zoned index": (pd.DatetimeIndex(zoned), IN_UTC),
    "pandas timestamps": (list(zoned), IN_UTC),
    "pandas objects": (zoned.astype(object), IN_UTC),
    "pandas categories": (pd.Series(pd.Categorical(pd.Series(LOCAL))), NAIVE),
    "pandas of arrow": (pd.Series(LOCAL).astype(pd.ArrowDtype(pa.timestamp("us"))), NAIVE),
    "pandas of arrow zoned": (zoned.astype(pd.ArrowDtype(pa.timestamp("us", ZONE))), IN_UTC),
    "polars": (pl.Series(LOCAL), NAIVE),
    "polars ms": (pl.Series(LOCAL).dt.cast_time_unit("ms"), NAIVE),
    "polars zoned": (pl.Series(LOCAL).dt.replace_time_zone(ZONE), IN_UTC),
    "arrow": (pa.array(LOCAL), NAIVE),
    "arrow chunked": (pa.chunked_array([pa.array(LOCAL, pa.timestamp("ms"))]), NAIVE),
    "arrow zoned": (pa.array(zoned), IN_UTC),
}


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KNOWN)
def test_every_library_brings_the_same_nanoseconds_of_utc(kind):
    times, expected = KNOWN[kind]
    got = check_timestamps(times, 2)
    assert got.dtype == np.int64
    assert got.tolist() == expected
    data = Interactions.from_arrays([1, 2], [1, 2], timestamps=times)
    assert data.timestamps.tolist() == expected


FRAMES = {
    "pandas": pd.DataFrame, "polars": pl.DataFrame, "lazy": pl.LazyFrame, "arrow": pa.table,
    "pandas of arrow": lambda columns: pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype),
}  # fmt: skip


@pytest.mark.parametrize("library", FRAMES)
def test_a_frames_times_may_be_missing_and_its_numbers_are_not_rounded(library):
    big = 2**60 + 1  # which no float holds
    for column, expected in (
        ([LOCAL[0], None, LOCAL[1]], [NAIVE[0], MISSING_TIMESTAMP, NAIVE[1]]),
        ([dt.date(1970, 1, 2), None, None], [86400 * 10**9, MISSING_TIMESTAMP, MISSING_TIMESTAMP]),
        ([5, 7, 6], [5, 7, 6]),
    ):
        frame = FRAMES[library]({"user": [1, 2, 3], "item": [1, 1, 1], "when": column})
        assert Interactions.from_dataframe(frame, timestamp="when").timestamps.tolist() == expected
    gaps = {"user": [1, 2], "item": [1, 1], "when": pa.array([big, None])}
    if library == "pandas":
        gaps["when"] = pd.array([big, None], dtype="Int64")
    elif library in ("polars", "lazy"):
        gaps["when"] = pl.Series([big, None])
    data = Interactions.from_dataframe(FRAMES[library](gaps), timestamp="when")
    assert data.timestamps.tolist() == [big, MISSING_TIMESTAMP]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([3, None, 5], [3, MISSING_TIMESTAMP, 5]),
        ([3.0, float("nan")], [3, MISSING_TIMESTAMP]),
        (np.ma.array([3, 4, 2**60 + 1], mask=[0, 1, 0]), [3, MISSING_TIMESTAMP, 2**60 + 1]),
        (np.array(["1970-01-01T00:00:01", "NaT"], dtype="M8[s]"), [10**9, MISSING_TIMESTAMP]),
        (np.array([MISSING_TIMESTAMP]).view("M8"), [MISSING_TIMESTAMP]),  # NaT without a unit
        (["1970-01-01T00:00:01Z", "1970-01-02 01:00+01:00"], [10**9, 86_400 * 10**9]),
        (pl.Series(["1970-01-01", None]), [0, MISSING_TIMESTAMP]),
        (pd.Series([None, "1970-01-01 00:00:00.000000005"], dtype="string"), [MISSING_TIMESTAMP, 5]),
        ([pd.NaT, pd.Timestamp(5), None], [MISSING_TIMESTAMP, 5, MISSING_TIMESTAMP]),
        ([pd.Timestamp(5), None, dt.datetime(1970, 1, 2)], [5, MISSING_TIMESTAMP, 86_400 * 10**9]),
        (np.array([np.iinfo(np.int64).max, -(2**63) + 1]).view("M8[ns]"), [2**63 - 1, -(2**63) + 1]),
        ([pd.NA, 7], [MISSING_TIMESTAMP, 7]),
        (pd.Series([1.0, None]), [1, MISSING_TIMESTAMP]),
        (np.array([2**63 - 1], dtype=np.uint64), [2**63 - 1]),
        (Exported(np.array([4, 9])), [4, 9]),
        (pl.Series([], dtype=pl.Int64), []),
        ([], []),
    ],
)
def test_missing_times_are_marked_from_any_source(times, expected):
    got = check_timestamps(times, len(expected))
    assert got.dtype == np.int64
    assert got.tolist() == expected


@pytest.mark.parametrize(
    "times",
    [
        pd.Series([np.nan, np.nan]),
        pd.Series([None, None], dtype="Float64"),
        pd.Series(pd.Categorical([None, None])),
        pd.Series([None, None]),
        pl.Series([None, None]),
        pl.Series([None, None], dtype=pl.Float64),
        pa.nulls(2),
        pa.array([None, None], pa.float64()),
        np.ma.array([1.5, 2.5], mask=True),
        [None, None],
    ],
)
def test_times_of_any_type_may_all_be_missing(times):
    assert check_timestamps(times, 2).tolist() == [MISSING_TIMESTAMP] * 2


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (dt.datetime(1, 1, 1, tzinfo=BERLIN[0]), "0000-12-31T23:00:00"),
        (dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(dt.timedelta(hours=-1))), "10000-01-01T00:00:00"),
    ],
)
def test_a_zone_may_shift_a_time_beyond_the_years_of_python(moment, expected):
    assert check_timestamps([moment], 1, unit="s").view("M8[s]") == np.array([expected], dtype="M8[s]")


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5), st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_a_unit_keeps_every_time_or_refuses_it(numbers, of, to):
    numbers = [number // 10**9 for number in numbers]  # within the reach of nanoseconds
    times = np.array(numbers).astype(f"M8[{of}]")
    exact = [number * PER_SECOND[to] / PER_SECOND[of] for number in numbers]
    if all(number * PER_SECOND[to] % PER_SECOND[of] == 0 for number in numbers):
        assert check_timestamps(times, len(times), unit=to).tolist() == [
            number * PER_SECOND[to] // PER_SECOND[of] for number in numbers
        ], exact
    else:
        with pytest.raises(ValueError, match=rf"timestamps\[\d\] must not be truncated by timestamp_unit='{to}', got"):
            check_timestamps(times, len(times), unit=to)


def test_whole_numbers_are_not_copied():
    times = np.array([3, 1, 2])
    assert check_timestamps(times, 3) is times


def test_the_last_of_three_events_in_one_second_is_held_out():
    moments = [dt.datetime(2024, 5, 1, 12, 0, 0, part) for part in (300, 900, 600)]
    for library in (pd.DataFrame, pl.DataFrame):
        frame = library({"user": ["ann"] * 3, "item": ["first", "last", "middle"], "when": moments})
        for unit in ("us", "ns"):
            data = Interactions.from_dataframe(frame, timestamp="when", timestamp_unit=unit)
            (split,) = LeaveOneOut(latest=True).split(data, key=KEY)
            test = split.test
            assert test.item_ids[test.indices].tolist() == ["last"]


def test_an_order_requires_all_its_times():
    data = Interactions.from_arrays([1, 1, 2], [1, 2, 1], timestamps=[pd.Timestamp(5), pd.NaT, pd.Timestamp(7)])
    for split in (LeaveOneOut(latest=True), TemporalSplit(share=0.5)):
        with pytest.raises(ValueError, match="missing"):
            list(split.split(data, key=KEY))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "options", "error", "message"),
    [
        (np.array(LOCAL, dtype="M8[ms]"), {"unit": "s"}, ValueError,
         r"timestamps\[0\] must not be truncated by timestamp_unit='s', got 2020-01-01T12:00:00.500; use a finer unit"),
        (pd.Series([None, LOCAL[0]]), {"unit": "s"}, ValueError, r"timestamps\[1\] must not be .* got 2020-01-01T12"),
        (np.array(["2020-01-01", "3000-01-01"], dtype="M8[D]"), {}, ValueError,
         r"timestamps\[1\] must be in the range of 64-bit ns since 1970, got 3000-01-01; use timestamp_unit='s'"),
        (np.array(["NaT", "1600"], dtype="M8[Y]"), {}, ValueError, r"timestamps\[1\] must be in .* ns .* got 1600"),
        # In nanoseconds, as pandas may have the first one, the second is a moment of 1830.
        ([None, pd.Timestamp(5), dt.datetime(3000, 1, 1)], {}, ValueError, r"timestamps\[2\] must be in .* got 3000"),
        ([pd.Timestamp("3000-01-01")], {}, ValueError, r"timestamps\[0\] must be in .* 64-bit ns since 1970, got 3000"),
        (pd.Series([dt.datetime(3000, 1, 1)]), {}, ValueError, r"timestamps\[0\] must be in .* got 3000-01-01"),
        ([1.5], {}, TypeError, "timestamps must be whole numbers or dates, got 1.5 at position 0; mult"),
        ([None, 1, 1.5], {}, TypeError, r"timestamps\[2\] must be a whole number or a date, .*, got float"),
        ([2.0**63], {}, TypeError, r"timestamps\[0\] must be below 2\*\*53, .* got 9\.22"),
        ([float("inf")], {}, TypeError, "timestamps must be whole numbers or dates, got inf"),
        ([2**64 - 1], {}, ValueError, r"timestamps\[0\] must be below 2\*\*63, got 18446744073709551615"),
        ([2**70], {}, ValueError, r"timestamps\[0\] must be below 2\*\*63, got 1180591620717411303424"),
        (["2020-01-01", "1/2/20"], {}, TypeError, r"timestamps\[1\] must be .* ISO 8601 .* got the text '1/2/20'"),
        ([None, "2020-01-01T00:00:00.5"], {"unit": "s"}, ValueError, r"timestamps\[1\] must be exact in .*'s'"),
        (["3000-01-01"], {}, ValueError, r"timestamps\[0\] must be exact in .* range of 64 bits, got '3000-01-01'"),
        (pl.Series(["x", None]), {}, TypeError, r"timestamps\[0\] must be a whole number, a date, or text of ISO"),
        (["2020-01-01", 5], {}, TypeError, r"timestamps\[1\] must be .* got the text '5'"),
        ([dt.date(2020, 1, 1), 5], {}, TypeError, r"timestamps\[0\] must be a whole number or a date, .*, got"),
        ([dt.timedelta(1)], {}, TypeError, "timestamps.* must be .*whole number"),
        (np.array([1], dtype="m8[s]"), {}, TypeError, "got dtype timedelta64"),
        ([True], {}, TypeError, "got dtype bool"),
        (pd.Series(pd.period_range("2020-01", periods=1, freq="M")), {}, TypeError, "must be a whole number or a date"),
        ([1, 2], {}, ValueError, r"timestamps must have shape \(1,\), got \(2,\)"),
        ([[1]], {}, ValueError, r"timestamps must have shape \(1,\), got \(1, 1\)"),
        ([1], {"unit": "min"}, ValueError, "timestamp_unit must be one of 's', 'ms', 'us', 'ns', got 'min'"),
    ],
)  # fmt: skip
def test_a_refusal_states_the_position_and_the_remedy(times, options, error, message):
    length = 1 if np.shape(times) in ((2,), (1, 1)) and "shape" in message else len(times)
    with pytest.raises(error, match=message):
        check_timestamps(times, length, **options)


def test_a_frames_column_is_named():
    frame = pd.DataFrame({"user": [1], "item": [1], "when": ["yesterday"]})
    with pytest.raises(
        TypeError, match=r"column 'when' \(timestamp\)\[0\] must be .* got the text 'yesterday'; convert the"
    ):
        Interactions.from_dataframe(frame, timestamp="when")


@pytest.mark.parametrize("make", [np.asarray, pd.Series, pl.Series, pa.array, lambda times: list(times)])
@pytest.mark.parametrize(("dtype", "n_bits"), [("f2", 11), ("f4", 24), ("f8", 53)])
@pytest.mark.parametrize("sign", [1, -1])
def test_floats_that_may_represent_two_times_are_refused(make, dtype, n_bits, sign):
    exact = np.array([0, sign * (2**n_bits - 1)], dtype=dtype)
    assert check_timestamps(make(exact), 2).tolist() == [0, sign * (2**n_bits - 1)]
    rounded = make(np.array([0, sign * 2**n_bits], dtype=dtype))
    message = rf"timestamps\[1\] must be below 2\*\*{n_bits}, where {np.dtype(dtype)} holds each whole number exactly"
    for timestamps in (rounded, make(np.array([np.nan, sign * 2**n_bits], dtype=dtype))):
        with pytest.raises(TypeError, match=message):
            check_timestamps(timestamps, 2)


def test_nanoseconds_and_seconds_as_floats_are_refused():
    with pytest.raises(
        TypeError, match=r"must be below 2\*\*53, .*got 1\.7145648002500001e\+18; read the column as int"
    ):
        Interactions.from_arrays([1], [1], timestamps=[1714564800250000001.0])
    with pytest.raises(TypeError, match=r"must be below 2\*\*24"):
        Interactions.from_arrays([1, 1], [1, 2], timestamps=np.array([978300760, 978302109], dtype=np.float32))
