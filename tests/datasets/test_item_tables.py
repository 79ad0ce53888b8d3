"""Tests of tables of items: all kinds of columns, their headers, and files that are no tables."""

import datetime
import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.datasets import load_item_features

TEXT = "item,kind,tags,year,seen,title\n7,a,x|y,1971,1999-12-31,The ring\n9,b,,1980.5,2001-01-01,\n8, ,y,,,A ring\n"


def write(folder, text, name="items.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def listed(features):
    return {name: list(column) for name, column in features.items()}


# ---- oracle --------------------------------------------------------------------------------------------------------


def test_each_column_has_the_type_of_all_its_fields(tmp_path):
    days = [(datetime.date(*day) - datetime.date(1970, 1, 1)).days * 86400e6 for day in ((1999, 12, 31), (2001, 1, 1))]
    features = load_item_features(write(tmp_path, TEXT))
    assert features["item"].dtype == np.int64
    assert listed(features) == {
        "item": [7, 9, 8],
        "kind": ["a", "b", None],
        "tags": ["x|y", None, "y"],
        "year": [1971.0, 1980.5, None],
        "seen": [*days, None],
        "title": ["The ring", None, "A ring"],
    }


@pytest.mark.parametrize(
    "content",
    [
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace(",", "\t").encode(),
        TEXT.replace(",", "::").encode(),
        ("sep=,\n" + TEXT + "\n\n").encode(),
        TEXT.encode("utf-16"),
        gzip.compress(TEXT.encode()),
    ],
)
def test_the_same_from_every_form(tmp_path, content):
    assert listed(load_item_features(write(tmp_path, content, "x"))) == listed(
        load_item_features(write(tmp_path, TEXT))
    )


def test_quotes_latin_1_and_other_names(tmp_path):
    text = 'name,"the id"\n"caf\u00e9, ""old""",007\n"two\nlines",8\n'.encode("latin-1")
    features = load_item_features(write(tmp_path, text), item="the id")
    assert listed(features) == {"item": ["007", "8"], "name": ['caf\u00e9, "old"', "two\nlines"]}
    features = load_item_features(write(tmp_path, 'item;name\n1;"a"\n'), quotes=False)
    assert listed(features)["name"] == ['"a"']
    assert listed(load_item_features(write(tmp_path, "item-name\n1-a\n"), item="item", separator="-"))["name"] == ["a"]


def test_a_header_of_types(tmp_path):
    header = "item_id:token\tyear:token\tgenre:token_seq\tvector:float_seq\tprice:float\n"
    text = header + "1\t1990\tx y\t.5 1\t3\n2\t\ty\t\t\n3\t\ty\tnull\t\n"
    features = load_item_features(write(tmp_path, text, "ml.item"))
    assert listed(features) == {
        "item": [1, 2, 3], "year": ["1990", None, None], "genre": ["x|y", "y", "y"], "vector": [(0.5, 1.0), None, None],
        "price": [3.0, None, None],
    }  # fmt: skip


def test_parquet_is_read_as_it_is(tmp_path):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"kind": ["a", "a"], "movieId": [3, 4], "vector": [[0.5, 1.0], [2.0, 0.0]]})
    table.write_parquet(tmp_path / "items.parquet")
    features = load_item_features(tmp_path / "items.parquet")
    assert {name: column.to_list() for name, column in features.items()} == {
        "item": [3, 4], "kind": ["a", "a"], "vector": [[0.5, 1.0], [2.0, 0.0]]
    }  # fmt: skip
    features = ItemFeatures.of("item_features", features)
    assert [block.shape for block in features.blocks] == [(2, 1), (2, 2)]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(st.tuples(st.text('ab,"\n |\u00e9', max_size=4), st.none() | st.floats(-9, 9)), min_size=1))
def test_tables_of_csv_are_read_back(tmp_path_factory, rows):
    import csv

    path = tmp_path_factory.mktemp("items") / "items.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # in quotes, blanks are kept
        writer.writerow(["note", "item", "size"])
        writer.writerows([note, number, size] for number, (note, size) in enumerate(rows))
    features = load_item_features(path)
    assert features["item"].tolist() == list(range(len(rows)))
    assert features["note"].tolist() == [note if note.strip() else None for note, _ in rows]
    assert features["size"].tolist() == [size for _, size in rows]


