"""The reader of columns: against Python's csv module, numbers and dates, and against itself without polars."""

import io
import re
import sys
import unicodedata
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.datasets import tables as naive

from fastfedrec._kernels.datasets import _text
from fastfedrec.data.times import DIGITS, MISSING_TIMESTAMP, UNITS
from fastfedrec.datasets import _polars
from fastfedrec.datasets import columns as _columns
from fastfedrec.datasets._fields import BLANKS, Field, FieldError, Kind
from fastfedrec.datasets.columns import ColumnReader


class Trickle(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data, size):
        super().__init__(data)
        self.size = size

    def read(self, size=-1):
        return super().read(self.size)


def read(text, *kinds, separator=",", block=1 << 20, quotes=True, headings=False, **options):
    """The columns of these kinds as lists."""
    fields = [Field(f"c{position}", kind, "right", **options) for position, kind in enumerate(kinds)]
    reader = ColumnReader(fields, separator, quotes=quotes, headings=headings)
    reader.read(Trickle(text.encode(), block), "text")
    return [
        [None if k == MISSING_TIMESTAMP else column.ids[k] for k in column.numbers]
        if hasattr(column, "ids")
        else column.tolist()
        for column in reader.columns()
    ]


def fits(field, kind, **options):
    """The one value that the field holds, or "refused"."""
    try:
        return read(field + "\n", kind, separator="\t", quotes=False, **options)[0][0]
    except FieldError:
        return "refused"


# ---- oracle ---------------------------------------------------------------------------------------------------------


fields = st.text(alphabet='a1 ,"\n\r;é\U0001f600\xa0\u3000', max_size=5)


@given(st.data(), st.sampled_from([",", "\t", ";"]), st.sampled_from(["\n", "\r\n"]), st.integers(1, 40))
def test_records_equal_those_of_the_csv_module(data, separator, line_end, block):
    n = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(fields.filter(bool), min_size=n, max_size=n), min_size=1, max_size=8))

    expected = [[field.strip(BLANKS) for field in row] for row in rows]

    def quote(row, position):
        field = rows[row][position]
        bare = expected[row][position]
        if data.draw(st.booleans()) or not bare or bare[0] == '"' or set(field) & {separator, "\n", "\r"}:
            expected[row][position] = field
            return '"' + field.replace('"', '""') + '"'
        return field

    text = line_end.join(separator.join(quote(row, position) for position in range(n)) for row in range(len(rows)))
    text += data.draw(st.sampled_from(["", line_end]))
    columns = read(text, *[Kind.TEXT] * n, separator=separator, block=block)
    assert list(map(list, zip(*columns, strict=True))) == expected
    assert naive.read_rows(text, separator) == rows  # which keeps all blanks


@given(st.lists(st.text(alphabet="ab:,\t", max_size=6), min_size=1), st.sampled_from([",", "::", "\t", ":,"]))
@example([":", ""], ",")
def test_fields_between_any_separator_equal_a_split(lines, separator):
    while len(lines) > 1 and not lines[-1]:  # blank last lines are no rows
        lines = lines[:-1]
    counts = {len(line.split(separator)) for line in lines}
    rows = [[field.strip(BLANKS) for field in line.split(separator)] for line in lines]
    whole = all(map(all, rows))
    try:
        columns = read(
            "".join(f"{line}\n" for line in lines), *[Kind.TEXT] * max(counts), separator=separator, quotes=False
        )
    except ValueError:
        assert len(counts) > 1 or not whole
    else:
        assert list(map(list, zip(*columns, strict=True))) == rows


@given(st.one_of(st.integers(-(2**64), 2**64).map(str), st.text(alphabet="0159-+. e", min_size=1, max_size=20)))
@example("9223372036854775807")
@example("9223372036854775808")
@example("-9223372036854775807")
@example("-9223372036854775808")
@example("-0")
@example("007")
@example("+7")
@example(" 7")
@example("7 ")
def test_integers_equal_pythons(field):
    bare = field.strip(" ")
    expected = int(bare) if naive.is_integer(bare) else "refused"
    assert fits(field, Kind.ID) == expected
    assert fits(field, Kind.ID, low=0) == (expected if expected == "refused" or expected >= 0 else "refused")


@given(st.one_of(st.integers(-(2**64), 2**64).map(str), st.text(alphabet="0159-+. e", min_size=1, max_size=20)))
@example("-9223372036854775808")
@example(" +007")
@example(" ")
@example("7 ")
def test_whole_numbers_may_be_written_in_any_way(field):
    is_whole = re.fullmatch(" *[-+]?[0-9]+ *", field)
    expected = int(field) if is_whole and abs(int(field)) < 2**63 else "refused"
    assert fits(field, Kind.WHOLE, optional=True) == (expected if field.strip(" ") else MISSING_TIMESTAMP)


