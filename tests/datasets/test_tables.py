"""Tables: against Python's csv module, numbers and dates, and on everything that a file can get wrong."""

import csv
import gzip
import logging
import sys
import warnings
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from naive.datasets import tables as naive

from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.datasets import load_table, store_table
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.table_files import table_columns
from fastfedrec.systems.baselines.popularity import Popularity

PLAYS = 'who,what,stars,when,note\nann,7,4.5,978300760,"loud, long"\nbob,7,0,,\nann,12,3,978302109,"a ""q"""\n'


def table_of(data):
    users = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    times = [None] * len(users) if data.timestamps is None else data.timestamps.tolist()
    rows = zip(users, data.item_ids[data.indices].tolist(), data.values_or_ones().tolist(), times, strict=True)
    return sorted(rows, key=repr)


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ---- oracle ---------------------------------------------------------------------------------------------------------


ids = st.one_of(
    st.lists(st.integers(-20, 20).map(str), min_size=1, max_size=12),
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1).map(str), min_size=1, max_size=12),
    st.lists(st.text(alphabet='ab1",é \n', min_size=1, max_size=3), min_size=1, max_size=12),
    st.lists(st.sampled_from(["1", "01", "1.0", "x", "9" * 25]), min_size=1, max_size=12),
)


times = st.one_of(
    st.lists(st.sampled_from(["", "0", "978300760", "-5"]), min_size=12, max_size=12),
    st.lists(st.sampled_from(["", "2001-01-01", "2001-01-01T10:00:00+02:00"]), min_size=12, max_size=12),
)


