"""Inputs of the kernels' functions: matrices of any layout, interactions, and arrays of any library on the CPU."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from support.array_kinds import Converted, Exported, OnGPU, WithGradient
from support.data import of_dense

from fastfedrec import Key, als, clustering, gru, hadamard, nmf, ranking, row_sums, sgd, two_tower
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.core.arrays import check_rows
from fastfedrec.core.check import check_array, plain_array
from fastfedrec.data.conversion import borrow_rows
from fastfedrec.data.features import Features

KEY = Key.from_seed(1)
RNG = np.random.default_rng(2)
DENSE = np.where(RNG.random((30, 12)) < 0.4, RNG.integers(1, 6, (30, 12)), 0).astype(np.float32)
DATA = of_dense(DENSE)
FACTORS = RNG.normal(size=(12, 4)).astype(np.float32)
USERS = RNG.normal(size=(30, 4)).astype(np.float32)

#: Functions of rows of users x items, with their results as arrays.
OF_ROWS = {
    "als.solve_users": lambda x: als.solve_users(
        x, FACTORS, regularization=0.1, confidence_weight=1.0, use_values=True
    ),
    "als.solve_users cg": lambda x: als.solve_users(
        x, FACTORS, regularization=0.1, confidence_weight=1.0, use_values=True, solver="cg"
    ),
    "als.solve_own_users": lambda x: als.solve_own_users(x, FACTORS, regularization=0.1, confidence_weight=1.0),
    "row_sums.sum_rows": lambda x: row_sums.sum_rows(x, FACTORS),
    "ranking.sample_unseen": lambda x: ranking.sample_unseen(x, np.arange(30), 3, key=KEY, purpose="t")[0],
    "ranking.top_k": lambda x: ranking.top_k(USERS @ FACTORS.T, 5, seen=x)[0],
    "ranking.recommend_factors": lambda x: ranking.recommend_factors(USERS, FACTORS, 5, seen=x)[0],
    "sgd.fit_factors": lambda x: sgd.fit_factors(x, n_epochs=2, key=KEY).item_factors,
    "sgd.fit_factors validation": lambda x: sgd.fit_factors(x, n_epochs=2, key=KEY, validation=CSR).validation_losses,
    "client_examples": lambda x: draw_examples(x, Events.from_interactions(x), np.arange(30), 2, key=KEY).items,
}
#: Functions for which a missing entry is unobserved or 0, and every entry of a dense array is an entry.
OF_TABLES = {
    "nmf.fit_nmf": lambda x: nmf.fit_nmf(x, 3, regularization=0.1, key=KEY).item_factors,
    "nmf.solve_rows_nonnegative": lambda x: nmf.solve_rows_nonnegative(x, abs(FACTORS), regularization=0.1),
    "clustering.kmeans": lambda x: clustering.kmeans(x, 4, key=KEY).centers,
    "clustering.assign_rows": lambda x: clustering.assign_rows(x, DENSE[:5])[1],
}


def shuffled(matrix):
    """The same with the entries of each row in another order."""
    order = np.concatenate([RNG.permutation(np.arange(a, b)) for a, b in np.lib.stride_tricks.sliding_window_view(
        matrix.indptr, 2)])  # fmt: skip
    return scipy.sparse.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), shape=matrix.shape)


def doubled(matrix):
    """The same in COO, with each value in two parts."""
    coo = matrix.tocoo()
    halves = np.concatenate([coo.data - 0.5, np.full(coo.nnz, 0.5, dtype=coo.dtype)])
    return scipy.sparse.coo_array((halves, (np.tile(coo.row, 2), np.tile(coo.col, 2))), shape=matrix.shape)


def wide(matrix):
    matrix = scipy.sparse.csr_matrix(matrix)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def with_room(matrix):
    """The same with room behind the last row, as SciPy leaves it."""
    matrix = scipy.sparse.csr_array(matrix, copy=True)
    matrix.indices, matrix.data = (
        np.append(matrix.indices, [99, 99]).astype("i4"),
        np.append(matrix.data, [np.nan, 7]).astype("f4"),
    )
    return matrix


CSR = scipy.sparse.csr_array(DENSE)
MATRICES = {
    "csr array": CSR, "csr matrix": scipy.sparse.csr_matrix(CSR), "csc": CSR.tocsc(), "coo": CSR.tocoo(),
    "coo matrix": scipy.sparse.coo_matrix(CSR), "64 bits": wide(CSR), "shuffled": shuffled(CSR), "twice": doubled(CSR),
    "integers": CSR.astype(np.int8), "float64": CSR.astype(np.float64), "with room": with_room(CSR),
}  # fmt: skip
ARRAYS = {"array": DENSE, "fortran": np.asfortranarray(DENSE), "dlpack": Exported(DENSE), "__array__": Converted(DENSE)}


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OF_ROWS, *OF_TABLES])
@pytest.mark.parametrize("layout", MATRICES)
def test_a_matrix_of_any_layout_is_as_interactions(name, layout):
    function = (OF_ROWS | OF_TABLES)[name]
    got, expected = function(MATRICES[layout]), function(DATA)
    if got.dtype == expected.dtype:
        np.testing.assert_array_equal(got, expected)
    else:  # a matrix of floats keeps its own type
        layout_dtype = MATRICES[layout].dtype
        assert got.dtype == (layout_dtype if layout_dtype.kind == "f" else np.float64)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_what_is_not_0_in_a_dense_array_is_an_entry(name, kind):
    np.testing.assert_array_equal(OF_ROWS[name](ARRAYS[kind]), OF_ROWS[name](DATA))


@pytest.mark.parametrize("name", OF_TABLES)
@pytest.mark.parametrize("kind", ARRAYS)
def test_every_entry_of_a_dense_table_is_observed(name, kind):
    np.testing.assert_array_equal(OF_TABLES[name](ARRAYS[kind]), OF_TABLES[name](DENSE))


@pytest.mark.parametrize("name", [*OF_ROWS, *OF_TABLES])
def test_a_frame_is_as_interactions(name):
    users, items = np.nonzero(DENSE)
    frame = pd.DataFrame({"user": users, "item": items, "value": DENSE[users, items]})
    function = (OF_ROWS | OF_TABLES)[name]
    np.testing.assert_array_equal(function(frame), function(DATA))


def features():
    return Features.from_interactions(DATA, user=[], item=["item id"])


#: Functions of dense arrays, and one array for each of their arguments.
OF_ARRAYS = {
    "als item_factors": (lambda x: als.solve_users(DATA, x, regularization=0.1, confidence_weight=1.0), FACTORS),
    "als start": (lambda x: als.solve_users(
        DATA, FACTORS, regularization=0.1, confidence_weight=1.0, solver="cg", start=x), USERS),
    "nmf item_factors": (lambda x: nmf.solve_rows_nonnegative(DATA, x, regularization=0.1), abs(FACTORS)),
    "nmf weights": (lambda x: nmf.fit_nmf(DATA, 2, regularization=0.1, weights=x, key=KEY).item_factors, DATA.values),
    "nmf start": (lambda x: nmf.solve_rows_nonnegative(DATA, abs(FACTORS), regularization=0.1, start=x), abs(USERS)),
    "kmeans init": (lambda x: clustering.kmeans(DATA, 3, init=x).centers, DENSE[:3]),
    "centers": (lambda x: clustering.assign_rows(DATA, x)[0], DENSE[:3]),
    "sum_rows matrix": (lambda x: row_sums.sum_rows(DATA, x), FACTORS.astype(np.float64)),
    "sum_rows weights": (lambda x: row_sums.sum_rows(DATA, FACTORS, weights=x), DATA.values.astype(np.float64)),
    "hadamard": (hadamard.hadamard_transform, np.arange(8)),
    "top_k": (lambda x: ranking.top_k(x, 3)[0], USERS @ FACTORS.T),
    "user_factors": (lambda x: ranking.recommend_factors(x, FACTORS, 3)[0], USERS),
    "item_factors": (lambda x: ranking.recommend_factors(USERS, x, 3)[0], FACTORS),
    "held_out_scores": (lambda x: ranking.held_out_ranks(x, DENSE[:, :5], [5] * 30), DENSE[:, 7].copy()),
    "other_scores": (lambda x: ranking.held_out_ranks(DENSE[:, 7], x, [5] * 30), DENSE[:, :5].copy()),
    "counts": (lambda x: ranking.held_out_ranks(DENSE[:, 7], DENSE[:, :5], x), np.full(30, 4)),
    "held_out_items": (lambda x: ranking.held_out_ranks_factors(USERS, FACTORS, x, np.zeros((30, 1), int), [1] * 30),
                       np.arange(30) % 12),
    "sample rows": (lambda x: ranking.sample_unseen(DATA, x, 2, key=KEY, purpose="t")[0], np.array([3, 1])),
    "seen": (lambda x: ranking.top_k(USERS @ FACTORS.T, 3, seen=(x, DATA.indices))[0], DATA.indptr),
    "sgd users": (lambda x: sgd.fit_factors(x, [0, 1], [1.0, 2.0], n_users=2, n_items=2, n_epochs=1,
                                            key=KEY).user_factors, np.array([0, 1])),
    "sgd ratings": (lambda x: sgd.fit_factors([0, 1], [0, 1], x, n_users=2, n_items=2, n_epochs=1,
                                              key=KEY).user_factors, np.array([1.0, 2.0])),
    "two_tower": (lambda x: two_tower.TwoTower(features()).score(x, [0, 1]),
                  two_tower.TwoTower(features()).initial_parameters(KEY)),
    "two_tower users": (lambda x: two_tower.TwoTower(features()).score(
        two_tower.TwoTower(features()).initial_parameters(KEY), x), np.array([0, 1])),
    "gru": (lambda x: gru.GRUEncoder(5, n_factors=16).encode_sequences(x, [0, 1, 2], [0, 3]),
            gru.GRUEncoder(5, n_factors=16).initial_parameters(KEY)),
    "gru items": (lambda x: gru.GRUEncoder(5, n_factors=16).encode_sequences(
        gru.GRUEncoder(5, n_factors=16).initial_parameters(KEY), x, [0, 3]), np.array([0, 1, 2])),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_an_array_of_another_library_is_as_numpys(name):
    function, array = OF_ARRAYS[name]
    expected = function(array)
    for kind in (Exported, Converted):
        np.testing.assert_array_equal(function(kind(array)), expected)


# ---- invariants -----------------------------------------------------------------------------------------------------


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_csr_in_order_is_not_copied(dtype):
    for family in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        matrix = family(CSR.astype(dtype))
        rows = borrow_rows("x", matrix)
        assert matrix.indices.dtype == np.int32
        assert address(rows.indices) == address(matrix.indices)
        assert address(rows.values) == address(matrix.data)
        assert rows.values.dtype == dtype
    assert address(borrow_rows("x", wide(CSR)).values) != 0
    assert borrow_rows("x", DATA) is DATA
    room = with_room(CSR)
    assert address(borrow_rows("x", room).indices) == address(room.indices)


def test_a_borrowed_matrix_is_not_changed_and_a_shuffled_one_stays_shuffled():
    for layout in MATRICES.values():
        before = [getattr(layout, part).copy() for part in ("data", "indices", "indptr") if hasattr(layout, part)]
        for function in OF_ROWS.values():
            function(layout)
        after = [getattr(layout, part) for part in ("data", "indices", "indptr") if hasattr(layout, part)]
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


def test_arrays_of_other_libraries_are_not_copied():
    for array in (FACTORS, USERS.astype(np.float64)):
        array = array.copy()
        for kind in (Exported, Converted):
            other = kind(array)
            assert address(check_array("x", other, ndim=2)) == address(array)
            assert address(als.check_item_factors(other, len(array))) == address(array)
    rows = np.array([3, 1, 2])
    assert address(check_rows("rows", Exported(rows), 4)) == address(rows)


def test_what_outlives_the_call_is_its_own():
    matrix = scipy.sparse.csr_array(CSR, copy=True)
    events = Events.from_interactions(matrix)
    before = events.items.copy()
    matrix.indices[:] = 0
    np.testing.assert_array_equal(events.items, before)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OF_ROWS, *OF_TABLES])
def test_what_leads_out_of_a_matrix_never_reaches_a_kernel(name):
    function = (OF_ROWS | OF_TABLES)[name]
    for part, entry, message in (
        ("indices", 99, r"\w+\.indices must be in \[0, 12\), got 99"), ("indices", -1, r"\w+\.indices must be in"),
        ("indptr", 10**6, r"\w+\.indptr must not decrease"), ("data", np.nan, r"\w+\.data must be finite, got nan"),
    ):  # fmt: skip
        matrix = scipy.sparse.csr_array(CSR, copy=True)
        getattr(matrix, part)[4] = entry
        with pytest.raises(ValueError, match=message):
            function(matrix)
    with pytest.raises(TypeError, match=r"must be an array of float32 or float64, got dtype complex64"):
        function(CSR.astype(np.complex64))
    with pytest.raises((TypeError, ValueError), match=r"2 dimensions|shape \(3,\)"):
        function(np.ones(3))


@pytest.mark.parametrize("name", [*OF_ROWS, *OF_TABLES, *OF_ARRAYS])
def test_what_is_on_a_gpu_is_refused_with_what_to_do(name):
    function = {key: pair[0] for key, pair in OF_ARRAYS.items()} | OF_ROWS | OF_TABLES
    with pytest.raises(TypeError, match=r"must be in the memory of the CPU, got OnGPU on a CUDA GPU; copy it first"):
        function[name](OnGPU(DENSE))


def test_what_a_library_does_not_let_out_is_said_with_its_own_words():
    with pytest.raises(TypeError, match=r"item_factors must be an array that NumPy can read, got WithG.*detach"):
        als.solve_users(DATA, WithGradient(FACTORS), regularization=0.1, confidence_weight=1.0)
    with pytest.raises(TypeError, match=r"item_factors must be dense, got csr_array; use its toarray\(\)"):
        als.solve_users(DATA, scipy.sparse.csr_array(FACTORS), regularization=0.1, confidence_weight=1.0)
    for text in ("abc", {"a": 1}, object()):
        with pytest.raises(TypeError, match=r"x must be an array of float32 or float64, got dtype"):
            check_array("x", text, ndim=2)
    assert plain_array("x", [1, 2]).tolist() == [1, 2]


def test_weights_go_with_entries_in_order_alone():
    weights = np.ones(DATA.n_interactions)
    for function in (
        lambda x: row_sums.sum_rows(x, FACTORS, weights=weights),
        lambda x: nmf.fit_nmf(x, 2, regularization=0.1, weights=weights, key=KEY).item_factors,
        lambda x: sgd.fit_factors(x, weights=weights, n_epochs=1, key=KEY).item_factors,
    ):
        np.testing.assert_array_equal(function(CSR), function(DATA))
        for layout in ("csc", "coo", "shuffled", "twice"):
            with pytest.raises(ValueError, match=r"must have distinct entries sorted .* if weights are given for them"):
                function(MATRICES[layout])
        with pytest.raises(TypeError, match="must be Interactions or a CSR matrix if weights are given"):
            function(pd.DataFrame({"user": [1], "item": [1]}))


def test_sizes_of_a_table_are_its_own():
    with pytest.raises(ValueError, match="n_items must be the size of users, 12, got 13; leave it out"):
        sgd.fit_factors(CSR, n_items=13, n_epochs=1)
    with pytest.raises(TypeError, match=r"n_users must be an integer if .* are columns, got None"):
        sgd.fit_factors([0], [0], [1.0], n_items=1)


def test_values_below_0_are_no_confidence():
    below = scipy.sparse.csr_array(CSR - 2 * CSR.astype(bool).astype(np.float32))
    with pytest.raises(ValueError, match="interactions must have values of at least 0, got -1"):
        OF_ROWS["als.solve_users"](below)
    liked = below.copy()
    liked.data = np.maximum(liked.data, 0)
    np.testing.assert_array_equal(OF_ROWS["als.solve_own_users"](below), OF_ROWS["als.solve_own_users"](liked))
    with pytest.raises(ValueError, match="ratings must be at least 0 for solver 'mu', got -1"):
        nmf.fit_nmf(below, 2, regularization=0.1, solver="mu", key=KEY)
    exact = clustering.kmeans(below.astype(np.float64), 20, key=KEY)
    assert clustering.kmeans(below, 20, key=KEY).objective == pytest.approx(exact.objective, rel=1e-4)
