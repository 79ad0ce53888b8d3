"""Tests of inputs that the constructors of interactions refuse or warn of."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from fastfedrec import Interactions
from fastfedrec.data.csr import check_item_count

# ---- bad inputs -------------------------------------------------------------------------------------------------


nan = float("nan")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 2], [1]), ValueError, r"items must have the length of users \(2\), got 1"),
        (([1, None], [1, 1]), ValueError, r"users\[1\] is missing \(None\); drop the row"),
        (([1, nan], [1, 1]), ValueError, r"users\[1\] is missing \(nan\)"),
        (([1, 1], np.array([1, nan])), ValueError, r"items\[1\] is missing \(nan\)"),
        (([1, 1], [pd.NA, 1]), ValueError, r"items\[0\] is missing \(<NA>\)"),
        (([1], [pd.NaT]), ValueError, r"items\[0\] is missing \(NaT\)"),
        ((np.array(["NaT"], dtype="M8[s]"), [1]), ValueError, r"users\[0\] is missing \(NaT\)"),
        (([[1], [2]], [1, 1]), TypeError, r"users\[0\] must be hashable, got list; convert it to a tuple"),
        (([np.zeros(2)], [1]), TypeError, r"users\[0\] must be hashable, got ndarray"),
        (([1, (1, [2])], [1, 1]), TypeError, r"users\[1\] .* a tuple with other parts; convert its parts to"),
        ((np.zeros((2, 2)), [1, 1]), ValueError, r"users must have 1 dimension, got shape \(2, 2\)"),
        ((np.zeros(2, dtype=complex), [1, 1]), TypeError, "users must hold hashable ids, got dtype complex128"),
        (("ab", [1, 1]), TypeError, "users must be a sequence of ids, got str"),
        (((i for i in range(2)), [1, 1]), TypeError, "users must be a sequence of ids, got generator"),
        (([1, 2], [1, 1], [1, nan]), ValueError, r"values must be finite, got nan at \(1,\)"),
        (([1, 2], [1, 1], [1, np.inf]), ValueError, r"values must be finite, got inf at \(1,\)"),
        (([1, 2], [1, 1], [1]), ValueError, r"values must have shape \(2,\), got \(1,\)"),
        (([1], [1], ["x"]), TypeError, "values must be numbers, got the text 'x'"),
        (
            ([1, 2], [1, 1], [1, 2**70 + 1]),
            TypeError,
            r"values\[1\] must be a number that float64 represents exactly, got 11",
        ),
        (
            ([1, 2], [1, 1], [10**400, 1]),
            TypeError,
            r"values\[0\] must be a number that float64 represents exactly, got 1000",
        ),
        (([1, 2], [1, 1], [0.5, Fraction(10**400)]), TypeError, r"values\[1\] .* float64 represents exactly"),
        (([1], [1], [Decimal(2**53 + 1)]), TypeError, r"values\[0\] .* represents exactly, got Decimal\('90071"),
        (([1], [1], [Fraction(2**53 + 1)]), TypeError, r"values\[0\] .* represents exactly, got 9007199254740993"),
        (([1, 2], [1, 1], [0, Decimal("1e-400")]), TypeError, r"values\[1\] .* exactly, got Decimal\('1E-400"),
        (([1], [1], pd.Series(pa.array([Decimal(2**53 + 1)]))), TypeError, r"values\[0\] .* represents exactly, got"),
        (([1, 2], [1, 1], [1, None]), ValueError, r"values\[1\] must be a number, got None; drop the row"),
        (([1, 2], [1, 1], [Decimal(1), "2"]), TypeError, "values must be numbers, got the text '2'"),
        (([1, 2], [1, 1], [Decimal(1), Decimal("nan")]), ValueError, r"values must be finite, got nan at \(1,\)"),
        (([1, 2], [1, 1], np.array([True, 2], dtype=object)), TypeError, "values must be an array of float32"),
        (([1], [1], None, [1.5]), TypeError, "timestamps must be whole numbers or dates, got 1.5"),
        (([1], [1], None, [2.0**63]), TypeError, r"timestamps\[0\] must be below 2\*\*53, .* got 9\.2"),
        (([1], [1], None, [2**64 - 1]), ValueError, r"timestamps\[0\] must be below 2\*\*63, got 18446744073709551615"),
        (([1], [1], None, [1, 2]), ValueError, r"timestamps must have shape \(1,\), got \(2,\)"),
    ],
)
def test_from_arrays_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        Interactions.from_arrays(*arguments)


def test_duplicates_are_refused_or_warned_of():
    with pytest.raises(ValueError, match="1 rows repeat a user-item pair, the first user 'u' and item 5; choose"):
        Interactions.from_arrays(["u", "u"], np.array([5, 5]), duplicates="error")
    with pytest.raises(ValueError, match=r"duplicates must be one of 'sum', 'mean', .*, got 'min'"):
        Interactions.from_arrays([1, 2], [1, 2], duplicates="min")
    with pytest.warns(UserWarning, match="1 rows repeat a user-item pair and their values were summed") as caught:
        data = Interactions.from_arrays([1, 1], [1, 1], [2, 3])
    assert data.values.tolist() == [5]
    assert caught[0].filename == __file__
    counts = Interactions.from_arrays([1, 1], [1, 1])  # no warning, which would be an error
    assert counts.values.tolist() == [2]
    with pytest.raises(ValueError, match="values of a repeated user-item pair must have a finite sum"):
        Interactions.from_arrays([1, 1], [1, 1], [1e308, 1e308], duplicates="sum")


@pytest.mark.parametrize(
    ("matrix", "options", "error", "message"),
    [
        (np.eye(2), {}, TypeError, "matrix must be a SciPy sparse matrix, got ndarray; make a matrix sparse"),
        (scipy.sparse.coo_array(np.ones(3)), {}, ValueError, r"matrix must have 2 dimensions, got shape \(3,\)"),
        (scipy.sparse.csr_array([[-np.inf]]), {}, ValueError, "matrix.data must be finite, got -inf"),
        (scipy.sparse.csr_array([[nan]]), {}, ValueError, "matrix.data must be finite, got nan"),
        (scipy.sparse.csr_array([[1j]]), {}, TypeError, "matrix.data must be an array of float32 or float64"),
        (scipy.sparse.eye_array(2), {"user_ids": [1]}, ValueError, "user_ids must have 2 entries, .* got 1"),
        (scipy.sparse.eye_array(2), {"item_ids": ["a", "a"]}, ValueError, "item_ids must be distinct, got 1 repeated"),
        (scipy.sparse.eye_array(2), {"user_ids": [1, None]}, ValueError, r"user_ids\[1\] is missing"),
        (scipy.sparse.csr_array((1, 2**31)), {}, ValueError, "number of items must be at most 2147483647, got"),
    ],
)
def test_from_scipy_refuses(matrix, options, error, message):
    with pytest.raises(error, match=message):
        Interactions.from_scipy(matrix, **options)


def test_the_maximum_number_of_items():
    check_item_count(2**31 - 1)
    with pytest.raises(ValueError, match="drop or hash rare items"):
        check_item_count(2**31)


@pytest.mark.parametrize("library", [pd, pl])
def test_from_dataframe_refuses(library):
    frame = library.DataFrame({"user": ["a", None], "item": [1, 2], "value": [1.0, None], "id": [3, 4]})
    with pytest.raises(KeyError, match=r"user='person' is not a column; the frame has \['user', 'item', 'value', 'id'"):
        Interactions.from_dataframe(frame, user="person")
    with pytest.raises(
        ValueError, match=r"column 'user' \(user\) has 1 missing entries, the first at position 1; drop"
    ):
        Interactions.from_dataframe(frame)
    with pytest.raises(KeyError, match="item must be given, because no column of the frame"):
        Interactions.from_dataframe(frame, user="item")
    with pytest.raises(ValueError, match=r"column 'value' \(value\) has 1 missing entries"):
        Interactions.from_dataframe(frame, user="id", item="item", value="value")
    for options in ({"item": "item"}, {"item": "user", "value": "item"}, {"item": "user", "timestamp": "item"}):
        with pytest.raises(ValueError, match=r"user, item.* must be different columns, got \['item', .*; name each"):
            Interactions.from_dataframe(frame, user="item", **options)
    with pytest.raises(TypeError, match="frame must be a pandas or polars frame, or a pyarrow Table, got list"):
        Interactions.from_dataframe([1, 2])


def test_tables_that_are_no_frame_are_not_shown():
    arrow = pytest.importorskip("pyarrow").table({"user": ["secret"], "item": [1]})
    for table, error, message in (
        (
            pl.LazyFrame({"user": ["secret"], "item": [1]}),
            KeyError,
            r"user='who' is not a column; the frame has \['user'",
        ),
        (arrow, KeyError, r"user='who' is not a column; the frame has \['user', 'item'\]"),
        (
            pd.DataFrame([["secret", 2, 3]], columns=["who", "item", "item"]),
            KeyError,
            "column 'item' must occur once among",
        ),
    ):
        with pytest.raises(error, match=message) as caught:
            Interactions.from_dataframe(table, user="who")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({1, 2}, TypeError, "must be ordered, got a set; pass a list, such as sorted"),
        (frozenset([1, 2]), TypeError, "must be ordered, got a frozenset; pass a list"),
        (pd.DataFrame({"id": [1, 2]}), TypeError, "must be one column, got a DataFrame; take the column by its name"),
        (pl.DataFrame({"id": [1, 2]}), TypeError, "must be one column, got a DataFrame; take the column by its name"),
        (np.array([[1], [2]]), ValueError, r"must have 1 dimension, got shape \(2, 1\)"),
    ],
)
def test_ids_are_one_column_in_an_order_everywhere(wrong, error, message):
    data = Interactions.from_arrays([1, 2], [1, 2])
    matrix, build = data.to_scipy(), Interactions.from_scipy
    for call in (
        lambda: Interactions.from_arrays(wrong, [1, 2]), lambda: Interactions.from_arrays([1, 2], wrong),
        lambda: Interactions.from_arrays([1, 2], [1, 2], user_ids=wrong),
        lambda: Interactions.from_arrays([1, 2], [1, 2], item_ids=wrong),
        lambda: build(matrix, user_ids=wrong), lambda: build(matrix, item_ids=wrong),
        lambda: data.user_index(wrong), lambda: data.item_index(wrong),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("wrong", ["ab", {"a", "b"}, None, 5, b"ab"])
def test_features_are_columns_in_an_order(wrong):
    data = Interactions.from_arrays([1, 2], [1, 2])
    with pytest.raises(TypeError, match=r"item_features\['e'\] must be an ordered column, got \w+; pass a list"):
        data.with_features(item_features={"e": wrong})
    with pytest.raises(TypeError, match=r"item_features must be named by strings, got 1 \(int\)"):
        data.with_features(item_features={1: [1, 2]})
    with pytest.raises(TypeError, match=r"item_features\['e'\] must be dense, got csr_array; use its toarray\(\)"):
        data.with_features(item_features={"item": [1, 2], "e": scipy.sparse.csr_array(np.eye(2))})
    frame = pd.DataFrame({"e": [3, 4]})
    assert data.with_features(item_features=frame).item_features["e"].tolist() == [3, 4]


def test_nan_in_a_polars_value_column_is_refused_too():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "value": [1.0, nan]})
    with pytest.raises(ValueError, match="must be finite, got nan"):
        Interactions.from_dataframe(frame, value="value")
