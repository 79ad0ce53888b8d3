from functools import cache

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from naive.compute import row_sums as naive

from fastfedrec import Interactions, Key, datasets, hardware
from fastfedrec.compute.row_sums import sum_rows


@cache
def interactions(n_users=30, n_items=70, seed=1):
    """With values, and a first and a last user without items."""
    data = datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))
    users = np.repeat(np.arange(n_users), data.interactions_per_user())
    matrix = data.keep_interactions((users != 0) & (users != n_users - 1)).to_scipy()
    matrix.data[:] = np.random.default_rng(seed).standard_normal(matrix.nnz).astype(np.float32) ** 2
    return Interactions.from_scipy(matrix)


def matrix_of(n_items, n_columns, seed=2):
    return np.random.default_rng(seed).standard_normal((n_items, n_columns))


def by_hand(data, matrix, weights=None):
    weights = data.values_or_ones() if weights is None else weights
    return naive.sum_rows(data.indptr.tolist(), data.indices.tolist(), weights.tolist(), np.asarray(matrix).tolist())


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("n_columns", [1, 2, 7, 8, 31, 32, 33, 70, 100])
def test_every_level_equals_the_definition_to_the_last_bit(instruction_set, n_columns):
    data, matrix = interactions(), matrix_of(70, n_columns)
    few = data.select_users(np.arange(3))  # fewer entries than items: columns are read where they are
    assert 0 < few.n_interactions < 70 < data.n_interactions
    with hardware.use_instruction_set(instruction_set):
        assert sum_rows(data, matrix).tolist() == by_hand(data, matrix)
        assert sum_rows(few, matrix).tolist() == by_hand(few, matrix)


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_sparse_equals_dense_and_scipy(n_kept, n_columns, seed):
    data = interactions(12, 40, seed=seed % 7)
    rng = np.random.default_rng(seed)
    sparse = scipy.sparse.random_array((40, n_columns), density=n_kept / 60, format="csr", random_state=rng)
    result = sum_rows(data, sparse)
    weights = scipy.sparse.csr_array((data.values_or_ones(), data.indices, data.indptr), shape=data.shape)
    np.testing.assert_array_equal(result, sum_rows(data, sparse.toarray()))
    np.testing.assert_array_equal(result, (weights @ sparse).toarray())


def test_weights_take_the_place_of_values():
    data, matrix = interactions(), matrix_of(70, 9)
    weights = np.random.default_rng(3).standard_normal(data.n_interactions)
    assert sum_rows(data, matrix, weights=weights).tolist() == by_hand(data, matrix, weights)
    assert sum_rows(data.binarize(), matrix).tolist() == by_hand(data.binarize(), matrix)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_row_has_the_same_bits_whoever_else_is_asked_for():
    data = interactions()
    for matrix in (matrix_of(70, 50), scipy.sparse.csc_array(matrix_of(70, 50))):
        combined = sum_rows(data, matrix)
        for user in range(data.n_users):
            separate = sum_rows(data.select_users(np.array([user])), matrix)
            np.testing.assert_array_equal(separate[0], combined[user])


def test_empty_shapes():
    data = interactions()
    no_users, nothing = data.select_users(np.array([], dtype=int)), data.select_users(np.array([0]))
    for kind in (np.asarray, scipy.sparse.csr_array):
        assert sum_rows(no_users, kind(np.ones((70, 5)))).shape == (0, 5)
        assert sum_rows(nothing, kind(np.ones((70, 5)))).tolist() == [[0.0] * 5]
        assert sum_rows(data, kind(np.ones((70, 0)))).shape == (30, 0)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_threads_change_no_bit(kind, monkeypatch):
    monkeypatch.setattr("fastfedrec.compute.row_sums._MIN_PRODUCTS", 1)
    data, matrix = interactions(200, 70), kind(matrix_of(70, 90))
    np.testing.assert_array_equal(sum_rows(data, matrix, n_threads=1), sum_rows(data, matrix, n_threads=4))


@pytest.mark.parametrize(("n_users", "expected"), [(1, 1), (200, 4)])
def test_few_products_get_one_thread(n_users, expected, monkeypatch):
    """A request for one user must not wait for a team of threads."""
    used = []
    monkeypatch.setattr("fastfedrec.compute.row_sums._kernel.sum_dense_rows", lambda *given: used.append(given[-1]))
    sum_rows(np.ones((n_users, 70)), np.ones((70, 90)), n_threads=4)
    assert used == [expected]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"interactions": 3}, TypeError, "interactions"),
        ({"matrix": np.ones((5, 2))}, ValueError, r"matrix must have shape \(70, 'any'\)"),
        (
            {"matrix": scipy.sparse.csr_array(np.ones((5, 2)))},
            ValueError,
            "matrix must have 70 rows, one for each item",
        ),
        ({"matrix": np.ones(70)}, ValueError, "matrix must have 2 dimensions"),
        ({"weights": np.ones(3)}, ValueError, "weights must have shape"),
        ({"weights": np.ones(3, dtype=np.float32)}, TypeError, "weights must be an array of float64"),
        ({"n_threads": -1}, ValueError, "n_threads"),
    ],
)
def test_bad_inputs(arguments, error, message):
    with pytest.raises(error, match=message):
        sum_rows(**({"interactions": interactions(), "matrix": np.ones((70, 2))} | arguments))
