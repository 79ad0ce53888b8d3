"""Tables as shops and databases write them: gaps, times in any form, comments, and files of other kinds."""

import contextlib
import gzip
import re
import sqlite3
import tarfile
import tempfile
import warnings
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.io
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st
from support.table_case import table_of, write

from fastfedrec.cli.main import main
from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.datasets import load_movielens, load_table, store_table
from fastfedrec.datasets._fields import FieldError, stated_moment

# ---- everyday files -------------------------------------------------------------------------------------------------

RETAIL = """InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536365,85123A,"HOLDER, WHITE",6,12/01/2010 08:26,2.55,17850,United Kingdom
536366,22633,WARMER,6,12/01/2010 08:28,1.85,,United Kingdom
536367,22633,WARMER,2,12/13/2010 08:34,1.85,13047,United Kingdom
536368,85123A,"HOLDER, WHITE",-1,12/01/2010 08:34,2.55,13047,United Kingdom
"""


def test_a_retail_file_without_some_customers(tmp_path):
    path = write(tmp_path, RETAIL)
    with pytest.raises(ValueError, match=r"line 3: CustomerID must be an id, got ''; pass missing_ids='drop' to drop"):
        load_table(path, user="CustomerID", item="StockCode")
    options = {"missing_ids": "drop", "time_format": "%m/%d/%Y %H:%M"}
    for read in (load_table, lambda path, **options: store_table(path, tmp_path / "stored", **options)):
        with pytest.warns(UserWarning, match="1 of 4 rows have no CustomerID or no StockCode and were dropped"):
            data = read(path, **options)
        assert table_of(data) == [
            (13047, "22633", 2.0, 1292229240), (13047, "85123A", -1.0, 1291192440), (17850, "85123A", 6.0, 1291191960),
        ]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(["7", "8", ""]), st.sampled_from(["a", '"b,"', ""])), min_size=1, max_size=30)
)
def test_rows_without_an_id_are_dropped_as_if_they_were_not_there(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("t")
    whole = [row for row in rows if all(row)]
    for name, some in (("some.csv", rows), ("whole.csv", whole)):
        (folder / name).write_text("u,i\n" + "".join(f"{user},{item}\n" for user, item in some))
    options = {"user": "u", "item": "i", "missing_ids": "drop", "duplicates": "sum"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if not whole:
            with pytest.raises(ValueError, match="at least one row must have both ids"):
                load_table(folder / "some.csv", **options)
            return
        found = load_table(folder / "some.csv", **options)
    assert len(caught) == (len(whole) < len(rows))
    assert table_of(found) == table_of(load_table(folder / "whole.csv", **options))


def test_parquet_without_some_users(tmp_path):
    path = tmp_path / "table.parquet"
    frame = {"user": [1, None, 3], "item": ["a", "b", None], "timestamp": ["01.02.2020", None, "03.02.2020"]}
    pl.DataFrame(frame).write_parquet(path)
    with pytest.raises(ValueError, match=r"\(user\) has 1 missing entries; drop or fill those rows; pass missing_ids"):
        load_table(path)
    options = {"missing_ids": "drop", "time_format": "%d.%m.%Y"}
    for read in (load_table, lambda path, **options: store_table(path, tmp_path / "stored", **options)):
        with pytest.warns(UserWarning, match="2 of 3 rows have no user or no item and were dropped"):
            assert table_of(read(path, **options)) == [(1, "a", 1.0, 1580515200)]
    whole = tmp_path / "whole.parquet"
    pl.DataFrame({"user": [1], "item": ["a"], "timestamp": ["01.02.2020"]}).write_parquet(whole)
    with pytest.warns(UserWarning, match="has a usual name of times, but is skipped: .*'%d.%m.%Y'"):
        assert load_table(whole).timestamps is None


def test_a_written_mark_of_a_missing_id_is_noted(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item\nann,Nan's\nNA,b\nNA,c\nnancy,N/A\n")
    for read in (load_table, lambda path: store_table(path, tmp_path / "stored")):
        with pytest.warns(UserWarning, match="has the id") as noted:
            read(path)
        texts = sorted(str(warning.message) for warning in noted)
        assert [re.search("has the id .*", text)[0] for text in texts] == [
            "has the id 'N/A', and its rows count as one item; if it stands for a missing id, remove these rows",
            "has the id 'NA', and its rows count as one user; if it stands for a missing id, remove these rows",
        ]
    for dtype in (pl.String, pl.Categorical, pl.Enum(["ann", "null"])):
        frame = pl.DataFrame({"user": pl.Series(["ann", "null"], dtype=dtype), "item": [1, 2]})
        frame.write_parquet(tmp_path / "table.parquet")
        for read in (load_table, lambda path: store_table(path, Path(tempfile.mkdtemp(dir=tmp_path)) / "stored")):
            with pytest.warns(UserWarning, match=r"column 'user' \(user\) has the id 'null', and its"):
                read(tmp_path / "table.parquet")


TIMES = [
    ("12/13/2010 08:26", "%m/%d/%Y %H:%M", 1292228760),
    ("13/12/2010", "%d/%m/%Y", 1292198400),
    ("Mon May 11 10:00:00 2020", "%a %b %d %H:%M:%S %Y", 1589191200),
    ("Mon May 11 10:00:00 +0200 2020", "%a %b %d %H:%M:%S %z %Y", 1589184000),
    ("05 3, 2011", "%m %d, %Y", 1304380800),
    ("1-Jan-1994", "%d-%b-%Y", 757382400),
    ("2020/05/11 10:00:00", "%Y/%m/%d %H:%M:%S", 1589191200),
]


@pytest.mark.parametrize(("text", "form", "expected"), TIMES)
def test_times_in_a_stated_form(tmp_path, text, form, expected):
    path = write(tmp_path, f"user\titem\ttimestamp\n1\t1\t{text}\n1\t2\t\n2\t2\t{text} \n")
    assert load_table(path, time_format=form).timestamps.tolist() == [expected, MISSING_TIMESTAMP, expected]
    with pytest.raises(ValueError, match=f"line 2: timestamp must be whole .*time_format='{re.escape(form)}'"):
        load_table(path, user="user", item="item", timestamp="timestamp")
    with pytest.warns(
        UserWarning, match=f"'timestamp' has a usual name .*skipped: .*{re.escape(form)}.*name the columns"
    ):
        data = load_table(path)
    assert (data.timestamps, data.n_interactions) == (None, 3)
    other = write(tmp_path, f"user\titem\ttimestamp\n1\t1\t{text}\n1\t2\tyesterday\n")
    with pytest.raises(ValueError, match=r"line 3: timestamp must be a time of time_format=.*got 'yesterday'"):
        load_table(other, time_format=form)


def test_dates_that_two_forms_fit_are_not_guessed(tmp_path):
    path = write(tmp_path, "user,item,timestamp\n1,1,01/02/2020\n")
    with pytest.raises(ValueError, match="time_format='%m/%d/%Y' or time_format='%d/%m/%Y'"):
        load_table(path, user="user", item="item", timestamp="timestamp")


def test_numbers_with_a_fraction_and_dates_without_separators(tmp_path):
    path = write(tmp_path, "u,i,t\n1,1,1714564800.25\n1,2,1714564800\n1,3,\n")
    options = {"user": "u", "item": "i", "timestamp": "t"}
    for unit in ("s", "ms"):
        with pytest.raises(ValueError, match=r"got '1714564800\.25'; pass time_format='s' and a finer timestamp_unit"):
            load_table(path, **options, timestamp_unit=unit)
    data = load_table(path, **options, time_format="s", timestamp_unit="ms")
    assert data.timestamps.tolist() == [1714564800250, 1714564800000, MISSING_TIMESTAMP]
    with pytest.raises(ValueError, match="a time of time_format='s' that is exact in timestamp_unit='s'"):
        load_table(path, **options, time_format="s")
    days = write(tmp_path, "u,i,t\n1,1,20240501\n")
    assert load_table(days, **options, time_format="%Y%m%d").timestamps.tolist() == [1714521600]
    for wrong, message in (
        ("seconds", "must be .* got 'seconds'"),
        ("%Q", "must be .* 'Q' is a bad directive"),
        (3, "must be .* got 3"),
        ("%Y-%m-%d %H:%M %Z", r"with %Z must have %z, got '.*'; use %z, or write UTC as text in the format"),
        ("%Y-%m-%d %I:%M", "with %I must have %p, got .*; use %H for the hours of a day"),
        ("%Y-%m-%d %H:%M %p", "with %p must have %I, got"),
        ("%Y-%M-%d", "with %M must have %H or %I, got .*; use %m for the month"),
        ("%Y-%d", "with %d must have %b or %B or %m, got .*; add the month"),
        ("%Y week %W", "with %W must have %a or %A or %w or %u, got"),
        ("%Y %a", "with %a must have %d or"),
        ("%d/%m %H:%M", "must have a year, got '%d/%m %H:%M'; add %Y to the format and to the times"),
        ("at %%Y", "must have a year"),
    ):
        with pytest.raises(ValueError, match=f"time_format {message}"):
            load_table(days, **options, time_format=wrong)


@given(st.integers(-(10**9), 10**11), st.integers(0, 10**9 - 1), st.sampled_from(["s", "ms", "us", "ns"]))
def test_fractions_of_seconds_are_exact_or_refused(seconds, nanoseconds, unit):
    text, exact = f"{seconds}.{nanoseconds:09}", Fraction(f"{seconds}.{nanoseconds:09}")
    scaled = exact * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    assert stated_moment(text, "s", unit) == (int(scaled) if scaled.denominator == 1 and abs(scaled) < 2**63 else None)


numerals = st.from_regex(r"[-+]?0{0,3}[0-9]{1,20}(\.[0-9]{0,12}0{0,3})?([eE][-+]?0{0,3}[0-9]{1,2})?", fullmatch=True)


@given(numerals, st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from(["s", "ms", "us", "ns"]))
@example("-9223372036854775807", "s", "s")
@example("0.00000000000000000000e99", "s", "s")
@example("5e+00000000000000000000000001", "s", "s")
def test_numbers_in_any_notation_are_exact_or_refused(text, given_unit, unit):
    size = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    scaled = Fraction(text) * size[unit] / size[given_unit]
    expected = int(scaled) if scaled.denominator == 1 and abs(scaled) < 2**63 else None
    assert stated_moment(text, given_unit, unit) == expected


@pytest.mark.parametrize("sign", ["", "-", "+"])
@pytest.mark.parametrize("number", [f"9e3{'0' * 5000}", "9e308300760", "9e-308300760", "1" * 5000, f"{'1' * 5000}.5"])
def test_a_number_that_would_need_a_billion_digits_is_refused_at_once(tmp_path, sign, number):
    path = write(tmp_path, f"user,item,timestamp\n1,1,{sign}{number}\n")
    with pytest.raises(FieldError, match=r"\.csv, line 2: timestamp must be a time"):
        load_table(path, time_format="s")
    assert stated_moment(f"{sign}{'0' * 5000}7.{'0' * 5000}e+{'0' * 5000}1", "s", "s") == int(f"{sign}70")
    padded = write(tmp_path, f"user,item,value\n1,1,{sign}{'0' * 5000}7\n")
    assert load_table(padded).values.tolist() == [int(f"{sign}7")]


@pytest.mark.parametrize("comment", [None, "#", "%"])
def test_comments_above_the_rows(tmp_path, comment):
    mark = comment or "#"
    text = f"{mark} Directed graph\n{mark}\n{mark} Nodes: 3\tEdges: 2\n1\t2\n3\t4\n"
    data = load_table(write(tmp_path, text), user=0, item=1, header=False, comment=comment)
    assert table_of(data) == [(1, 2, 1.0, None), (3, 4, 1.0, None)]
    with_header = write(tmp_path, f"{mark} by hand\nuser,item\n1,2\n3,x,4\n")
    with pytest.raises(ValueError, match="line 4: expected 2 fields"):
        load_table(with_header, comment=comment)
    named = load_table(write(tmp_path, "#user,item\n1,2\n"), user="#user")
    assert table_of(named) == [(1, 2, 1.0, None)]


@pytest.mark.parametrize("quote", ["", ' of "quotes', ' , "a'])
def test_comments_between_rows(tmp_path, quote):
    n = 40_000
    rows = "".join(f'{k},{k % 7},"a, {k}"\n' + f"//{quote}\n" * (k % 10_000 == 0) for k in range(n))
    path = write(tmp_path, "user,item,note\n// none\n" + rows)
    data = load_table(path, user="user", item="item", comment="//")
    assert data.n_interactions == n
    with pytest.raises(ValueError, match="line 3: expected 3 fields"):
        load_table(write(tmp_path, "user,item,note\n1,2,3\n// none\n"), user="user", item="item")
    with pytest.raises(ValueError, match=f"line {n + 7}: expected 3 fields"):
        load_table(write(tmp_path, "user,item,note\n// none\n" + rows + "5\n"), user="user", item="item", comment="//")
    for wrong in ("", " ", '"', "\n", 3):
        with pytest.raises(ValueError, match="comment must be text without quotes and line ends, got "):
            load_table(path, user="user", item="item", comment=wrong)


def test_null_as_databases_write_it_is_an_empty_field(tmp_path):
    path = write(tmp_path, "user,item,timestamp\n1,a,\\N\n\\N,b,5\n2,c,6\n")
    with pytest.raises(ValueError, match=r"line 3: user must be an id, got '\\\\N'; pass missing_ids='drop'"):
        load_table(path)
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        data = load_table(path, missing_ids="drop")
    assert table_of(data) == [(1, "a", 1.0, MISSING_TIMESTAMP), (2, "c", 1.0, 6)]


@pytest.mark.parametrize("ids", [["1.0", "2.0"], ["1e3", "2"], ["-5.", "7.00"]])
def test_ids_that_are_written_as_floats_are_reported(tmp_path, ids):
    path = write(tmp_path, "user,item\n" + "".join(f"{user},a\n" for user in ids))
    with pytest.warns(UserWarning, match=r"'user' \(user\) has ids such as .*, which are read as text"):
        assert load_table(path).user_ids.tolist() == sorted(ids)


def test_ids_that_were_rounded_before_they_were_written_are_refused(tmp_path):
    frame = pd.DataFrame({"user": [1582218195625938945, 1582218195625938946, None], "item": [1, 2, 3]})
    path = tmp_path / "table.csv"
    frame.dropna().to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"\(user\) has ids such as '1\.58.*', which floats cannot represent exactly"):
        load_table(path)


def kinds_of_files(folder):
    """Files that hold no text, and the words that name them."""
    frame = pd.DataFrame({"user": [1, 2], "item": [3, 4]})
    with zipfile.ZipFile(folder / "book.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    yield folder / "book.xlsx", r"an Excel workbook \(.xlsx\); save its sheet as CSV"
    (folder / "book.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    yield folder / "book.xls", r"an old Excel workbook \(.xls\); save its sheet as CSV"
    frame.to_pickle(folder / "frame.pkl")
    yield folder / "frame.pkl", "a pickle; load it in Python, and use Interactions.from_dataframe"
    pl.DataFrame(frame).write_ipc(folder / "frame.feather")
    yield folder / "frame.feather", "a Feather or Arrow file; read it with pandas.read_feather"
    np.save(folder / "rows.npy", np.eye(3))
    yield folder / "rows.npy", r"an array of NumPy \(.npy\); read it with numpy.load"
    np.savez(folder / "rows.other", np.eye(3))
    yield folder / "rows.other.npz", r"an archive of NumPy \(.npz\)"
    with contextlib.closing(sqlite3.connect(folder / "rows.db")) as database:
        database.execute("create table rows (user, item)")
        database.commit()
    yield folder / "rows.db", "an SQLite database; query it with pandas.read_sql"
    scipy.io.mmwrite(folder / "rows.mtx", scipy.sparse.eye_array(3))
    yield folder / "rows.mtx", "a Matrix Market file; read it with scipy.io.mmread"
    scipy.io.savemat(folder / "rows.mat", {"rows": np.eye(3)})
    yield folder / "rows.mat", "a MATLAB file; read it with scipy.io.loadmat"
    with tarfile.open(folder / "rows.tar", "w") as archive:
        archive.add(folder / "rows.mtx")
    yield folder / "rows.tar", "a tar archive; unpack it first"
    (folder / "rows.rds").write_bytes(b"X\n\0\0\0\3\0\4")
    yield folder / "rows.rds", "data of R; save them as CSV"
    (folder / "page.csv").write_text("\n<!doctype HTML>\n<html><body>Sign in</body></html>\n")
    yield folder / "page.csv", "an HTML page; download the data instead of the page"


def test_other_kinds_of_files_are_named_with_the_way_on(tmp_path, capsys):
    for path, message in kinds_of_files(tmp_path):
        with pytest.raises(ValueError, match=f"is not text, but {message}"):
            load_table(path)
        with pytest.raises(ValueError, match=f"is {message}"):
            load_movielens(path)
        if path.suffix != ".npz":  # which --data takes for a matrix
            assert main(["fit", "popularity", "--data", str(path)]) == 2
            assert re.search(message, capsys.readouterr().err)


def test_other_kinds_of_packed_files_are_named(tmp_path):
    for path, message in [*kinds_of_files(tmp_path)]:
        if path.suffix not in (".xlsx", ".npz"):  # zips, which name their members at their end
            packed = tmp_path / f"{path.name}.gz"
            packed.write_bytes(gzip.compress(path.read_bytes()))
            with pytest.raises(ValueError, match=f"is not text, but {message}"):
                load_table(packed)
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.gz").write_bytes(gzip.compress((tmp_path / "rows.parquet").read_bytes()))
    with pytest.raises(ValueError, match="is not text, but Parquet; unpack it first"):
        load_table(tmp_path / "rows.gz")
    with pytest.raises(ValueError, match=r"rows\.parquet' is Parquet; unpack it first if it is compressed"):
        load_movielens(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    "text", ['[{"user": 1}]', '[\n  {"user": 1}\n]', '{\n  "user": 1\n}', ' { "user": 1 }\n', "[ {\n}]"]
)
def test_json_is_named_however_it_is_indented(tmp_path, text):
    with pytest.raises(ValueError, match="line 1: the file is JSON; read it with pandas or polars"):
        load_table(write(tmp_path, text))


def test_an_archive_of_another_table_has_a_way_on(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "plays.zip", "w") as archive:
        archive.writestr("plays.csv", "user,item\n1,2\n")
    assert main(["fit", "popularity", "--data", str(tmp_path / "plays.zip")]) == 2
    assert "none of them; for another table, unpack its archive" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("time", "remedy", "options", "expected"),
    [
        ("1.7e18", "; pass the unit of these numbers as time_format", {"time_format": "ns"}, 1_700_000_000),
        ("2009-05-11T10:00:00.120Z", "; pass timestamp_unit='ms'", {"timestamp_unit": "ms"}, 1_242_036_000_120),
        ("2009-05-11 10:00:00.000001", "; pass timestamp_unit='us'", {"timestamp_unit": "us"}, 1_242_036_000_000_001),
        ("2009-05-11 10:00:00 UTC", "time_format='%Y-%m-%d %H:%M:%S UTC'", {}, 1_242_036_000),
        ("2009-05-11 12:00:00 +0200", "time_format='%Y-%m-%d %H:%M:%S %z'", {}, 1_242_036_000),
        ("20090511T100000Z", "time_format='%Y%m%dT%H%M%SZ'", {}, 1_242_036_000),
        ("May 11, 2009 10:00", "time_format='%b %d, %Y %H:%M'", {}, 1_242_036_000),
    ],
)
def test_the_remedy_for_a_time_reads_it(tmp_path, time, remedy, options, expected):
    path = write(tmp_path, f'user,item,when\n1,2,"{time}"\n')
    columns = {"user": "user", "item": "item", "timestamp": "when"}
    with pytest.raises(ValueError, match=re.escape(remedy)):
        load_table(path, **columns)
    options = options or {"time_format": re.search("'(.*)'", remedy)[1]}
    assert load_table(path, **columns, **options).timestamps.tolist() == [expected]


@pytest.mark.parametrize(
    ("times", "remedy"),
    [
        (["NULL", "7"], "got 'NULL'; write an empty field instead of NULL for a missing time"),
        (["7", "n/a"], "got 'n/a'; write an empty field instead of n/a for a missing time"),
        (["7", "2009-05-11"], "got '2009-05-11'$"),  # the rule names both forms
        (["soon", "7"], r"; pass the format of the times as time_format, such as '%d/%m/%Y %H:%M'$"),
    ],
)
def test_times_that_no_format_reads_get_no_format(tmp_path, times, remedy):
    rows = "".join(f"1,{item},{time}\n" for item, time in enumerate(times))
    with pytest.raises(ValueError, match=remedy):
        load_table(write(tmp_path, "user,item,when\n" + rows), user="user", item="item", timestamp="when")


@pytest.mark.filterwarnings("default")
def test_the_command_line_reads_everyday_files(tmp_path, capsys):
    path = write(tmp_path, "# shop\n" + RETAIL)
    assert main(["split", "--data", str(path), "--out", str(tmp_path / "none")]) == 2
    assert "CustomerID must be an id, got ''" in (said := capsys.readouterr().err)
    assert "--drop-missing-ids" in said
    argv = ["split", "--data", str(path), "--drop-missing-ids"]
    assert main([*argv, "--by", "random", "--share", "0.5", "--out", str(tmp_path / "random")]) == 0
    said = capsys.readouterr().err
    assert "warning: " + f"{path}: 1 of 4 rows have no CustomerID" in said
    assert "--time-format '%m/%d/%Y %H:%M' or --time-format '%d/%m/%Y %H:%M'" in said
    argv += ["--time-format", "%m/%d/%Y %H:%M", "--comment", "#", "--by", "temporal", "--time", "2010-12-02"]
    assert main([*argv, "--out", str(tmp_path / "temporal")]) == 0
    assert (tmp_path / "temporal" / "test.csv").read_text() == "user,item,value,timestamp\n13047,22633,2,1292229240\n"
    for option in (["--comment", "#"], ["--time-format", "s"], ["--drop-missing-ids"]):
        assert main(["fit", "popularity", "--data", "generated:9x9", *option]) == 2
        assert f"{option[0]} is for text files" in capsys.readouterr().err


@pytest.mark.parametrize("column", ["user", "item"])
@pytest.mark.parametrize(
    "ids",
    [
        ["a", "", "b"],
        ["a", None, "b"],
        pl.Series(["a", "", "b"], dtype=pl.Categorical),
        pl.Series(["a", "", "b"], dtype=pl.Enum(["", "a", "b"])),
        [7.0, float("nan"), 9.0],
        [7.0, None, 9.0],
        [7, None, 9],
    ],
)
def test_rows_of_parquet_without_an_id_are_those_of_csv(tmp_path, column, ids):
    path = tmp_path / "table.parquet"
    other = "item" if column == "user" else "user"
    pl.DataFrame({column: ids, other: [1, 2, 3]}).write_parquet(path)
    message = rf"\({column}\) has 1 missing entries; drop or fill those rows; pass missing_ids='drop'"
    with pytest.raises(ValueError, match=message):
        load_table(path)
    with pytest.warns(UserWarning, match="1 of 3 rows have no user or no item and were dropped"):
        data = load_table(path, missing_ids="drop")
    assert table_of(data) == sorted(
        ((*pair, 1.0, None) if column == "user" else (*pair[::-1], 1.0, None) for pair in ((ids[0], 1), (ids[2], 3))),
        key=repr,
    )
    if not isinstance(ids[0], float):  # which stored tables do not hold
        with pytest.raises(ValueError, match=message):
            store_table(path, tmp_path / "refused")
        with pytest.warns(UserWarning, match="1 of 3 rows have no user or no item"):
            assert table_of(store_table(path, tmp_path / "stored", missing_ids="drop")) == table_of(data)


def test_times_of_parquet_that_are_text_or_have_fractions(tmp_path):
    path = tmp_path / "table.parquet"
    for times, options, expected in (
        (["2001-01-01", None, "2001-01-02T10:00"], {}, [978307200, MISSING_TIMESTAMP, 978429600]),
        (
            [1714564800.25, None, 5.0],
            {"time_format": "s", "timestamp_unit": "ms"},
            [1714564800250, MISSING_TIMESTAMP, 5000],
        ),
    ):
        pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 2], "time": times}).write_parquet(path)
        assert load_table(path, **options).timestamps.tolist() == expected
    with pytest.warns(
        UserWarning, match="'time' has a usual name of times, but .*pass time_format='s' and a finer timestamp_unit"
    ):
        assert load_table(path).timestamps is None
    with pytest.raises(
        TypeError, match=r"column 'time' \(timestamp\) must be whole .*got 1714564800\.25.*time_format='s'"
    ):
        load_table(path, user="user", item="item", timestamp="time")


@pytest.mark.parametrize("text", ["# FromNodeId\tToNodeId\n0\t1\n1\t2\n", "% bip weighted\n196 242 3 881250949\n"])
def test_a_file_without_a_header_is_reported_as_such(tmp_path, text):
    with pytest.raises(KeyError, match="looks like a row; pass header=False and positions, such as user=0, item=1"):
        load_table(write(tmp_path, text))
    assert load_table(write(tmp_path, text), user=0, item=1, header=False).n_interactions
