"""Parquet tables with any columns: the boundary to polars in `load_table`.

An input is JSON with the type and the entries of each column, and polars writes its file.  Damaged bytes of a file are
polars' part: they can end the process in a failed allocation, so the docstring of `load_table` warns of such files.
"""

import json
import warnings

import polars
from support.hostile_files import json_changed

from fastfedrec.datasets import load_table
from fuzz.target import Target, check_names

TYPES = (
    "Int8", "Int64", "Int128", "UInt8", "UInt64", "Float32", "Float64", "String", "Categorical", "Date", "Datetime",
    "Duration", "Time", "Null", "Binary", "Boolean", "Decimal", "List", "Struct",
)  # fmt: skip
ROWS = 4
USERS = {"dtype": "Int64", "entries": [1, 1, 2, 3]}
ITEMS = {"dtype": "String", "entries": ["a", "b", "a", ""]}
TIMES = ["2024-05-01", "2024-05-02T10:00:00Z", None, ""]
DOCUMENTS = (
    {"user": USERS, "item": ITEMS, "rating": {"dtype": "Float32", "entries": [0.5, 1, 2, 5]}},
    {"user": {**ITEMS, "dtype": "Categorical"}, "item": USERS, "timestamp": {"dtype": "String", "entries": TIMES}},
    {"user": {**USERS, "dtype": "Int128"}, "item": {**USERS, "dtype": "UInt64"}, "value": {**USERS, "dtype": "Int8"}},
    {
        "user": {**USERS, "dtype": "Date"},
        "item": {**USERS, "dtype": "Datetime"},
        "count": {**USERS, "dtype": "Decimal"},
    },
    {
        "user": {**USERS, "dtype": "Duration"},
        "item": {**USERS, "dtype": "Time"},
        "date": {**USERS, "dtype": "Datetime"},
    },
    {
        "user": {**ITEMS, "dtype": "Binary"},
        "item": {**USERS, "dtype": "Float64"},
        "time": {**USERS, "dtype": "Boolean"},
    },
    {
        "user": {"dtype": "List", "entries": [[1], [], [2], [3]]},
        "item": {"dtype": "Struct", "entries": [{"a": 1}] * ROWS},
    },
)


def seeds():
    """Return the documents; a refused type is an input too."""
    return [json.dumps(document).encode() for document in DOCUMENTS]


def read(content, folder):
    """Write the table with polars and read it."""
    path = folder / "table.parquet"
    try:
        columns = json.loads(content)
        types = {name: getattr(polars, name) for name in TYPES}
        frame = polars.DataFrame(
            [
                polars.Series(name, column["entries"], strict=False).cast(types[column["dtype"]], strict=False)
                for name, column in columns.items()
            ]
        )
        frame.write_parquet(path)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None  # the document describes no table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_table(path, duplicates="sum", missing_ids="drop")
        except (ValueError, KeyError, TypeError) as error:
            check_names(error, str(path))
            raise


def use(data):
    """Check that the interactions are consistent."""
    if data is not None:
        assert data.n_interactions <= data.n_users * data.n_items


def mutate(random, content):
    """Change values of the document."""
    return json.dumps(json_changed(random, json.loads(content))).encode()


WORDS = tuple(word.encode() for word in (*TYPES, "user", "item", "rating", "timestamp", "1e308", "9223372036854775808"))
TARGET = Target(
    read=read, use=use, errors=(ValueError, KeyError, TypeError), seeds=seeds, mutate=mutate, words=WORDS,
    max_bytes=2**12,
)  # fmt: skip
