"""Tests of tables and options that `load_table` refuses, with the names of lines and columns."""

import gzip
import logging
import re
import sys

import polars as pl
import pytest
import zstandard
from support.table_case import PLAYS, write

from fastfedrec.datasets import load_adjacency, load_item_features, load_table, store_table

# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_path_that_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.csv"):
        with pytest.raises(FileNotFoundError, match=r"pass a CSV or Parquet file"):
            load_table(path, user="u", item="i")


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
    with pytest.raises(KeyError, match=r"column 'user' must occur once among .* in .*\.csv; rename one of them"):
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
        KeyError,
        match=r"item must be one column, got \['asin', 'parent_asin'\] in .*\.csv; name one, for .* item='asin'",
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


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_text_of_several_bytes_that_is_cut_or_damaged(tmp_path, encoding):
    content = "\ufeffuser,item\n1,2\n".encode(encoding)
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    assert load_table(path).n_interactions == 1  # negative control
    for damaged in (content[:-1], content[:30] + b"\xd8\xdc\xff\xdf" + content[30:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"table\.csv must be {encoding} text, .*; save it as UTF-8"):
            load_table(path)


@pytest.mark.parametrize("load", [load_table, load_adjacency, load_item_features])
@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_text_that_is_not_the_utf_8_of_its_mark(tmp_path, load, name):
    path, mark = tmp_path / name, b"\xef\xbb\xbf"
    pack = gzip.compress if name.endswith(".gz") else bytes
    header, letters = b"" if load is load_adjacency else b"user item\n", {"\u00e9": "utf-8", "\u00fc": "latin-1"}
    rows = {encoding: header + f"{letter} 2\n".encode(encoding) for letter, encoding in letters.items()}
    for content in (rows["utf-8"], rows["latin-1"], mark + rows["utf-8"]):  # negative controls
        path.write_bytes(pack(content))
        load(path)
    for start in (b"", b"2 3\n" * 50_000):  # also beyond the first block
        path.write_bytes(pack(mark + header + start + b"\xfc 2\n"))
        with pytest.raises(ValueError, match=r"table\.csv.* must be utf-8 text, .*; save it as UTF-8"):
            load(path)


def test_a_panic_of_polars_is_an_error_and_an_interrupt_is_none(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(path)
    for raised, error in ((pl.exceptions.PanicException("overflow"), ValueError), (KeyboardInterrupt(), None)):

        def fail(*_, raised=raised, **__):
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(pl, "read_parquet", fail)
            with pytest.raises(error or KeyboardInterrupt) as caught:
                load_table(path)
        assert error is None or re.search(r"table\.parquet cannot be read as Parquet \(overflow\)", str(caught.value))


@pytest.mark.parametrize("dtype", [pl.Binary, pl.Time])
def test_ids_of_parquet_that_no_model_can_save(tmp_path, dtype):
    path = tmp_path / "table.parquet"
    entries = pl.Series("item", ["a", "b"]).cast(pl.Binary) if dtype is pl.Binary else pl.Series("item", [1, 2])
    pl.DataFrame({"user": [1, 2], "item": entries.cast(dtype)}).write_parquet(path)
    with pytest.raises(TypeError, match=r"table\.parquet: column 'item' \(item\)\[0\] must be a number, a string or"):
        load_table(path)
