"""Masks, nulls and byte order, in every function that takes an array: taken rightly, or refused by name."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy

from fastfedrec import Interactions, Key, Popularity, als, clustering, hadamard, nmf, ranking, row_sums, sgd
from fastfedrec.mechanisms import DiscreteLaplace, ExponentialMechanism, clipping

RATINGS = Interactions.from_arrays([0, 0, 1, 2], [0, 1, 1, 2], [1.0, 2.0, 3.0, 4.0])
SEED = Key.from_seed(0)

#: Functions of an array, with their arguments and the name of the array.
FUNCTIONS = {
    "solve_users": (lambda x: als.solve_users(RATINGS, x, regularization=0.1, confidence_weight=1.0),
                    np.ones((3, 2)), "item_factors"),
    "fit_nmf": (lambda x: nmf.fit_nmf(x, 2, regularization=0.1, key=SEED).row_factors, np.ones((4, 3)), "ratings"),
    "kmeans": (lambda x: clustering.kmeans(x, 2, key=SEED).centers, np.arange(8.0).reshape(4, 2), "rows"),
    "top_k": (lambda x: ranking.top_k(x, 2)[0], np.arange(6.0).reshape(2, 3), "scores"),
    "held_out_ranks": (lambda x: ranking.held_out_ranks(x, np.ones((2, 3)), [3, 3]), np.ones(2), "held_out_scores"),
    "sample_unseen": (lambda x: ranking.sample_unseen(RATINGS, x, 1, key=SEED, purpose="t")[0],
                      np.array([0, 2]), "rows"),
    "sum_rows": (lambda x: row_sums.sum_rows(RATINGS, x), np.ones((3, 2)), "matrix"),
    "weights": (lambda x: row_sums.sum_rows(RATINGS, np.ones((3, 2)), weights=x), np.ones(4), "weights"),
    "hadamard": (hadamard.hadamard_transform, np.array([1, 0, 2, 0]), "values"),
    "words_by_user": (lambda x: SEED.words_by_user("t", x, size=1), np.array([1, 2, 3]), "users"),
    "clip_rows": (lambda x: clipping.clip_rows_l2(x, 1.0), np.ones((2, 3)), "rows"),
    "sgd": (lambda x: sgd.fit_factors(x, [0, 1], [1.0, 2.0], n_users=2, n_items=2, key=SEED, n_epochs=1).user_factors,
            np.array([0, 1]), "users"),
    "select_users": (lambda x: RATINGS.select_users(x).indices, np.array([1, 0]), "rows"),
    "user_index": (RATINGS.user_index, np.array([1, 0]), "user_ids"),
    "features": (lambda x: RATINGS.with_features(user_features={"a": x}).user_features["a"], np.arange(3), "features"),
    "laplace": (lambda x: DiscreteLaplace(1).privatize(x, key=SEED), np.array([1, 2, 3]), "values"),
    "exponential": (lambda x: ExponentialMechanism(1.0).privatize(x, key=SEED), np.array([1, 2, 3]), "scores"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_mask_hides_is_refused_and_swapped_bytes_are_taken_rightly(name):
    function, array, called = FUNCTIONS[name]
    expected = function(array)
    np.testing.assert_array_equal(function(array.astype(array.dtype.newbyteorder(">"))), expected)
    np.testing.assert_array_equal(function(np.ma.array(array, mask=False)), expected)
    hidden = np.zeros(array.shape, dtype=bool)
    hidden.flat[-1] = True
    missing = [np.ma.array(array, mask=hidden)]
    if array.ndim == 1:
        missing.append(pa.array([*array[:-1].tolist(), None]))
    for given in missing:
        if name == "laplace":  # its answer may not depend on whether an entry is missing, so that entry counts as 0
            np.testing.assert_array_equal(function(given), function(np.where(hidden, 0, array)))
            continue
        with pytest.raises((ValueError, TypeError), match=rf"{called}.*(missing|masked|null)"):
            function(given)
    if array.ndim == 1:
        np.testing.assert_array_equal(function(pa.array(array)), expected)
        np.testing.assert_array_equal(function(pd.Series(array)), expected)


UNREAL = [np.ones((3, 2), dtype=int).astype(kind) for kind in (str, complex, "M8[s]", object)]


@pytest.mark.parametrize("matrix", [*UNREAL, scipy.sparse.coo_matrix(UNREAL[1])], ids=lambda matrix: str(matrix.dtype))
def test_what_is_no_real_number_is_not_made_one(matrix):
    """Text was read as numbers, imaginary parts were dropped, and dates were seconds."""
    with pytest.raises(TypeError, match=r"^matrix must .* got dtype"):
        row_sums.sum_rows(RATINGS, matrix)


TOO_LONG = np.array([1, 2**53 + 1, 3, 4])


def as_scipy(layout):
    """`from_scipy` of a matrix of one layout."""

    def values(x):
        matrix = scipy.sparse.coo_matrix((x, ([0, 0, 1, 2], [0, 1, 1, 2])))
        return Interactions.from_scipy(matrix.asformat(layout)).values

    return values


EXACT = {
    "from_arrays": lambda x: Interactions.from_arrays([0, 0, 1, 2], [0, 1, 1, 2], x).values,
    **{f"from_scipy {layout}": as_scipy(layout) for layout in ("coo", "csr", "csc", "bsr", "dia", "dok", "lil")},
    "sum_rows": lambda x: row_sums.sum_rows(RATINGS, x[:3, None]),
    "weights": lambda x: row_sums.sum_rows(RATINGS, np.ones((3, 2)), weights=x),
    "kmeans": lambda x: clustering.kmeans(x[:, None], 1, key=SEED).centers,
    "fit_nmf": lambda x: nmf.fit_nmf(x[:, None], 1, regularization=0.1, key=SEED).row_factors,
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_that_a_float_would_round_is_refused(name, sign):
    # 2^53 + 1 is the smallest positive integer that a double cannot hold.
    with pytest.raises(TypeError, match=rf"whole numbers of at most {2**53}, .* got {sign * (2**53 + 1)}"):
        EXACT[name](sign * TOO_LONG)
    for whole in (TOO_LONG % 2**53, (TOO_LONG % 100).astype(np.uint8)):  # the control
        np.testing.assert_array_equal(EXACT[name](whole), EXACT[name](whole.astype(float)))


class Unreadable:
    """An array of another library, which NumPy would read number by number."""

    def __init__(self, array):
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        raise AssertionError("a number was read")

    __iter__ = __getitem__


class LikeJax(Unreadable):
    """Substitute for BCOO and BCSR of JAX."""

    def todense(self):
        raise AssertionError("the array was made dense")


class LikePyData(LikeJax):
    """Substitute for COO of PyData's sparse."""

    def to_scipy_sparse(self):
        raise AssertionError("the array was made another one")

    def __array__(self, *args, **kwargs):
        raise RuntimeError("cannot convert a sparse array to dense automatically")


