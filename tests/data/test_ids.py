"""External ids: their order, and that exactly those that are there are found."""

import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fastfedrec import Interactions, Key, Popularity, load
from fastfedrec.data.ids import encode_ids

#: Floats that hold a whole number exactly, and NaN.
EXACT = st.floats(1 - 2.0**53, 2.0**53 - 1) | st.just(float("nan"))


# ---- oracle -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=8),
    st.lists(st.integers(-(2**63), 2**64 - 1) | EXACT | st.text(max_size=1), min_size=1, max_size=4),
)
def test_a_look_up_is_that_of_a_dict(there, requested):
    data = Interactions.from_arrays(there, np.zeros(len(there)))
    rows = {key: row for row, key in enumerate(sorted(set(there)))}
    for question in ([*there, *requested], requested, there):
        unknown = [key for key in question if key not in rows]
        if unknown:
            with pytest.raises(KeyError, match="is unknown"):
                data.user_index(question)
        else:
            assert data.user_index(question).tolist() == [rows[key] for key in question]


@pytest.mark.parametrize("dtype", ["i1", "u1", "<u2", ">i2", "<i4", ">i4", "u4", "i8", ">i8", "u8", "q"])
@pytest.mark.parametrize("layout", ["plain", "strided", "read-only"])
def test_dense_integers_are_encoded_as_by_a_sort(dtype, layout):
    ids = np.random.default_rng(0).permutation(np.repeat([0, 3, 4, 90, 127], 40)).astype(dtype)
    if layout == "strided":
        ids = np.repeat(ids, 2)[::2]
    ids.flags.writeable = layout != "read-only"
    distinct, rows = encode_ids("users", ids)
    expected = np.unique(ids, return_inverse=True)
    assert distinct.dtype == ids.dtype.newbyteorder("=")
    np.testing.assert_array_equal(distinct, expected[0])
    np.testing.assert_array_equal(rows, expected[1])


# ---- invariants -------------------------------------------------------------------------------------------------


def test_integers_strings_and_booleans_are_ascending_other_types_by_appearance():
    assert Interactions.from_arrays([3, 1, 2], [0, 0, 0]).user_ids.tolist() == [1, 2, 3]
    assert Interactions.from_arrays(["b", "a"], [0, 0]).user_ids.tolist() == ["a", "b"]
    assert Interactions.from_arrays([True, False], [0, 0]).user_ids.tolist() == [False, True]
    assert Interactions.from_arrays(["b", 1, "a"], [0, 0, 0]).user_ids.tolist() == ["b", 1, "a"]


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_dates_are_ids(unit):
    days = np.array(["2021-01-01", "2020-01-01"], dtype=f"M8[{unit}]")
    data = Interactions.from_arrays(days, [0, 0])
    assert data.user_index(days).tolist() == [1, 0]
    assert data.user_index(list(days)).tolist() == [1, 0]


@pytest.mark.parametrize("as_ids", [list, np.array, lambda x: np.array(x, dtype=object), pd.Series, tuple, pd.Index])
def test_ids_are_found_in_any_container(as_ids):
    numbers = Interactions.from_arrays([10, 30, 20], [0, 0, 0])
    assert numbers.user_index(as_ids([20, 10])).tolist() == [1, 0]
    strings = Interactions.from_arrays(["x", "z", "y"], [0, 0, 0])
    assert strings.user_index(as_ids(["z", "x"])).tolist() == [2, 0]


def test_strings_of_any_length_are_ids():
    dtype = np.dtypes.StringDType(na_object=None)
    names = np.array(["b", "a", "b\0"], dtype=dtype)
    data = Interactions.from_arrays(names, [0, 0, 0])
    assert data.user_ids.tolist() == ["a", "b", "b\0"]
    assert data.user_index(names).tolist() == [1, 0, 2]
    assert Interactions.from_arrays(["a"], [0], user_ids=names).user_ids.tolist() == ["b", "a", "b\0"]
    with pytest.raises(ValueError, match=r"users\[1\] is missing \(None\)"):
        Interactions.from_arrays(np.array(["a", None], dtype=dtype), [0, 0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float32, np.float64])
def test_numbers_are_found_across_types(dtype):
    data = Interactions.from_arrays(np.array([7, 3, 100], dtype=dtype), [0, 0, 0])
    assert data.user_index([100, 3]).tolist() == [2, 0]
    assert data.user_index(np.array([100, 3], dtype=np.float64)).tolist() == [2, 0]
    assert data.user_index([]).tolist() == []


def test_the_first_unknown_id_is_named_as_the_caller_wrote_it():
    data = Interactions.from_arrays([1, 2], ["a", "b"])
    with pytest.raises(KeyError, match="user id 7 is unknown"):
        data.user_index(np.array([2, 7, 8]))
    with pytest.raises(KeyError, match="item id 'q' is unknown"):
        data.item_index(np.array(["b", "q"]))


def test_large_64_bit_ids_are_found_exactly():
    data = Interactions.from_arrays([2**60, 2**60 + 1], [0, 0])
    assert data.user_index(np.array([2**60 + 1], dtype=np.uint64)).tolist() == [1]