@given(ids, ids, times, st.lists(st.integers(0, 9), min_size=12, max_size=12), st.booleans())
def test_tables_equal_the_twin(tmp_path_factory, users, items, times, values, header):
    n = min(len(users), len(items))
    frame = pd.DataFrame({"t": times[:n], "i": items[:n], "x": ["skipped"] * n, "u": users[:n], "v": values[:n]})
    path = tmp_path_factory.mktemp("t") / "table.csv"
    # Ids with blanks need quotes, since readers strip unquoted blanks.
    has_blanks = any(text != text.strip() for text in (*users[:n], *items[:n]))
    frame.to_csv(path, index=False, header=header, quoting=csv.QUOTE_ALL if has_blanks else csv.QUOTE_MINIMAL)
    rows = naive.read_rows(path.read_bytes().decode(), ",", int(header))
    stamps, items, _, users, values = map(list, zip(*rows, strict=True))
    expected = {}
    for user, item, value, time in zip(naive.ids(users), naive.ids(items), values, naive.seconds(stamps), strict=True):
        expected[user, item] = (float(value), MISSING_TIMESTAMP if time is None else time)
    by_name = {"user": "u", "item": "i", "value": "v", "timestamp": "t"}
    by_position = {"user": 3, "item": 1, "value": 4, "timestamp": 0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has ids such as '1.0'")
        data = load_table(path, **(by_name if header else by_position), header=header, duplicates="last")
    got = {(user, item): (value, time) for user, item, value, time in table_of(data)}
    assert got == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


FORMS = [
    "plain", "gzip", "zst", "windows line ends", "returns alone", "byte order mark", "utf-16", "no final line end",
    "blank last lines", "blank last lines of windows", "tabs",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_the_same(tmp_path, form):
    options = {"user": "who", "item": "what", "value": "stars", "timestamp": "when"}
    text, name = PLAYS.encode(), "table.csv"
    if form == "gzip":
        text, name = gzip.compress(text), "table.csv.gz"
    elif form == "zst":
        text, name = zstandard.compress(text[:40]) + zstandard.compress(text[40:]), "table.csv.zst"
    elif form == "windows line ends":
        text = text.replace(b"\n", b"\r\n")
    elif form == "returns alone":
        text = text.replace(b"\n", b"\r")
    elif form == "utf-16":
        text = text.decode().encode("utf-16")
    elif form == "blank last lines":
        text += b"\n\n\n"
    elif form == "blank last lines of windows":
        text = text.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    elif form == "byte order mark":
        text = b"\xef\xbb\xbf" + text
    elif form == "no final line end":
        text = text[:-1]
    elif form == "tabs":
        text = text.replace(b"loud, long", b"loud; long").replace(b",", b"\t")
        options["separator"] = "\t"
    data = load_table(write(tmp_path, text, name), **options)
    assert table_of(data) == [
        ("ann", 12, 3.0, 978302109), ("ann", 7, 4.5, 978300760), ("bob", 7, 0.0, MISSING_TIMESTAMP),
    ]  # fmt: skip
    assert data.user_ids.dtype.kind == "U"
    assert data.item_ids.dtype == np.int64
    assert data.values.dtype == np.float32


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_positions_without_a_header(tmp_path, mark):
    path = write(tmp_path, mark + b"7::1::x\n3::2::y\n")
    data = load_table(path, user=0, item=1, separator="::", header=False)
    assert table_of(data) == [(3, 2, 1.0, None), (7, 1, 1.0, None)]
    assert data.values is None


def test_ids_that_differ_in_writing_only_stay_apart(tmp_path):
    path = write(tmp_path, "u,i\n7,1\n07,1\n7.0,1\n")
    with pytest.warns(UserWarning, match="has ids such as '7.0', which are read as text"):
        data = load_table(path, user="u", item="i")
    assert data.user_ids.tolist() == ["07", "7", "7.0"]


def test_a_column_turns_to_text_in_a_late_block(tmp_path):
    n = 600_000
    text = "u,i,t\n" + "".join(f"{10**17 + k},1,1000000000\n" for k in range(n)) + "x,2,6\n"
    assert len(text) > 1 << 24
    data = load_table(write(tmp_path, text), user="u", item="i", timestamp="t")
    assert data.shape == (n + 1, 2)
    assert data.user_ids[-1] == "x"
    assert data.timestamps[-1] == 6


def test_values_below_0(tmp_path):
    data = load_table(write(tmp_path, "u,i,v\n1,1,-0.5\n1,2,-9.75\n1,3,-0\n"), user="u", item="i", value="v")
    assert data.values.tolist() == [-0.5, -9.75, 0.0]
    assert not np.signbit(data.values[2])


def test_values_wider_than_single_precision_stay_exact(tmp_path):
    data = load_table(write(tmp_path, "u,i,v\n1,1,0.1\n1,2,0.5\n"), user="u", item="i", value="v")
    assert data.values.tolist() == [0.1, 0.5]


def test_duplicates_are_the_callers_choice(tmp_path):
    path = write(tmp_path, "u,i,v\n1,1,2\n1,1,3\n")
    assert load_table(path, user="u", item="i", value="v", duplicates="max").values.tolist() == [3.0]
    assert load_table(path, user="u", item="i").values.tolist() == [2.0]
    with pytest.warns(UserWarning, match="their values were summed"):
        load_table(path, user="u", item="i", value="v")
    with pytest.raises(ValueError, match="the first user 1 and item 1"):
        load_table(path, user="u", item="i", duplicates="error")


def test_lists_of_users_and_items(tmp_path):
    path = write(tmp_path, "u,i,v\nann,1,2\nbob,1,3\nann,2,4\n")
    roles = {"user": "u", "item": "i", "value": "v"}
    data = load_table(path, **roles, user_ids=["zoe", "bob", "ann"], item_ids=[2, 1, 9])
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (["zoe", "bob", "ann"], [2, 1, 9])
    assert data.to_scipy().toarray().tolist() == [[0, 0, 0], [0, 3, 0], [4, 2, 0]]
    with pytest.raises(ValueError, match="must be in user_ids, got an unlisted user"):
        load_table(path, **roles, user_ids=["ann"])
    assert load_table(path, **roles, user_ids=["ann"], unlisted="drop").n_interactions == 2


@pytest.fixture
def parquet(tmp_path):
    frame = pl.DataFrame(
        {
            "who": ["ann", "bob", "ann"],
            "what": pl.Series([7, 7, 12], dtype=pl.UInt16),
            "stars": [4.5, 0.0, 3.0],
            "when": [978300760, None, 978302109],
            "day": [datetime(2001, 1, 1, tzinfo=UTC), None, datetime(2001, 1, 2, tzinfo=UTC)],
        }
    )
    frame.write_parquet(tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


def test_parquet_equals_text(parquet, tmp_path):
    options = {"user": "who", "item": "what", "value": "stars", "timestamp": "when"}
    data = load_table(parquet, **options)
    text = load_table(write(tmp_path, PLAYS), **options)
    assert table_of(data) == table_of(text)
    for name in ("indptr", "indices", "values", "timestamps", "user_ids", "item_ids"):
        assert getattr(data, name).dtype == getattr(text, name).dtype
    days = load_table(parquet, user="who", item="what", timestamp="day").timestamps
    assert days.tolist() == [978307200, 978393600, MISSING_TIMESTAMP]
    assert table_columns(parquet) == ["who", "what", "stars", "when", "day"]
    with pytest.raises(ValueError, match=r"table\.parquet: column 'when' \(value\) has 1 missing entries"):
        load_table(parquet, user="who", item="what", value="when")
    with pytest.raises(KeyError, match=r"user='u' is not a column; .*table\.parquet has \['who', 'what'"):
        load_table(parquet, user="u", item="what")


HEADERS = [
    ("userId,movieId,rating,timestamp", ["userId", "movieId", "rating", "timestamp"]),
    ("review,user_id,business_id,stars,date", ["user_id", "business_id", "stars", "date"]),
    ("user_id:token\titem_id:token\trating:float\ttimestamp:float", [
        "user_id:token", "item_id:token", "rating:float", "timestamp:float"
    ]),
    ("User-ID;Title;Item ID", ["User-ID", "Item ID"]),
    ("User-ID;ISBN;Book-Rating", ["User-ID", "ISBN", "Book-Rating"]),
]  # fmt: skip


@pytest.mark.parametrize(("header", "expected"), HEADERS)
def test_headers_of_publishers_need_no_names(tmp_path, caplog, header, expected):
    separator = next(character for character in "\t,;" if character in header)
    n = len(header.split(separator))
    path = write(tmp_path, header + "\n" + separator.join(["7"] * n) + "\n", "plays.inter")
    with caplog.at_level(logging.INFO, logger="fastfedrec"):
        data = load_table(path)
    roles = dict(zip(("user", "item", "value", "timestamp"), expected, strict=False))
    assert caplog.messages == [f"{path}: " + ", ".join(f"{role}={name!r}" for role, name in roles.items())]
    assert table_of(data) == [(7, 7, 7.0 if "value" in roles else 1.0, 7 if "timestamp" in roles else None)]
    assert load_table(path, user=expected[0], item=expected[1]).timestamps is None  # who names columns names all


def test_one_column_named_and_the_other_known(tmp_path):
    data = load_table(write(tmp_path, "who,movieId,rating\n1,2,3\n"), user="who")
    assert table_of(data) == [(1, 2, 1.0, None)]


def test_quotes_that_are_a_part_of_the_text(tmp_path):
    path = write(tmp_path, 'u\ti\tn\n1\t5" pipe\t2\n2\t"x\t3\n3\t\\"y\\"\t4\n')
    data = load_table(path, user="u", item="i", value="n", quotes=False)
    assert sorted(data.item_ids.tolist()) == ['"x', '5" pipe', '\\"y\\"']
    with pytest.raises(ValueError, match=r"line 3: i must be an id, got '\"x.*; pass quotes=False if quotes are"):
        load_table(path, user="u", item="i", value="n")


def test_times_written_as_decimals(tmp_path):
    path = write(tmp_path, "u,i,t\n1,1,978300760.0\n1,2,9.783e8\n")
    assert load_table(path, user="u", item="i", timestamp="t").timestamps.tolist() == [978300760, 978300000]
    with pytest.raises(ValueError, match=r"line 2: t must be whole seconds since 1970 in every line, .*'978300760\.5'"):
        load_table(write(tmp_path, "u,i,t\n1,1,978300760.5\n"), user="u", item="i", timestamp="t")


def test_parquet_is_known_by_its_content(parquet):
    path = parquet.rename(parquet.with_name("table"))
    assert load_table(path, user="who", item="what").n_interactions == 3


def test_names_of_columns(tmp_path):
    assert table_columns(write(tmp_path, '"a,b",c\r\n1,2\r\n')) == ["a,b", "c"]
    assert table_columns(write(tmp_path, "a::b\n"), "::") == ["a", "b"]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_path_that_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.csv"):
        with pytest.raises(FileNotFoundError, match=r"is not a file; pass a CSV or Parquet file"):
            load_table(path, user="u", item="i")


def test_files_without_polars(parquet, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    text = write(parquet.parent, PLAYS)
    for path in (parquet, text):
        with pytest.raises(
            ImportError, match=rf"{path.name}: reading files needs polars: pip install 'fastfedrec\[data\]'"
        ):
            load_table(path, user="who", item="what")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"user": "name"}, KeyError, r"user='name' is not a column; .*table\.csv has \['who', 'what', 'stars'"),
        ({"value": "rating"}, KeyError, "value='rating' is not a column"),
        ({"user": 0}, TypeError, "user must be the name of a column, got 0; positions need header=False"),
        ({"user": "who", "item": "who"}, ValueError, "user, item must be different columns, got "),
        ({"separator": ""}, ValueError, "separator must be text without quotes"),
        ({"separator": '"'}, ValueError, "separator must be text without quotes"),
        ({"separator": 3}, ValueError, "separator must be text without quotes"),
        ({"header": "yes"}, TypeError, "header must be True or False"),
        ({"header": False}, TypeError, "user must be an integer, got 'who'"),
        ({"header": False, "user": 5, "item": 0}, ValueError, "user must be at most 4, got 5"),
        ({"duplicates": "median"}, ValueError, "duplicates must be one of"),
    ],
)
def test_bad_arguments(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        load_table(write(tmp_path, PLAYS), **{"user": "who", "item": "what"} | options)


def test_a_repeated_column(tmp_path):
    with pytest.raises(KeyError, match="user='u' occurs more than once"):
        load_table(write(tmp_path, "u,u,i\n1,2,3\n"), user="u", item="i")
    with pytest.raises(KeyError, match=r"column 'user' must occur once among .*; rename one of them"):
        load_table(write(tmp_path, "user,user,item\n1,2,3\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,2,1", r"expected 4 fields \(u, i, v, t\) separated by ',', got 3: 'a,2,1'"),
        ("a,2,1,5,6", "expected 4 fields .*got 5"),
        ("", "expected 4 fields .*got 1"),
        (",2,1,5", "u must be an id, got ''"),
        ('"",2,1,5', "u must be an id, got '\"\"'"),
        ('"a"b,2,1,5', "u must be an id, got '\"a\"b'"),
        ("a,2,,5", "v must be a finite number, got ''"),
        ("a,2,four,5", "v must be a finite number, got 'four'"),
        ("a,2,nan,5", "v must be a finite number, got 'nan'"),
        ("a,2,1e999,5", "v must be a finite number, got '1e999'"),
        ("a,2,1,yesterday", "t must be whole seconds since 1970 in every line, or ISO 8601 .*, got 'yesterday'"),
        ("a,2,1,5.5", "t must be whole seconds since 1970 in every line, or ISO 8601 .*, got '5.5'"),
        ("a,2,1,2020-02-30", "t must be whole seconds .*, got '2020-02-30'"),
    ],
)
def test_malformed_lines(tmp_path, line, message):
    path = write(tmp_path, f"u,i,v,t\nx,1,2,3\n{line}\ny,1,2,3\n")
    with pytest.raises(ValueError, match=rf"table\.csv, line 3: {message}"):
        load_table(path, user="u", item="i", value="v", timestamp="t")


