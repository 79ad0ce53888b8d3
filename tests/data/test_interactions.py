"""Interactions as they are made: against a dict of dicts, by their own laws, and all a caller can get wrong."""

import copy
import importlib
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from naive.data import interactions as naive
from support.interaction_case import assert_same, assert_well_formed, interactions, table_of

from fastfedrec import Interactions
from fastfedrec._kernels.data import interactions as _kernel
from fastfedrec.core.threads import default_threads
from fastfedrec.data import pairs as _pairs
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.pairs import sort_pairs

#: One kind of id a column: small and huge integers, strings with awkward characters, tuples, and all of them mixed.
ID_KINDS = {
    "small": st.integers(0, 5),
    "negative": st.integers(-3, 3),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "huge": st.sampled_from([-1, 2**53, 2**53 + 1, 2**63, 2**63 + 1, 2**64, 2**70]),
    "float": st.floats(1 - 2.0**53, 2.0**53 - 1),
    "text": st.text(alphabet=st.sampled_from(["a", "b", "\0", "é", "\U0001f600"]), max_size=3),
    "tuple": st.tuples(st.integers(0, 1), st.text(alphabet="xy", max_size=1)),
    "mixed": st.one_of(st.integers(0, 2), st.text(alphabet="ab", max_size=1), st.tuples(st.integers(0, 1))),
}


ids = st.sampled_from(sorted(ID_KINDS)).flatmap(lambda kind: st.lists(ID_KINDS[kind], max_size=25))
numbers = st.one_of(st.integers(-5, 5), st.floats(-1e30, 1e30, allow_subnormal=False))


@st.composite
def rows(draw):
    """users, items, values or None: columns of equal length."""
    users, items = draw(ids), draw(ids)
    n = min(len(users), len(items))
    values = draw(st.none() | st.lists(st.integers(-5, 5), min_size=n, max_size=n))
    values = values or draw(st.none() | st.lists(numbers, min_size=n, max_size=n))
    return users[:n], items[:n], values or None


# ---- oracle -----------------------------------------------------------------------------------------------------


@given(rows(), st.sampled_from(["sum", "mean", "first", "last", "max"]))
def test_from_arrays_equals_the_twin(given_rows, duplicates):
    users, items, values = given_rows
    data = Interactions.from_arrays(users, items, values, duplicates=duplicates)
    assert_well_formed(data)
    expected = naive.from_rows(users, items, values, duplicates)
    got = table_of(data)
    assert set(got) == set(expected)
    for user, row in expected.items():
        assert got[user] == pytest.approx(row, rel=1e-12, abs=1e-12 * max(map(abs, values or [0])))
    assert data.user_ids.tolist() == naive.in_order(users)
    assert data.item_ids.tolist() == naive.in_order(items)
    np.testing.assert_array_equal(data.global_user_ids, np.arange(data.n_users))
    np.testing.assert_array_equal(data.user_index(users), [naive.in_order(users).index(user) for user in users])
    np.testing.assert_array_equal(data.item_index(data.item_ids), np.arange(data.n_items))


@given(rows(), st.data(), st.sampled_from(["sum", "mean", "first", "last", "max"]))
def test_timestamps_follow_their_pair(given_rows, data, duplicates):
    users, items, values = given_rows
    times = data.draw(st.lists(st.integers(-(2**62), 2**62), min_size=len(users), max_size=len(users)))
    built = Interactions.from_arrays(users, items, values, times, duplicates=duplicates)
    expected = naive.newest(users, items, times, duplicates)
    user_of = np.repeat(np.arange(built.n_users), built.interactions_per_user())
    got = {
        (built.user_ids.tolist()[u], built.item_ids.tolist()[i]): int(time)
        for u, i, time in zip(user_of, built.indices, built.timestamps, strict=True)
    }
    assert got == expected


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), st.booleans(), st.booleans(),
    st.integers(1, 5),
)  # fmt: skip
def test_counting_sort_equals_lexsort_in_either_width_on_any_number_of_threads(pairs, wide_users, wide, n_threads):
    users, items = np.array(pairs).T
    order, scratch = (np.full((len(pairs), n), -1, dtype=np.int64 if wide else np.int32) for n in (1, 2))
    indptr = np.zeros(6, dtype=np.int64)
    moved = _kernel.sort_pairs(
        users.astype(np.int64 if wide_users else np.int32), items.astype(np.int32), order[:, 0], scratch, indptr, 6,
        n_threads,
    )  # fmt: skip
    expected = np.lexsort((items, users))
    assert indptr.tolist() == [0, *np.cumsum(np.bincount(users, minlength=5)).tolist()]
    assert moved == (expected != np.arange(len(pairs))).any()
    if moved:
        assert order[:, 0].tolist() == expected.tolist()