# ---- bad inputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "requested"),
    [
        ([2**53 - 1], [2.0**53 - 2]),
        ([2.0**53 - 2], [2**53 - 1]),
        (np.array([2**64 - 1], dtype=np.uint64), [-1]),
        (np.array([44], dtype=np.int8), [300]),
        (np.array([-1], dtype=np.int64), np.array([2**64 - 1], dtype=np.uint64)),
        ([1, 2], [1, float("nan")]),
        ([1, 2], [1, 1.5]),
        ([1, 2], [2, "1"]),
        ([1, 2], [2, None]),
        ([1, 2], [(1, 2), (3,)]),
        ([1, 2], [[1]]),
        ([1, 2], [2**70]),
        (["a"], ["a\0"]),
        (["a"], ["a", 1]),
        ([(1, 2)], [(1, 3)]),
    ],
)
def test_near_misses_are_unknown(there, requested):
    data = Interactions.from_arrays(there, np.zeros(len(there)))
    with pytest.raises(KeyError, match=r"user id .* is unknown; the model and data hold \d users"):
        data.user_index(requested)


# ---- what a file can hold --------------------------------------------------------------------------------------------


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    "ids",
    [
        [uuid.UUID(int=1), uuid.UUID(int=2)],
        [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
        [datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2)],
        [datetime.timedelta(1), datetime.timedelta(2)],
        [b"a", b"b"],
        [decimal.Decimal(1), decimal.Decimal(2)],
        [fractions.Fraction(1, 2), fractions.Fraction(1, 3)],
        [frozenset([1]), frozenset([2])],
        [1j, 2j],
        [(1, b"a"), (2, "b")],
        [((1, None),), ((2, 3),)],
        [(1, float("nan")), (2, 0.5)],
        [2**20_000, 1],
        [(np.datetime64("2026-01-01"), 1), ("x", 2)],
        [pathlib.Path("a"), pathlib.Path("b")],
        [pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02")],
        [ipaddress.ip_address("::1"), ipaddress.ip_address("::2")],
    ],
)
@pytest.mark.parametrize("name", ["users", "items"])
def test_ids_that_could_not_be_saved_are_refused_at_once(ids, name):
    columns = {"users": [0, 1], "items": [0, 1]} | {name: ids}
    with pytest.raises(TypeError, match=rf"{name}\[0\] must be a number, a .*, which cannot be saved .*str\(id\)"):
        Interactions.from_arrays(**columns)
    axis = {"users": "user_ids", "items": "item_ids"}[name]
    with pytest.raises(TypeError, match=rf"{axis}\[0\] must be a number, .*, which cannot be saved with a model"):
        Interactions.from_scipy(scipy.sparse.eye_array(2).tocsr(), **{axis: ids})


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2],
        [1.5, 2.0**50],
        [-1, 2**70],
        [0, 2**8000],
        [False, True],
        [Level.LOW, Level.HIGH],
        ["a", "b\0"],
        ["é", "\U0001f600"],
        [(1, "a"), (2, ("b", 3.5))],
        [np.int8(3), np.int8(4)],
        [np.str_("a"), np.str_("b")],
        np.array([b"a", b"b"]),
        np.array(["2026-01-01", "2026-01-02"], dtype="M8[D]"),
        np.array(["2026-01-01T00:00:00.000000001", "2026-01-02"], dtype="M8[ns]"),
        [np.datetime64("2026-01-01"), np.datetime64("2026-01-02")],
        np.array([1, 2], dtype="m8[s]"),
        np.array([1, 2], dtype=">i8"),
        np.array([1.5, 2], dtype=np.float16),
        np.array([True, False]),
        [1, "a"],
        [2.0**53 - 1, 3],
    ],
)
def test_ids_of_every_other_kind_come_back_from_a_file(tmp_path, ids):
    model = Popularity().fit(Interactions.from_arrays(ids, ids), key=Key.from_seed(0))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for name in ("user_ids", "item_ids"):
        ours, theirs = (getattr(m.interactions_, name) for m in (model, loaded))
        assert ours.dtype == theirs.dtype
        assert list(ours) == list(theirs)
    np.testing.assert_array_equal(loaded.score(ids, ids), model.score(ids, ids))


def test_a_file_states_the_source_of_the_items(tmp_path):
    data = Interactions.from_arrays([1, 2, 2], [1, 1, 2])
    for made in (data, data.top_items(1), Interactions.from_scipy(data.to_scipy())):
        Popularity().fit(made, key=Key.from_seed(0)).save(tmp_path / "model")
        assert load(tmp_path / "model").interactions_.catalogue == made.catalogue
    assert {data.catalogue, data.top_items(1).catalogue} == {"data", "counts"}


# ---- floats that hold no ids ----------------------------------------------------------------------------------------

WIDTHS = {"f2": 11, "f4": 24, "f8": 53}


