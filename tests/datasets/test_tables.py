"""Tests of tables: against Python's csv module, in every form, and with blanks around fields."""

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
from support.table_case import PLAYS, table_of, write

from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.datasets import load_table, store_table
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.table_files import table_columns
from fastfedrec.systems.baselines.popularity import Popularity

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


def test_files_without_polars(parquet, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    text = write(parquet.parent, PLAYS)
    for path in (parquet, text):
        with pytest.raises(
            ImportError, match=rf"{path.name}: reading files needs polars: pip install 'fastfedrec\[data\]'"
        ):
            load_table(path, user="who", item="what")


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