@given(st.lists(st.integers(0, 30)), st.sampled_from([np.int32, np.int64, np.uint32, np.uint64]), st.integers(1, 5))
def test_ids_are_marked_and_looked_up_on_any_number_of_threads(ids, dtype, n_threads):
    ids, present = np.array(ids, dtype=dtype), np.zeros(31, dtype=np.uint8)
    _kernel.mark_ids(ids, present, n_threads)
    assert np.flatnonzero(present).tolist() == sorted(set(ids.tolist()))
    rows, out = np.arange(31)[::-1].copy(), np.full(len(ids), -1)
    _kernel.look_up_ids(ids, rows, out, n_threads)
    assert out.tolist() == [30 - k for k in ids.tolist()]


@given(
    st.lists(st.integers(0, 20), max_size=30),
    st.sampled_from(["<f4", "<f8", "<i8", "<u4", ">f8", "<i2", "<f2", "M8[s]"]),
    st.sampled_from([np.int32, np.int64]), st.integers(1, 4),
)  # fmt: skip
def test_in_order_is_an_index_of_any_type(positions, dtype, index_dtype, n_threads):
    values, positions = np.arange(42).astype(dtype)[::2], np.array(positions, dtype=index_dtype)
    with pytest.MonkeyPatch.context() as patch, default_threads(n_threads):
        patch.setattr(_pairs, "_MIN_PAIRS", 1)
        got = _pairs.in_order(values, positions)
    np.testing.assert_array_equal(got, values[positions])
    assert got.dtype == values.dtype


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 3333, 4095, 4096, 4097, 5000, 8192, 8193, 9999])
def test_one_pair_out_of_order_is_seen_wherever_it_is(monkeypatch, at, n_threads):
    monkeypatch.setattr(_pairs, "_MIN_PAIRS", 1)
    users, items = np.divmod(np.arange(10_000, dtype=np.int32), 3)
    users += 2  # two without any before, and two after
    n_users = users[-1] + 3
    starts, order = sort_pairs(users, items, n_users, 3, n_threads=n_threads)
    assert order is None
    expected_starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=n_users))])
    np.testing.assert_array_equal(starts, expected_starts)
    swapped = np.arange(10_000)
    swapped[[at - 1, at]] = at, at - 1
    starts, order = sort_pairs(users[swapped], items[swapped], n_users, 3, n_threads=n_threads)
    np.testing.assert_array_equal(order, swapped)
    np.testing.assert_array_equal(starts, expected_starts)


# ---- invariants -------------------------------------------------------------------------------------------------


@given(interactions())
def test_scipy_round_trip(data):
    matrix = data.to_scipy()
    rebuilt = Interactions.from_scipy(matrix, data.user_ids, data.item_ids)
    assert_well_formed(rebuilt)
    assert table_of(rebuilt) == table_of(data)
    assert rebuilt.shape == data.shape
    matrix.data[:] = 9
    matrix.indices[:] = 0
    assert table_of(rebuilt) == table_of(data)


def test_from_scipy_sums_duplicates_and_keeps_zeros():
    positions = (np.array([0, 0, 1, 1]), np.array([2, 2, 1, 0]))
    data = Interactions.from_scipy(scipy.sparse.coo_array((np.array([1.5, 2, 0, 4]), positions), shape=(3, 4)))
    assert table_of(data) == {0: {2: 3.5}, 1: {0: 4.0, 1: 0.0}, 2: {}}
    assert data.positive().n_interactions == 2


@pytest.mark.parametrize(
    ("dtype", "values", "total"),
    [("u1", [200, 100], 300), ("i1", [100, 100], 200), (bool, [1, 1], 2), ("f4", [2**24, 1, 1], 2**24 + 2)],
)
@pytest.mark.parametrize("form", ["coo", "csr", "csc", "bsr"])
def test_narrow_types_neither_overflow_nor_round_in_the_sum(form, dtype, values, total):
    data, zeros = np.array(values, dtype=dtype), np.zeros(len(values), dtype=int)
    if form == "coo":
        matrix = scipy.sparse.coo_array((data, (zeros, zeros)), shape=(1, 1))
    else:
        data = data.reshape(-1, 1, 1) if form == "bsr" else data
        matrix = getattr(scipy.sparse, f"{form}_array")((data, zeros, np.array([0, len(values)])), shape=(1, 1))
    assert Interactions.from_scipy(matrix).values.tolist() == [total]


def test_values_take_the_narrowest_type_that_is_exact():
    def values(of):
        return Interactions.from_arrays(range(len(of)), range(len(of)), of).values

    assert values([1, 1]) is None
    assert values([1.0, 2.5]).dtype == np.float32
    assert values([1.0, 0.1]).dtype == np.float64
    assert values([1.0, 1e200]).dtype == np.float64
    assert values(np.array([1, 3], dtype=np.float16)).tolist() == [1, 3]
    assert values([True, False]).tolist() == [1, 0]
    assert values([Decimal("4.5"), Fraction(1, 2), 2]).tolist() == [4.5, 0.5, 2]
    assert values(np.array([2**60, 1], dtype=object)).tolist() == [2.0**60, 1]