CONTAINERS = {
    "array": np.asarray, "pandas": pd.Series, "polars": pl.Series, "arrow": pa.array, "index": pd.Index,
    "list": lambda ids: list(np.asarray(ids)), "objects": lambda ids: np.array(list(np.asarray(ids)), dtype=object),
}  # fmt: skip


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("sign", [1, -1])
def test_floats_that_may_represent_two_integers_are_no_ids(container, dtype, sign):
    if (container, dtype) == ("index", "f2"):
        pytest.skip("pandas has no index of half precision")
    first = 2 ** WIDTHS[dtype]
    exact, rounded = (CONTAINERS[container](np.array([1, sign * number], dtype=dtype)) for number in (first - 1, first))
    assert Interactions.from_arrays(exact, exact).user_ids.tolist() == sorted([1, sign * (first - 1)])
    data = Interactions.from_arrays([1, sign * first], [1, sign * first])
    message = (
        rf"\[1\] must be below 2\*\*{WIDTHS[dtype]}, where float{8 * int(dtype[1])} holds .*; read the column as int"
    )
    for refused in (
        lambda: Interactions.from_arrays(rounded, [1, 2]),
        lambda: Interactions.from_arrays([1, 2], rounded),
        lambda: Interactions.from_arrays([1, 2], [1, 2], item_ids=rounded, unlisted="drop"),
        lambda: Interactions.from_arrays([1, 2], [1, 2], user_ids=rounded, unlisted="drop"),
        lambda: Interactions.from_scipy(data.to_scipy(), user_ids=rounded),
        lambda: data.user_index(rounded),
        lambda: data.item_index(rounded),
        lambda: Popularity().fit(data).recommend(rounded),
        lambda: Popularity().fit(data).recommend([1], items=rounded),
        lambda: Popularity().fit(data).recommend([1], exclude=rounded),
        lambda: data.with_features(item_features={"item": rounded, "a": [1, 2]}),
    ):
        with pytest.raises(TypeError, match=message):
            refused()


def test_three_users_do_not_become_one():
    users = [1582218195625938945, 1582218195625938946, 1582218195625938947]
    assert Interactions.from_arrays(users, [1, 2, 3]).n_users == 3
    with pytest.raises(TypeError, match=r"users\[0\] must be below 2\*\*53"):
        Interactions.from_arrays(np.array(users).astype(float), [1, 2, 3])
    with pytest.raises(TypeError, match=r"users\[0\] must be below 2\*\*24"):
        Interactions.from_arrays(np.array([20000001, 20000002, 20000003], np.float32), [1, 2, 3])
    with pytest.raises(TypeError, match=r"users\[1\] must be below 2\*\*53, .*, got inf"):
        Interactions.from_arrays([1.0, float("inf")], [1, 2])


@pytest.mark.parametrize(
    "ids", [[1, 2.0**53], ["a", -(2.0**60)], [(1, 2.0**53), (1, 2)], [(1, (np.float32(2**24),)), 1]]
)
def test_such_floats_among_other_ids_and_in_tuples(ids):
    with pytest.raises(TypeError, match=r"items\[[01]\] must be below 2\*\*(53|24)"):
        Interactions.from_arrays([1, 2], ids)


def test_a_gap_makes_floats_in_pandas_and_nullable_integers_keep_them():
    gap = pd.DataFrame({"user": [2**53 + 1, None, 5], "item": [1, 2, 3]})
    with pytest.raises(TypeError, match=r"users\[0\] must be below 2\*\*53.*Int64 in pandas"):
        Interactions.from_dataframe(gap.dropna())
    complete_rows = pd.DataFrame({"user": pd.array([2**53 + 1, None, 5], dtype="Int64"), "item": [1, 2, 3]}).dropna()
    assert Interactions.from_dataframe(complete_rows).user_ids.tolist() == [5, 2**53 + 1]


WIDE = pl.Series([1, 2], dtype=pl.Int128)
NESTED = {
    "struct": pl.Series([{"a": 1}, {"a": 2}]),
    "list": pl.Series([[1], [2]]),
    "array": pl.Series([[1], [2]], dtype=pl.Array(pl.Int64, 1)),
    "struct of arrow": pa.array([{"a": 1}, {"a": 2}]),
    "list of arrow": pa.array([[1], [2]]),
    "large list of arrow": pa.array([[1], [2]], type=pa.large_list(pa.int64())),
}


@pytest.mark.parametrize("kind", ["wide", *NESTED])
def test_columns_that_hold_no_ids_are_refused_with_the_remedy(kind):
    column = WIDE if kind == "wide" else NESTED[kind]
    message = (
        "at most 64 bits, .* got Int128; cast it to text" if kind == "wide" else "must hold one id in each row, got"
    )
    library = pa.table if "arrow" in kind else pl.DataFrame
    for refused in (
        lambda: Interactions.from_arrays(column, [1, 2]),
        lambda: Interactions.from_arrays([1, 2], [1, 2], item_ids=column),
        lambda: Interactions.from_dataframe(library({"user": column, "item": [1, 2]})),
        lambda: Interactions.from_arrays([1, 2], [1, 2]).user_index(column),
    ):
        with pytest.raises(TypeError, match=message):
            refused()