def test_the_line_is_named_below_line_ends_in_quotes(tmp_path):
    path = write(tmp_path, 'u,i,v\n"a\nb\nc",1,2\nd,1,x\n')
    with pytest.raises(ValueError, match=r"line 5: v must be a finite number, got 'x'"):
        load_table(path, user="u", item="i", value="v")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_two_moments_of_one_second_keep_their_order_or_are_refused(tmp_path, suffix):
    moments = ["2024-05-01T12:00:00.750Z", "2024-05-01T12:00:00.250Z"]
    if suffix == "csv":
        path = write(tmp_path, f"u,i,t\n1,1,{moments[0]}\n1,2,{moments[1]}\n")
    else:
        path = tmp_path / "table.parquet"
        times = pl.Series(moments).str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", time_zone="UTC")
        pl.DataFrame({"u": [1, 1], "i": [1, 2], "t": times}).write_parquet(path)
    with pytest.raises(ValueError, match="timestamp_unit=") as caught:
        load_table(path, user="u", item="i", timestamp="t")
    assert "line 2: t must be" in str(caught.value) or "column 't' (timestamp)[0] must not be truncated" in str(
        caught.value
    )
    with pytest.raises(ValueError, match="timestamp_unit must be one of"):
        load_table(path, user="u", item="i", timestamp="t", timestamp_unit="minutes")
    expected = [1714564800750, 1714564800250]
    assert load_table(path, user="u", item="i", timestamp="t", timestamp_unit="ms").timestamps.tolist() == expected
    stored = store_table(path, tmp_path / "stored", user="u", item="i", timestamp="t", timestamp_unit="ms")
    assert stored.timestamps.tolist() == expected