def test_features_replace_and_keep():
    data = Interactions.from_arrays([0, 1], ["a", "b"])
    first = data.with_features(user_features={"age": [30, 40]}, item_features={"genre": [("x", "y"), ("z",)]})
    second = first.with_features(user_features={"city": np.array(["p", "q"])})
    assert list(second.user_features) == ["city"]
    assert second.item_features["genre"].tolist() == [("x", "y"), ("z",)]
    assert data.user_features == {}


def test_writing_to_the_input_does_not_change_interactions():
    users, items, values, times = np.array([0, 1]), np.array([5, 6]), np.array([2.0, 3.0]), np.array([1, 2])
    matrix = scipy.sparse.csr_array(np.array([[2.0, 0], [0, 3]], dtype=np.float64))
    user_ids, item_ids, column = np.array([10, 11]), np.array(["a", "b"], dtype=object), np.array([1, 2])
    counts, columns = Interactions.from_arrays(users, items), np.array([0, 1], dtype=np.int32)
    objects = [
        Interactions.from_arrays(users, items, values, times),
        Interactions.from_scipy(matrix, user_ids, item_ids),
        counts.with_features(user_features={"of": column}, item_features={"of": column}),
        Interactions(np.array([0, 1, 2]), columns, None, None, user_ids, item_ids, users),
    ]
    before = copy.deepcopy(objects)
    for array in (users, items, values, times, matrix.data, matrix.indices, user_ids, column, columns):
        array[:] = array[::-1].copy()
    item_ids[0] = "changed"
    for now, then in zip(objects, before, strict=True):
        assert_same(now, then)


def test_a_read_only_view_of_writable_memory_is_copied():
    ids = np.array([10, 11])
    view = ids[:]
    view.flags.writeable = False
    data = Interactions.from_scipy(scipy.sparse.eye_array(2).tocsr(), user_ids=view)
    ids[0] = 99
    assert data.user_ids.tolist() == [10, 11]


@given(interactions())
def test_arrays_refuse_writes_also_after_a_pickle(data):
    for made in (data, pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert_same(made, data)
        assert_well_formed(made)
        with pytest.raises(ValueError, match="read-only"):
            made.indptr[0] = 1


def test_strided_and_read_only_input():
    users, items, values = np.arange(20)[::2], np.arange(40)[::4], np.arange(10.0)[::-1]
    for array in (users, items, values):
        array.flags.writeable = False
    data = Interactions.from_arrays(users, items, values)
    assert table_of(data) == naive.from_rows(users.tolist(), items.tolist(), values)


# Polars is imported by the tests that use it, because ThreadSanitizer ends a process that imports it.
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_from_dataframe(library):
    frame = importlib.import_module(library).DataFrame(
        {"who": ["b", "a", "b"], "what": [3, 3, 1], "stars": [4, 5, 2], "when": [30, 10, 20], "else": [0, 0, 0]}
    )
    data = Interactions.from_dataframe(frame, user="who", item="what", value="stars", timestamp="when")
    assert table_of(data) == {"a": {3: 5.0}, "b": {1: 2.0, 3: 4.0}}
    assert data.timestamps.tolist() == [10, 20, 30]
    counts = Interactions.from_dataframe(frame, user="who", item="what")
    assert counts.values is None
    assert counts.timestamps is None


def test_from_dataframe_takes_nullable_and_date_columns():
    import polars as pl

    when = pd.to_datetime(["2020-01-01", "1970-01-02"])
    frame = pd.DataFrame({"user": pd.array([1, 2], "Int64"), "item": pd.Categorical(["x", "y"]), "when": when})
    data = Interactions.from_dataframe(frame, timestamp="when")
    assert data.user_ids.tolist() == [1, 2]
    assert data.item_ids.tolist() == ["x", "y"]
    assert data.timestamps.tolist() == [1577836800 * 10**9, 86400 * 10**9]
    polars = pl.DataFrame({"user": [1, 2], "item": ["x", "y"], "when": pl.Series(when.to_numpy())})
    assert_same(Interactions.from_dataframe(polars, timestamp="when"), data)


def test_a_date_that_is_not_known_is_missing():
    times = np.array(["1970-01-02", "NaT"], dtype="M8[ns]")
    data = Interactions.from_arrays([0, 1], [0, 1], timestamps=times, timestamp_unit="s")
    assert data.timestamps.tolist() == [86400, MISSING_TIMESTAMP]
    merged = Interactions.from_arrays([0, 0], [1, 1], timestamps=times, timestamp_unit="s")
    assert merged.timestamps.tolist() == [86400]


def test_repr_states_the_shape_and_fields():
    assert repr(Interactions.from_arrays([0] * 1200, range(1200))) == (
        "<Interactions: 1 users x 1,200 items, 1,200 interactions>"
    )
    assert repr(Interactions.from_arrays([0], [0], [2])).endswith("1 interactions with values>")