class OnMeta:
    """Substitute for a PyTorch tensor on the meta device, which has no memory."""

    def __init__(self, array):
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def __dlpack_device__(self):
        raise ValueError("Unknown device type meta for Dlpack")

    def __dlpack__(self, **kwargs):
        raise ValueError("Unknown device type meta for Dlpack")

    def __array__(self, *args, **kwargs):
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")


REFUSED = {
    LikeJax: r"use its todense\(\)",
    LikePyData: r"use its to_scipy_sparse\(\) or todense\(\)",
    Unreadable: "convert it to a NumPy array first",
    OnMeta: r"got OnMeta on a device .*Unknown device type meta.*copy it first",
}
ROWS_OF_USERS = {
    "interactions": lambda x: als.solve_users(x, np.ones((3, 2)), regularization=0.1, confidence_weight=1.0),
    "seen": lambda x: ranking.top_k(np.ones((3, 3)), 2, seen=x),
    "users": lambda x: sgd.fit_factors(x, key=SEED),
    "rows": lambda x: clustering.assign_rows(x, np.ones((2, 3))),
    "ratings": lambda x: nmf.solve_rows_nonnegative(x, np.ones((3, 2)), regularization=0.1),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_that_do_not_let_their_numbers_out_are_refused_at_once(name, kind):
    function, array, called = FUNCTIONS[name]
    with pytest.raises(TypeError, match=rf"{called}.*{REFUSED[kind]}"):
        function(kind(array))


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("called", ROWS_OF_USERS)
def test_rows_of_users_that_do_not_let_their_numbers_out_are_refused_at_once(called, kind):
    with pytest.raises(TypeError, match=rf"{called}.*{REFUSED[kind]}"):
        ROWS_OF_USERS[called](kind(np.ones((3, 3))))


@pytest.mark.parametrize(
    ("kind", "remedy"), [(LikePyData, r"use its to_scipy_sparse\(\)"), (LikeJax, "csr_array of its todense")]
)
def test_a_fit_on_a_sparse_array_of_another_library_names_the_remedy(kind, remedy):
    with pytest.raises(
        TypeError, match=rf"interactions must be Interactions, a SciPy sparse.*got {kind.__name__}.*{remedy}"
    ):
        Popularity().fit(kind(np.ones((3, 3))))
    with pytest.raises(TypeError, match=rf"matrix must be a SciPy sparse matrix, got {kind.__name__}; .*{remedy}"):
        Interactions.from_scipy(kind(np.ones((3, 3))))


@pytest.mark.parametrize("make", [memoryview, pd.Series, np.ndarray.tolist, pa.array, list])
def test_what_lets_its_numbers_out_is_taken(make):
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    expected = row_sums.sum_rows(RATINGS, np.ones((3, 2)), weights=weights)
    np.testing.assert_array_equal(row_sums.sum_rows(RATINGS, np.ones((3, 2)), weights=make(weights)), expected)


@pytest.mark.parametrize("kind", [np.float16, np.bool_, np.int8, np.float32, np.float64])
@pytest.mark.parametrize("called", ROWS_OF_USERS)
def test_dense_rows_of_narrow_types_are_those_of_wider_ones(called, kind):
    """The numbers are random bits, which every type holds exactly; float16 and bool become float32."""
    rows = (np.random.default_rng(1).random((3, 3)) < 0.5).astype(kind)
    # Narrow floats and bool become float32, and all other types float64.
    wide = rows.astype(np.float32 if rows.dtype.itemsize < 8 and rows.dtype.kind in "fb" else np.float64)
    np.testing.assert_equal(answer(called, rows), answer(called, wide))


def answer(called, rows):
    result = ROWS_OF_USERS[called](rows)
    return [result.user_factors, result.item_factors] if called == "users" else result


def test_values_of_half_precision_are_kept():
    rows = np.array([[0.1, 1000.5, 0], [6e-8, 65504, 2]], dtype=np.float16)
    wide = rows.astype(np.float32)
    labels, distances = clustering.assign_rows(rows, wide.astype(float))
    # Float16 values are exact in double, so each row has distance 0 to its own copy.
    assert (labels.tolist(), distances.tolist()) == ([0, 1], [0, 0])
    for solve in (
        lambda x: clustering.kmeans(x, 2, key=SEED).centers,
        lambda x: nmf.fit_nmf(x, 1, regularization=0.1, key=SEED).row_factors,
    ):
        np.testing.assert_array_equal(solve(rows), solve(wide))
