"""Tests of the conversion in every `fit`: matrices, arrays and frames become the same `Interactions`."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.interaction_case import assert_same

from fastfedrec import Interactions, Key
from fastfedrec.compute import als, clustering, nmf, ranking, row_sums, sgd
from fastfedrec.data.conversion import as_interactions, borrow_rows
from fastfedrec.data.remote_users import RemoteUsers

DENSE = np.array([[1.0, 0, -2], [0, 0, 0], [0, 3, 0.5]])
COLUMNS = {
    "user": [2, 0, 2, 0],
    "item": ["b", "a", "c", "c"],
    "value": [3.0, 1.0, 0.5, -2.0],
    "timestamp": [4, 3, 2, 1],
}


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("family", ["matrix", "array"])
def test_a_matrix_is_as_from_scipy(kind, family):
    matrix = getattr(scipy.sparse, f"{kind}_{family}")(DENSE)
    data = as_interactions("interactions", matrix)
    assert_same(data, Interactions.from_scipy(scipy.sparse.csr_array(DENSE)))
    assert data.catalogue == "public"


FORMATS = ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"]
PADDED = {"bsr", "dia"}  # these formats store zeros that fill blocks and diagonals


@settings(max_examples=30)
@given(
    dense=arrays(
        np.float64, st.tuples(st.integers(1, 3), st.integers(1, 3)), elements=st.sampled_from([0.0, -1.0, 2.5])
    ),
    block=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_rows_do_not_depend_on_the_format_of_a_matrix(dense, block):
    dense = np.kron(dense, np.eye(*block))  # its blocks are not full
    expected = as_interactions("rows", scipy.sparse.csr_array(dense))
    for kind in FORMATS:
        matrix = getattr(scipy.sparse, f"{kind}_array")(dense, **({"blocksize": block} if kind == "bsr" else {}))
        before = matrix.copy()
        assert_same(as_interactions("rows", matrix), expected)
        rows = borrow_rows("rows", matrix)
        for field in ("indptr", "indices", "values"):
            np.testing.assert_array_equal(getattr(rows, field), getattr(expected, field))
        assert matrix.nnz == before.nnz  # the caller's matrix keeps its zeros


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("take", [as_interactions, borrow_rows, lambda _, matrix: Interactions.from_scipy(matrix)])
def test_a_stored_zero_is_an_entry_unless_it_fills_a_block_or_a_diagonal(kind, take):
    entries = scipy.sparse.coo_array(([5.0, 0.0, 4.0, 3.0], ([0, 0, 1, 1], [0, 2, 1, 3])), shape=(2, 4))
    data = take("rows", entries.asformat(kind))
    assert data.indices.tolist() == ([0, 1, 3] if kind in PADDED else [0, 2, 1, 3])


SCORES = np.array([[1.0, 2.0, 3.0, 4.0]] * 2)
KERNELS = {
    "top_k": lambda rows: ranking.top_k(SCORES, 2, seen=rows),
    "recommend_factors": lambda rows: ranking.recommend_factors(np.ones((2, 1)), SCORES[:1].T.copy(), 2, seen=rows),
    "sample_unseen": lambda rows: ranking.sample_unseen(rows, np.arange(2), 1, purpose="x", key=Key.from_seed(1)),
    "fit_factors": lambda rows: sgd.fit_factors(rows, n_factors=2, n_epochs=1, key=Key.from_seed(1)).mean,
    "fit_nmf": lambda rows: nmf.fit_nmf(rows, 2, regularization=0.1, key=Key.from_seed(1)).item_factors,
    "solve_users": lambda rows: als.solve_users(rows, np.eye(4, 2), regularization=1.0, confidence_weight=1.0),
    "kmeans": lambda rows: clustering.kmeans(rows, 2, key=Key.from_seed(1)).centers,
    "assign_rows": lambda rows: clustering.assign_rows(rows, np.eye(4)),
    "sum_rows": lambda rows: row_sums.sum_rows(rows, np.eye(4)),
    "the matrix of sum_rows": lambda rows: row_sums.sum_rows(np.ones((3, 2)), rows),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", FORMATS)
def test_no_kernel_takes_the_fill_of_a_block_as_an_entry(kernel, kind):
    matrix = scipy.sparse.csr_array(np.array([[5.0, 0, 0, 0], [0, 4, 0, 3]]))
    given = matrix.tobsr((2, 2)) if kind == "bsr" else matrix.asformat(kind)
    np.testing.assert_equal(KERNELS[kernel](given), KERNELS[kernel](matrix))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_a_frame_is_as_from_dataframe_with_the_columns_that_it_has(library):
    data = as_interactions("interactions", library(COLUMNS | {"other": [0, 0, 0, 0]}))
    expected = Interactions.from_arrays(*(COLUMNS[name] for name in ("user", "item", "value", "timestamp")))
    assert_same(data, expected)
    assert data.catalogue == "data"
    pairs = as_interactions("interactions", library({name: COLUMNS[name] for name in ("user", "item")}))
    assert pairs.values is None
    assert pairs.timestamps is None


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_ratings_are_values(library):
    columns = {("rating" if name == "value" else name): column for name, column in COLUMNS.items()}
    assert_same(
        as_interactions("interactions", library(columns)), as_interactions("interactions", pd.DataFrame(COLUMNS))
    )
    with pytest.raises(KeyError, match=r"value must be one column, got \[.*'rating'.*\]; name one"):
        as_interactions("interactions", library(columns | {"value": COLUMNS["value"]}))


@pytest.mark.parametrize("column", ["user", "item", "value", "timestamp"])
@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt128])
def test_integers_of_128_bits_are_refused_by_the_name_of_their_column(column, dtype):
    frame = pl.DataFrame(COLUMNS)
    numbers = pl.DataFrame({name: pl.Series(range(1, len(frame) + 1), dtype=pl.Int64) for name in COLUMNS})
    assert as_interactions("interactions", numbers).n_interactions == len(frame)  # negative control
    wide, match = numbers.with_columns(pl.col(column).cast(dtype)), f"{column}.*({dtype}|128 to NumPy)"
    # A column that has only a usual name of times may hold something else, so it is skipped.
    skips = column == "timestamp"
    with pytest.warns(UserWarning, match=match) if skips else pytest.raises(TypeError, match=match):
        as_interactions("interactions", wide)


def test_interactions_are_returned_as_they_are():
    for data in (Interactions.from_arrays([1], [2]), RemoteUsers.numbered(3, np.arange(2))):
        assert as_interactions("interactions", data) is data


def test_known_items_are_those_of_a_frame_or_a_matrix_of_equal_width():
    items = np.array(["a", "b", "c", "d"])
    frame = as_interactions("interactions", pd.DataFrame(COLUMNS), item_ids=items)
    assert frame.item_ids.tolist() == ["a", "b", "c", "d"]
    assert frame.catalogue == "public"
    matrix = scipy.sparse.csr_array((2, 4))
    assert as_interactions("interactions", matrix, item_ids=items).item_ids.tolist() == ["a", "b", "c", "d"]
    assert as_interactions("interactions", matrix[:, :3], item_ids=items).item_ids.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"items\[0\] must be in item_ids, got 'b'"):
        as_interactions("interactions", pd.DataFrame(COLUMNS), item_ids=items[[0, 2]])


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (DENSE, TypeError, "must be Interactions, a SciPy .* got ndarray; make a matrix sparse with scipy.sparse.csr"),
        ([[1, 2]], TypeError, "must be Interactions, a SciPy .* got list; see Interactions.from_arrays"),
        (None, TypeError, "must be Interactions, a SciPy .* got NoneType"),
        (pd.Series([1]), TypeError, "must be Interactions, a SciPy .* got Series"),
        (scipy.sparse.coo_array(np.ones(3)), ValueError, r"data must have 2 dimensions, got shape \(3,\)"),
        (scipy.sparse.csr_array([[np.nan]]), ValueError, r"data.data must be finite, got nan"),
        (pl.DataFrame({"who": [1], "item": [1]}), KeyError, r"data must have the columns 'user' and 'item', or .* "
         r"the frame has \['who', 'item'\]; rename them, or use Interactions.from_dataframe"),
        (pd.DataFrame({"user": [1, None], "item": [1, 2]}), ValueError, r"column 'user' \(user\) has 1 missing"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_argument_and_the_remedy(given, error, message):
    with pytest.raises(error, match=message):
        as_interactions("data", given)


def test_rows_that_lead_out_of_a_matrix_are_refused_by_the_name_of_the_argument():
    matrix = scipy.sparse.csr_array(DENSE)
    matrix.indices[0] = 9
    with pytest.raises(ValueError, match=r"interactions.indices must be in \[0, 3\), got 9 in row 0"):
        as_interactions("interactions", matrix)