def test_an_empty_optional_field_is_missing():
    assert read("a,,,\nb,7,x,2001-01-01\n", Kind.TEXT, Kind.WHOLE, Kind.TEXT, Kind.ISO, optional=True) == [
        ["a", "b"], [MISSING_TIMESTAMP, 7], [None, "x"], [MISSING_TIMESTAMP, 978307200]
    ]  # fmt: skip


decimals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.from_regex(r"[-+]?[0-9]{0,22}\.?[0-9]{0,22}([eE][-+]?[0-9]{0,3})?", fullmatch=True),
    st.text(alphabet="019.eE+-_ naif", min_size=1, max_size=9),
).filter(bool)


@given(decimals)
@example("9007199254740993")
@example("5629499534213129")
@example("0.3")
@example("1e23")
@example("8.41e21")
@example("2.2250738585072011e-308")
@example("1e400")
@example("1_0")
@example("nan")
@example("infinity")
@example(".")
@example("1e")
def test_decimals_equal_pythons_to_the_last_bit(field):
    try:
        expected = float(field)
    except ValueError:
        expected = np.nan
    if not np.isfinite(expected) or set(field.strip(" ")) & set("_ naif"):
        expected = "refused"
    assert fits(field, Kind.DECIMAL) == expected


moments = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29))
zones = st.sampled_from([None, UTC, *(timezone(timedelta(minutes=m)) for m in (-765, -60, 1, 330, 1439))])


@given(
    moments,
    zones,
    st.sampled_from(["date", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from("T "),
    st.sampled_from(UNITS),
)
def test_dates_equal_pythons_or_are_refused_if_a_part_would_be_cut(moment, zone, precision, between, unit):
    if precision == "date":
        field = moment.date().isoformat()
    else:
        field = moment.replace(tzinfo=zone).isoformat(between, timespec=precision)
    expected = naive.from_iso(field, DIGITS[unit])
    assert fits(field, Kind.ISO, unit=unit) == expected
    if field.endswith("+00:00"):
        assert fits(field[:-6] + "Z", Kind.ISO, unit=unit) == fits(field[:-3], Kind.ISO, unit=unit) == expected
    assert fits(field[:-1] + "x", Kind.ISO) == "refused"


@given(st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32), st.integers(0, 25), st.integers(0, 61))
def test_days_that_do_not_exist_are_refused(year, month, day, hour, minute):
    field = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}"
    try:
        expected = naive.from_iso(field)
    except ValueError:
        expected = "refused"
    assert fits(field, Kind.ISO) == expected


@pytest.mark.parametrize(
    ("field", "unit", "expected"),
    [
        ("1970-01-01T00:00:01.000", "s", 1),  # only zeros are cut
        ("1970-01-01T00:00:01.5", "s", "refused"),
        ("1970-01-01T00:00:01.5000", "ms", 1_500),
        ("1970-01-01T00:00:01.0005", "ms", "refused"),
        ("1969-12-31T23:59:59.25", "ms", -750),
        ("1970-01-01T00:00:01.5+01:00", "us", -3_598_500_000),
        ("1970-01-01T00:00:00.123456789", "ns", 123_456_789),
        ("1970-01-01T00:00:00.1234567891", "ns", "refused"),
        ("2262-04-11T23:47:16.854775807", "ns", 2**63 - 1),
        ("2262-04-11T23:47:16.854775808", "ns", "refused"),
        ("1677-09-21T00:12:43.145224193", "ns", -(2**63) + 1),
        ("1677-09-21T00:12:43.145224192", "ns", "refused"),  # which is how a missing one is written
        ("9999-12-31T23:59:59.999", "ms", 253_402_300_799_999),
        ("9999-12-31", "ns", "refused"),
    ],
)
def test_parts_of_a_second_and_the_ends_of_64_bits(field, unit, expected):
    assert fits(field, Kind.ISO, unit=unit) == expected


NO_DATES = [
    "2020", "2020-1-01", "20200101", "2020-01-01T", "2020-01-01T10", "2020-01-01T1000", "2020-01-01T10:00:", "NaT",
    "2020-01-01T10:00:60", "2020-01-01T10:00:00.", "2020-01-01T10:00z", "2020-01-01T10:00+", "2020-01-01T10:00+1",
    "2020-01-01T10:00+01:", "2020-01-01T10:00+01:60", "2020-01-01T10:00+24", "2020-01-01Z", "2020 -01-01",
    "2020-01-01 x", "2020/01/01", "01.02.2020", "0000-01-01", "-020-01-01",
]  # fmt: skip