def test_seconds_and_dates_in_one_column(tmp_path):
    path = write(tmp_path, "u,i,t\n1,1,978300760\n1,2,2001-01-01\n")
    with pytest.raises(ValueError, match=r"line 3: t must be whole seconds since 1970 in every line, .*'2001-01-01'"):
        load_table(path, user="u", item="i", timestamp="t")


def test_positions_in_messages(tmp_path):
    with pytest.raises(ValueError, match=r"line 1: column 2 must be a finite number, got 'x'"):
        load_table(write(tmp_path, "1,2,x\n"), user=0, item=1, value=2, header=False)


def test_headers_that_name_no_columns_we_know(tmp_path):
    with pytest.raises(
        KeyError,
        match=r"item must be given, .* has a usual name, got \['user', 'what'\]; name it, for example item='what'",
    ):
        load_table(write(tmp_path, "user,what\n1,2\n"))
    with pytest.raises(
        KeyError, match=r"item must be one column, got \['asin', 'parent_asin'\]; name one, for example item='asin'"
    ):
        load_table(write(tmp_path, "user,asin,parent_asin\n1,2,3\n"))
    with pytest.raises(ValueError, match="must be given for a file without a header; pass positions from 0 to 1 of"):
        load_table(write(tmp_path, "1,2\n"), header=False)