# ---- bad inputs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("name,kind\na,b\n", KeyError, r"item must be given, .* has a usual name of item ids, got \['name', 'kind'\]"),
        ("item,movieId,a\n1,2,3\n", KeyError, r"item must be one column, got .* in .*\.csv; name one"),
        ("item,a,a\n1,2,3\n", ValueError, "line 1: column names must be distinct"),
        (",item,a\n0,2,3\n", ValueError, "line 1: column 1 must have a name, got none; name it, or remove it"),
        ("item,a\n1,2\n,3\n", ValueError, "line 3: item must be an id, got ''"),
        ("item,a\n1,2\n3\n", ValueError, r"line 3: expected 2 fields \(item, a\)"),
        ('item,a\n1,"2\n', ValueError, "line 2: a quote must be closed"),
        ('item,a\n1,"2"x\n', ValueError, "line 2: a must be text, got '\"2\"x'"),
        (
            'item,note,v:float_seq\n1,"a\nb",1 2\n2,,1 x\n',
            ValueError,
            "line 4: v:float_seq must be finite numbers separated by spaces, got '1 x'; name it v:token_seq for labels",
        ),
        ("item,a\n", ValueError, "line 2: the file ends without a single row"),
        ("", ValueError, "line 1: the file is empty"),
        (b"\xef\xbb\xbfitem,a\n1,\xe9\n", ValueError, r"\.csv must be utf-8 text, as its first bytes state"),
        (b"PK\x03\x04", ValueError, "is not text, but a zip"),
    ],
)
def test_a_table_that_is_none(tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        load_item_features(write(tmp_path, text))


def test_arguments_and_files_are_checked(tmp_path):
    path = write(tmp_path, "id,item,a\n1,2,3\n")
    with pytest.raises(KeyError, match=r"item='x' is not a column; .* has \['id', 'item', 'a'\]"):
        load_item_features(path, item="x")
    with pytest.raises(ValueError, match="column 'item' must hold the ids, which are in 'id'; rename column 'item'"):
        load_item_features(path, item="id")
    with pytest.raises(TypeError, match="quotes"):
        load_item_features(path, quotes="no")
    with pytest.raises(FileNotFoundError, match="pass a CSV, TSV or Parquet file"):
        load_item_features(tmp_path)
    polars = pytest.importorskip("polars")
    polars.DataFrame({"item": [], "kind": []}).write_parquet(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="ends without a single row"):
        load_item_features(tmp_path / "none.parquet")


@pytest.mark.parametrize("null", ["\\N", "N/A", "#N/A", "NA", "NaN", "nan", "NULL", "null", "None", "-"])
def test_gaps_as_databases_and_spreadsheets_write_them(tmp_path, null):
    path = tmp_path / "items.csv"
    path.write_text(f"item,year,day,country\n1,1994,2001-01-01,DE\n2,{null},{null},{null}\n3,1995,,NL\n")
    features = load_item_features(path)
    assert features["year"].tolist() == [1994.0, None, 1995.0]
    assert features["day"].tolist()[1:] == [None, None]
    assert features["country"].tolist() == ["DE", None if null in ("\\N", "N/A", "#N/A") else null, "NL"]


def test_nan_of_pandas_becomes_a_null_as_the_message_states(tmp_path):
    frame = pd.DataFrame({"item": [1, 2, 3], "year": [1994, None, 1995]})
    with pytest.raises(
        ValueError, match=r"\['year'\]\[1\] must be finite, got nan; .*\.astype\('Int64'\) or \.astype\('Float64'\)"
    ):
        ItemFeatures.of("item_features", frame)
    for dtype in ("Int64", "Float64"):
        features = ItemFeatures.of("item_features", frame.astype({"year": dtype}))
        assert features.align("item_features", [1, 2, 3]).n_known == 2