@pytest.mark.parametrize("field", NO_DATES)
def test_invalid_dates_are_refused(field):
    assert fits(field, Kind.ISO) == "refused"


def test_blanks_are_all_spaces_of_unicode_and_the_tab():
    spaces = {chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Zs"}
    assert set(BLANKS) == spaces | {"\t"}
    for blank in BLANKS:
        assert read(f"{blank}a{blank}b{blank},{blank}7{blank}\n", Kind.TEXT, Kind.ID) == [[f"a{blank}b"], [7]]


@pytest.mark.parametrize("text", ["1,2,x\n3,4,y\n", " 1 ,2\t,\xa0x\n3, 4 ,y \n", '1, 2, "x"\n "3" ,4 ,"y" \n'])
def test_files_with_blanks_are_read_by_polars(monkeypatch, text):
    monkeypatch.setattr(ColumnReader, "_parse_slowly", None)
    assert read(text, Kind.ID, Kind.ID, Kind.TEXT) == [[1, 3], [2, 4], ["x", "y"]]
    assert read("1  2\n 3 \t4 \r\n", Kind.ID, Kind.ID, separator=" ") == [[1, 3], [2, 4]]


def test_blanks_in_quotes_are_a_part_of_ids_and_not_of_numbers():
    assert read('" a","x"\n', Kind.TEXT, Kind.TEXT) == [[" a"], ["x"]]
    assert fits("7", Kind.ID) == 7
    with pytest.raises(FieldError):
        read('" 7"\n', Kind.ID)
    assert read('" 7 "," 2001-01-01 "," "\n', Kind.DECIMAL, Kind.ISO, Kind.WHOLE, optional=True) == [
        [7.0], [978307200], [MISSING_TIMESTAMP]
    ]  # fmt: skip


# ---- invariants -----------------------------------------------------------------------------------------------------


KINDS = [
    (Kind.TEXT, Kind.ID, Kind.TEXT),
    (Kind.WHOLE, Kind.SKIP, Kind.DECIMAL),
    (Kind.TEXT, Kind.TEXT),
    (Kind.ID, Kind.SKIP),
    (Kind.ISO, Kind.WHOLE),
    (Kind.ID,),
]


plain = st.one_of(
    st.sampled_from(
        [
            "1",
            "2",
            "30",
            "4.5",
            "007",
            "-0",
            "+3",
            " 6",
            "6 ",
            "\xa07\t",
            ' "a" ',
            '" 8 "',
            " ",
            "1e3",
            "nan",
            "2001-01-01",
            "0.1234567890123456789",
        ]
    ),
    st.sampled_from([""]),
    st.text("ab:;é", max_size=3),
)


quoted = st.text('a1,"\n\r', max_size=6).map(lambda field: '"' + field.replace('"', '""') + '"')
records = st.lists(st.one_of(plain, quoted), min_size=1, max_size=3).map(",".join)


right = st.tuples(st.sampled_from(["a", "b", '"a"', '"c\nd,1,a"', '"\n"']), st.integers(0, 9)).map(
    "{0[0]},{0[1]},b".format
)


lines = st.one_of(
    right, right, right, records, st.sampled_from(["7:", "12:", "12:a", "", '"']), st.text('a1,":\r', max_size=5)
)


texts = st.tuples(st.lists(lines, min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"])).map(
    lambda drawn: "".join(line + drawn[1] for line in drawn[0])
)


def outcome(*arguments, **options):
    try:
        return read(*arguments, **options)
    except ValueError as error:
        return str(error)


@contextmanager
def in_parts():
    """Three threads, and no part too small for one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_columns, "_PART_BYTES", 1)
        patch.setattr(_columns, "resolve_n_threads", lambda _: 3)
        yield


@settings(max_examples=400)
@given(texts, st.sampled_from(KINDS), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 60))
@example('a,1\n"b\nghost,2\nd",3\nc,4\n', (Kind.TEXT, Kind.ID), True, False, False, 9)
@example("7:\n1\n2\n3\n12:\n4\n5\nx\n", (Kind.ID,), False, True, False, 60)
@example('5" pipe,1\n6",2\n', (Kind.TEXT, Kind.ID), True, False, False, 60)
@example("1,2,x\n3,4\n", (Kind.ID, Kind.SKIP), True, False, False, 60)
@example("1,2001-01-01,\n2,,\n", (Kind.WHOLE, Kind.ISO, Kind.TEXT), False, False, True, 60)
def test_polars_and_python_read_the_same(text, kinds, quotes, headings, optional, block):
    options = {"quotes": quotes, "headings": headings, "optional": optional}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_columns, "may_hang", lambda: True)
        expected = outcome(text, *kinds, **options)
    with in_parts():
        assert outcome(text, *kinds, block=block, **options) == expected
        assert outcome(text, *kinds, **options) == expected


NUMBERS = [
    "1",
    "70",
    "-3",
    "0",
    "0.5",
    "10.05",
    "-0",
    "-05",
    "05",
    "007",
    "+3",
    " 6",
    "6 ",
    "1e3",
    "9" * 18,
    "1" * 20,
    "",
]


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.sampled_from(NUMBERS[: NUMBERS.index("-0")]) | st.sampled_from(NUMBERS), min_size=3, max_size=3)
    ),
    st.sampled_from([",", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([(Kind.ID, Kind.DECIMAL, Kind.ID), (Kind.DECIMAL, Kind.ID, Kind.WHOLE), (Kind.ID,) * 3]),
    st.integers(1, 40),
)
def test_numbers_are_ids_in_pythons_notation(rows, separator, end, kinds, block):
    text = "".join(separator.join(row) + end for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_columns, "may_hang", lambda: True)
        expected = outcome(text, *kinds, separator=separator)
    with in_parts():
        assert outcome(text, *kinds, separator=separator, block=block) == expected
        assert outcome(text, *kinds, separator=separator) == expected


def test_a_doubtful_line_keeps_its_position_among_parts_of_blocks(monkeypatch):
    sizes, parse = [], ColumnReader._parse_part
    monkeypatch.setattr(ColumnReader, "_parse_part", lambda self, part: sizes.append(len(part)) or parse(self, part))
    lines = [f"{k},{k % 7}\n" for k in range(1000)]
    doubtful = [*lines[:500], "500,+3\n", *lines[501:]]  # a number that only Python takes
    with in_parts():
        columns = read("".join(doubtful), Kind.ID, Kind.WHOLE, block=400)
        assert columns == [list(range(1000)), [k % 7 if k != 500 else 3 for k in range(1000)]]
        assert len(sizes) > 20
        assert max(sizes) < 400
        wrong = "".join([*doubtful[:700], "700,x\n", *lines[701:]])
        assert "line 701" in outcome(wrong, Kind.ID, Kind.WHOLE, block=400)


def test_without_the_look_at_how_numbers_are_written_two_ids_become_one(monkeypatch):
    text = "7,1\n007,2\n"
    assert "line 2" in outcome(text, Kind.ID, Kind.ID)
    monkeypatch.setattr(_polars, "_kernel", SimpleNamespace(scan=lambda *text: (*_text.scan(*text)[:-1], False)))
    assert outcome(text, Kind.ID, Kind.ID) == [[7, 7], [1, 2]]


def test_lines_that_are_right_are_read_by_polars(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("read by Python")

    monkeypatch.setattr(ColumnReader, "_parse_slowly", refuse)
    text = "".join(
        f'{k},"a ""{k % 3}"",\n{k % 7}",{k / 8},2001-01-0{k % 9 + 1}T10:00:0{k % 10}+01:00,{k}\n' for k in range(99)
    )
    columns = read(text, Kind.ID, Kind.TEXT, Kind.DECIMAL, Kind.ISO, Kind.WHOLE)
    assert columns[:3] == [
        list(range(99)), [f'a "{k % 3}",\n{k % 7}' for k in range(99)], [k / 8 for k in range(99)]
    ]  # fmt: skip
    assert columns[3][:2] == [978339600, 978426001]
    assert read("1::2\r\n3::4\r\n", Kind.ID, Kind.ID, separator="::") == [[1, 3], [2, 4]]
    assert read("7:\n1\n2\n8:\n3\n", Kind.ID, headings=True) == [[1, 2, 3], [7, 7, 8]]


def test_a_column_with_negative_numbers_and_one_of_63_bits(monkeypatch):
    monkeypatch.setattr(ColumnReader, "_parse_slowly", None)
    numbers = [0, -1, 9, 10, -10, 99, 100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1]
    assert read("".join(f"{number}\n" for number in numbers), Kind.ID) == [numbers]


def test_a_forked_process_reads_the_same(monkeypatch):
    expected = read("a,1\nb,2\n", Kind.TEXT, Kind.ID)
    monkeypatch.setattr(_columns, "may_hang", lambda: True)
    monkeypatch.setattr(_columns, "parse_lines", None)
    assert read("a,1\nb,2\n", Kind.TEXT, Kind.ID) == expected