def test_a_quote_in_a_column_that_is_not_read(tmp_path):
    path = write(tmp_path, 'u,i,n\n1,2,x\n1,3,"x"y\n')
    with pytest.raises(ValueError, match=r"line 3: n must end at its closing quote, got '\"x\"y'; pass quotes=False"):
        load_table(path, user="u", item="i")


def test_zst_without_its_library(tmp_path, monkeypatch):
    path = write(tmp_path, zstandard.compress(PLAYS.encode()), "table.csv.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"reading .zst files needs zstandard: pip install 'fastfedrec\[data\]'"):
        load_table(path, user="who", item="what")


def test_an_open_quote(tmp_path):
    with pytest.raises(ValueError, match=r"table\.csv, line 3: a quote must be closed, got an open one"):
        load_table(write(tmp_path, 'u,i\n1,2\n"1,2\n3,4\n'), user="u", item="i")


def test_text_in_latin_1(tmp_path, caplog):
    text = "u,i\n" + "".join(f"a{k},1\n" for k in range(20_000)) + "é,1\n"
    with caplog.at_level(logging.INFO, logger="fastfedrec"):
        data = load_table(write(tmp_path, text.encode("latin-1")), user="u", item="i")
    assert data.user_ids[-1] == "é"
    assert "not UTF-8 text, read as Latin-1" in caplog.text


def test_empty_tables(tmp_path):
    empty = write(tmp_path, "", "empty.csv")
    with pytest.raises(ValueError, match=r"empty\.csv, line 1: the file is empty"):
        load_table(empty, user="u", item="i")
    with pytest.raises(ValueError, match=r"empty\.csv, line 1: the file is empty"):
        load_table(empty, user=0, item=1, header=False, separator="::")
    with pytest.raises(ValueError, match=r"table\.csv, line 2: the file ends without a single row"):
        load_table(write(tmp_path, "u,i\n"), user="u", item="i")


@pytest.mark.parametrize("line", ['"u,i', '"u"x,i'])
def test_quotes_that_break_the_header(tmp_path, line):
    with pytest.raises(ValueError, match=r"table\.csv, line 1: .*; check the quotes"):
        load_table(write(tmp_path, f"{line}\n1,2\n"), user="u", item="i")


@pytest.mark.parametrize("change", ["truncated", "damaged", "none"])
def test_damaged_zst(tmp_path, change):
    data = zstandard.compress(PLAYS.encode())
    data = {"truncated": data[:-9], "damaged": data[:30] + data[60:], "none": PLAYS.encode()}[change]
    with pytest.raises(ValueError, match=r"table\.csv\.zst cannot be unpacked .*download it again"):
        load_table(write(tmp_path, data, "table.csv.zst"), user="who", item="what")


@pytest.mark.parametrize("change", ["truncated", "damaged", "no gzip"])
def test_damaged_gzip(tmp_path, change):
    data = bytearray(gzip.compress(PLAYS.encode() * 100))
    if change == "truncated":
        data = data[:-20]
    elif change == "damaged":
        data[15:60] = b"\xff" * 45
    else:
        data = PLAYS.encode()
    with pytest.raises(ValueError, match=r"table\.csv\.gz cannot be unpacked .*download it again"):
        load_table(write(tmp_path, bytes(data), "table.csv.gz"), user="who", item="what")


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
def test_floats_of_parquet_that_hold_no_ids_or_times(tmp_path, dtype):
    large = 2.0 ** (24 if dtype == pl.Float32 else 53)
    for role in ("user", "item", "timestamp"):
        frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "timestamp": [5, 6]})
        path = tmp_path / "table.parquet"
        frame.with_columns(pl.Series(role, [1.0, large], dtype=dtype)).write_parquet(path)
        for read in (load_table, lambda path: store_table(path, tmp_path / "stored")):
            with pytest.raises(
                TypeError, match=rf"column '{role}' \({role}\)\[1\] must be below 2\*\*(24|53), where fl"
            ):
                read(path)


def test_times_of_text_that_a_float_cannot_hold(tmp_path):
    exact = write(tmp_path, "u,i,t\n1,1,9007199254740991.0\n")
    assert load_table(exact, user="u", item="i", timestamp="t").timestamps.tolist() == [2**53 - 1]
    with pytest.raises(ValueError, match="line 2: t must be whole"):
        load_table(write(tmp_path, "u,i,t\n1,1,9007199254740993.0\n"), user="u", item="i", timestamp="t")


# ---- blanks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", [" ", "\t", "\xa0", "  \u3000"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blanks_around_fields_make_no_other_ids(tmp_path, blank, end):
    rows = ["user,item,rating,timestamp", "1,10,4,2001-01-01", "2,b10b,b4b,b2001-01-02b", "b2b,11b,4b,", "b3,b12,b5,b"]
    path = write(tmp_path, "".join(row.replace("b", blank) + end for row in rows))
    data = load_table(path)
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == ([1, 2, 3], [10, 11, 12])
    assert data.values.tolist() == [4, 4, 4, 5]
    assert data.timestamps.tolist() == [978307200, 978393600, MISSING_TIMESTAMP, MISSING_TIMESTAMP]
    stored = store_table(path, tmp_path / "stored")
    assert stored.item_ids.tolist() == [10, 11, 12]


@pytest.mark.parametrize("last", ["3, 12 ", '"3" ,\t12\xa0', '"3","12" ', '3 , " 12" '])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_blanks_behind_the_last_line_are_no_part_of_its_id(tmp_path, last, end):
    for first in ("1,jam", '"1","jam"'):  # quotes anywhere change who reads the lines
        data = load_table(write(tmp_path, f"user,item\n{first}\n{last}{end}"))
        assert data.item_ids.tolist() == [" 12" if '" 12"' in last else "12", "jam"]


def test_a_header_with_blanks_and_ids_of_text(tmp_path):
    path = write(tmp_path, 'user , item,\xa0stars\nann, jam,1\nbob ," jam",2\n')
    assert table_columns(path) == ["user", "item", "stars"]
    data = load_table(path, user="user", item="item", value="stars")
    assert data.item_ids.tolist() == [" jam", "jam"]  # blanks in quotes are a part of an id


def test_an_excluded_item_after_a_blank_is_not_recommended(tmp_path):
    data = load_table(write(tmp_path, "user, item\n1, 10\n2, 10\n2, 11\n"))
    assert data.item_ids.tolist() == [10, 11]
    assert Popularity().fit(data).recommend([1], exclude=[11], filter_seen=False)[0].tolist() == [[10]]


@pytest.mark.parametrize(
    "rows", ["196   242   3\n 22 1042   4\n186  302  10\n", "196\t 242  3 \n22 1042 4\n186 302 10\r\n"]
)
def test_several_blanks_are_one_separator(tmp_path, rows):
    path = write(tmp_path, "user  item  rating\n" + rows)
    assert table_of(load_table(path, separator=" ")) == [
        (186, 302, 10.0, None),
        (196, 242, 3.0, None),
        (22, 1042, 4.0, None),
    ]
    assert table_of(load_table(path)) == table_of(load_table(path, separator=" "))
    bare = write(tmp_path, rows, "bare.txt")
    data = load_table(bare, user=0, item=1, value=2, header=False, separator=" ")
    assert table_of(data) == table_of(load_table(path))


def test_one_odd_id_late_in_a_file_does_not_have_python_read_it(tmp_path, monkeypatch):
    read_by_python, parse = [], ColumnReader._parse_slowly
    monkeypatch.setattr(
        ColumnReader, "_parse_slowly", lambda self, lines, *arguments, **options: (
            read_by_python.append(len(lines)), parse(self, lines, *arguments, **options)
        )[1],
    )  # fmt: skip
    rows = "".join(f"{k},{k % 1000},{k % 5}\n" for k in range(200_000))
    expected = load_table(write(tmp_path, "user,item,rating\n" + rows))
    assert read_by_python == []
    for odd in ("zoe,1,1\n", '"zoe",1,1\n', '"z, ""o""",1,1\n'):
        read_by_python.clear()
        data = load_table(write(tmp_path, "user,item,rating\n" + rows + odd))
        assert data.n_interactions == expected.n_interactions + 1
        assert data.user_index(["7", csv_field(odd)]).tolist()
        assert sum(read_by_python) < 100_000  # of 2.5 million bytes
    with pytest.raises(ValueError, match="line 100002: rating must be a finite number, got 'x'"):
        load_table(write(tmp_path, "user,item,rating\n" + rows.replace("100000,0,0\n", "100000,0,x\n")))


def csv_field(line):
    return next(csv.reader([line]))[0]
