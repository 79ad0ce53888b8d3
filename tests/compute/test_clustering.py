"""k-means: its definition in double, its fixed points, and the distribution of its initial centres."""

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.compute import clustering as naive
from support.data import of_dense
from support.significance import counts_are, tilted
from support.strategies import seeds

from fastfedrec import Interactions, Key, clustering, hardware
from fastfedrec.compute.clustering import assign_rows, kmeans


def rows(n, m, seed=0, dtype=np.float64):
    """Small whole numbers, many of them 0: distances are exact in float32 too."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 6, (n, m)) * (rng.random((n, m)) < 0.4)).astype(dtype)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    seed=seeds(),
    n=st.integers(1, 90),
    m=st.integers(1, 20),
    n_clusters=st.integers(1, 150),
    is_sparse=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_assignment_is_the_nearest_centre(seed, n, m, n_clusters, is_sparse, dtype):
    x, centers = rows(n, m, seed, dtype), rows(n_clusters, m, seed + 1, dtype)
    labels, distances = assign_rows(of_dense(x) if is_sparse else x, centers)
    expected = naive.distances(x, centers)
    assert labels.tolist() == expected.argmin(axis=1).tolist()  # whole numbers: ties are ties
    np.testing.assert_array_equal(distances, expected.min(axis=1))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_no_rows_have_no_nearest_centre(is_sparse):
    x = np.zeros((0, 3))
    labels, distances = assign_rows(of_dense(x) if is_sparse else x, np.ones((2, 3)))
    assert (labels.tolist(), distances.tolist()) == ([], [])


@given(
    seed=seeds(), n=st.integers(3, 60), m=st.integers(1, 12), n_iterations=st.integers(0, 5), is_sparse=st.booleans()
)
def test_iterations_equal_the_twin(seed, n, m, n_iterations, is_sparse):
    x = rows(n, m, seed) + (0 if is_sparse else np.random.default_rng(seed).random((n, m)))
    start = x[:3] + np.random.default_rng(seed).random((3, m))  # no ties
    result = kmeans(of_dense(x) if is_sparse else x, 3, init=start, n_iterations=n_iterations)
    labels, centers, objective = naive.lloyd(x, start.astype(result.centers.dtype), n_iterations)
    if not np.array_equal(result.labels, labels):  # nearer than rounding
        d = np.sort(naive.distances(x, centers), axis=1)
        assert (d[:, 1] - d[:, 0]).min() < 1e-3
        return
    np.testing.assert_allclose(result.centers, centers, rtol=1e-5, atol=1e-5)
    assert result.objective == pytest.approx(objective, rel=1e-4, abs=1e-4)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(seed=seeds(), init=st.sampled_from(["k-means++", "random"]))
def test_objective_never_rises_and_ends_at_a_fixed_point(seed, init):
    x, key = rows(40, 5, seed), Key.from_seed(seed)
    objectives = [kmeans(x, 4, init=init, n_iterations=n, key=key).objective for n in range(6)]
    assert all(b <= a * (1 + 1e-12) + 1e-9 for a, b in itertools.pairwise(objectives))
    result = kmeans(x, 4, init=init, n_iterations=200, key=key)
    assert result.n_iterations < 200
    for c in set(result.labels.tolist()):
        np.testing.assert_allclose(result.centers[c], x[result.labels == c].mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("unit", [1.0, 0.5, 2.0**-10])
def test_adding_only_rows_that_moved_gives_the_same_bits(unit, is_sparse, monkeypatch):
    x = rows(300, 12, 4, np.float32) * np.float32(unit)
    data = of_dense(x) if is_sparse else x
    means = clustering._Means.zeros(clustering._Rows.of(data), 9)
    assert means.are_exact
    moved = [kmeans(data, 9, key=Key.from_seed(1), n_iterations=n) for n in range(8)]
    assert moved[-1].n_iterations > 3
    monkeypatch.setattr(clustering._Means, "zeros", lambda *_: dataclasses.replace(means, are_exact=False))
    for n, result in enumerate(moved):
        anew = kmeans(data, 9, key=Key.from_seed(1), n_iterations=n)
        assert result.centers.tobytes() == anew.centers.tobytes()
        assert result.labels.tobytes() == anew.labels.tobytes()


@pytest.mark.parametrize(
    ("value", "are_exact"), [(0.5, True), (3.0, True), (0.3, False), (2.0**-11, False), (1e12, False)]
)
def test_sums_are_exact_only_of_multiples_that_are_small_enough(value, are_exact):
    x = np.ones((50, 30))
    x[20, 7] = value
    assert clustering._Means.zeros(clustering._Rows.of(x), 2).are_exact == are_exact


def test_sums_that_overflow_leave_labels_in_range():
    labels, distances = assign_rows(np.full((3, 4), -4e18, np.float32), np.full((20, 4), 1.2e19, np.float32))
    assert labels.tolist() == [0, 0, 0]
    np.testing.assert_allclose(distances, 4 * 1.6e19**2, rtol=1e-6)  # which a double holds


@pytest.mark.parametrize("value", [1e300, 1e160])
def test_centres_beyond_what_squares_can_be_leave_labels_in_range(value):
    centers = np.array([[value], [3.0], [-value]])
    for dtype in (np.float32, np.float64):
        labels, distances = assign_rows(np.array([[1.0], [2.0]], dtype=dtype), centers)
        assert (labels.tolist(), distances.tolist()) == ([1, 1], [4.0, 1.0])


# ---- away from the origin -------------------------------------------------------------------------------------------


def spots(offset, spread, radius, dtype, n_columns=2, seed=0):
    """Rows around 8 places, and these; positive, so that they may be values of `Interactions`."""
    rng = np.random.default_rng(seed)
    locations = offset + spread * rng.random((8, n_columns))
    x = locations[rng.integers(0, 8, 4_000)] + radius * rng.standard_normal((4_000, n_columns))
    return x.astype(dtype), locations.astype(dtype)


def full(x):
    """The same rows as compressed ones that have every column."""
    users, items = np.indices(x.shape)
    return Interactions.from_arrays(users.ravel(), items.ravel(), x.ravel())


CITY = (48.85, 0.1, 0.001)  # degrees
AWAY = [CITY, (1e4, 10.0, 1.0), (1e5, 10.0, 1.0), (1e6, 10.0, 1.0), (1e6, 1000.0, 1.0)]


@given(st.data(), st.sampled_from([np.float32, np.float64]))
def test_what_is_taken_from_a_column_rounds_nothing(data, dtype):
    width = {np.float32: 32, np.float64: 64}[dtype]
    near = data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False))
    factors = data.draw(st.lists(st.floats(0.75, 1.4), min_size=1, max_size=5))
    with np.errstate(over="ignore", under="ignore"):
        x = np.nan_to_num(np.array(factors, dtype=dtype)[:, None] * dtype(near))
    middle = clustering._middle(x)
    moved = x - middle
    assert middle.dtype == moved.dtype == dtype
    for before, after in zip(x[:, 0].tolist(), moved[:, 0].tolist(), strict=True):
        assert Fraction(before) - Fraction(float(middle[0])) == Fraction(after)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("location", AWAY)
def test_rows_far_away_are_scored_where_scores_tell_them_apart(dtype, location):
    x, _ = spots(*location, dtype, 3)
    data = clustering._Rows.of(x)
    assert np.sqrt(data.norms.max()) <= location[1] + 9 * location[2]
    beside = clustering._Rows.of(np.column_stack([x, x[:, :1] - x[:, :1].mean(), np.ones(len(x), dtype=dtype)]))
    assert beside.middle.tolist() == [*data.middle.tolist(), 0.0, 1.0]  # a column around 0 stays


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("location", AWAY)
@pytest.mark.parametrize("n_columns", [2, 9])
def test_the_objective_is_that_of_rows_around_the_origin(dtype, location, n_columns):
    x, start = spots(*location, dtype, n_columns)
    # These numbers are exact in double, and so are their distances to ten digits.
    middle = x.astype(float).mean(axis=0)
    labels, centers, objective = naive.lloyd(x - middle, start - middle, 30)
    for rows_of_them in (x, full(x)):
        result = kmeans(rows_of_them, 8, init=start, n_iterations=30)
        assert result.objective == pytest.approx(objective, rel=1e-9)
        assert (result.labels != labels).sum() == 0
        np.testing.assert_allclose(result.centers - middle, centers, rtol=1e-6, atol=1e-6 * location[2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("location", AWAY)
def test_the_objective_is_scikit_learns(dtype, location):
    cluster = pytest.importorskip("sklearn.cluster")
    x, start = spots(*location, dtype)
    theirs = cluster.KMeans(8, init=start, n_init=1, max_iter=300, tol=0).fit(x)
    ours = kmeans(x, 8, init=start, n_iterations=300)
    assert ours.objective == pytest.approx(theirs.inertia_, rel=1e-5)
    assert ours.n_iterations < 300


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_row_far_away_leaves_the_others_their_clusters(is_sparse, dtype):
    x, start = spots(*CITY, dtype)
    x[-1] = 1e9  # no one shift is right for all rows
    data = full(x) if is_sparse else x
    start = np.vstack([start, x[-1:]])
    labels, distances = assign_rows(data, start)
    expected = naive.distances(x, start)
    assert labels.tolist() == expected.argmin(axis=1).tolist()
    np.testing.assert_allclose(distances, expected.min(axis=1), rtol=1e-9)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_centres_follow_distances_away_from_the_origin(is_sparse, dtype):
    x = np.array([0.0, 1.0, 3.0, 4.0])[:, None] + np.zeros(3)
    for offset in (0.0, 2.0**20):
        data = full((x + offset).astype(dtype)) if is_sparse else (x + offset).astype(dtype)
        result = [kmeans(data, 3, n_iterations=0, key=Key.from_seed(s)).centers - offset for s in range(40)]
        if not offset:
            expected = result
    assert np.array_equal(result, expected)


@given(seed=seeds(), shift=st.sampled_from([0.0, 1e3, 1e7]), scale=st.sampled_from([1e-4, 1.0]))
def test_near_ties_go_to_the_nearer_centre(seed, shift, scale):
    rng = np.random.default_rng(seed)
    x = (shift + scale * rng.integers(0, 50, (30, 4))).astype(np.float32)
    centers = x[rng.integers(0, 30, 20)] + scale * 1e-3 * rng.standard_normal((20, 4))
    labels, distances = assign_rows(x, centers)
    expected = naive.distances(x, centers)
    np.testing.assert_allclose(distances, expected.min(axis=1), rtol=1e-9)
    np.testing.assert_allclose(expected[np.arange(30), labels], expected.min(axis=1), rtol=1e-9)


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n_clusters", [1, 2, 16, 18, 50])
def test_rows_in_lanes_have_the_labels_of_each_row_alone(instruction_set, n_columns, n_clusters):
    rng = np.random.default_rng(n_columns)
    centers = rng.standard_normal((n_clusters, n_columns)).astype(np.float32)
    centers[-1] = centers[0]  # the first of equal centres wins
    pairs = centers[rng.integers(0, n_clusters, (400, 2))]
    # Half of the rows are between two centres up to rounding.
    x = np.concatenate([pairs.mean(axis=1), rng.standard_normal((403, n_columns))]).astype(np.float32)
    with hardware.use_instruction_set(instruction_set):
        labels, _ = assign_rows(x, centers)
        alone = np.concatenate([assign_rows(row[None], centers)[0] for row in x])
    np.testing.assert_array_equal(labels, alone)
    scores = x @ centers.T - (centers**2).sum(axis=1) / 2
    if n_clusters > 2:  # the greatest score of rounded numbers is another one
        assert (scores.argmax(axis=1) != labels).any()


def test_a_label_does_not_depend_on_other_rows():
    """In ties up to rounding, where one more row changed the middle of all columns: 8 labels of 3,000."""
    rng = np.random.default_rng(0)
    for _ in range(3000):
        x, first = 1 + rng.random((2, 3)) / 32, 0.4 * rng.random((1, 3))
        centers = np.vstack([first, 2 * x[:1] - first])
        labels, distances = assign_rows(x, centers)
        more_labels, more_distances = assign_rows(np.vstack([x, np.zeros((1, 3))]), centers)
        assert np.array_equal(more_labels[:2], labels)
        assert np.array_equal(more_distances[:2], distances)


def test_a_row_far_from_centres_far_away_keeps_ten_digits():
    """In float32 too, where its difference to the centres would be rounded."""
    centers, x = 1e6 + np.arange(6.0).reshape(2, 3), np.array([[3.1, 2e7, -7e5]], dtype=np.float32)
    _, distances = assign_rows(x, centers)
    exact = min(sum((Fraction(float(a)) - Fraction(b)) ** 2 for a, b in zip(x[0], c, strict=True)) for c in centers)
    assert distances[0] == pytest.approx(float(exact), rel=1e-10)


def test_an_empty_cluster_keeps_its_centre():
    result = kmeans(np.array([[0.0], [1.0]]), 2, init=np.array([[0.5], [99.0]]))
    assert result.centers.tolist() == [[0.5], [99.0]]
    assert result.labels.tolist() == [0, 0]


def test_first_centres_are_rows_even_where_all_rows_are_equal():
    x = np.ones((5, 2))
    assert kmeans(x, 3, n_iterations=0, key=Key.from_seed(1)).centers.tolist() == [[1, 1]] * 3
    assert kmeans(of_dense(np.zeros((4, 3))), 2, key=Key.from_seed(1)).objective == 0


def test_no_row_is_drawn_twice_by_plus_plus():
    x = np.arange(8.0)[:, None] ** 2 + 0.1
    for seed in range(30):
        centers = kmeans(x, 8, n_iterations=0, key=Key.from_seed(seed)).centers
        assert sorted(centers.ravel().tolist()) == x.ravel().tolist()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    x = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"n_clusters must be at most the number of rows \(3\), got 4"):
        kmeans(x, 4, key=Key.from_seed(1))
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        kmeans(x, 2)
    with pytest.raises(ValueError, match="init must be 'k-means\\+\\+', 'random' or an array of centres, got 'best'"):
        kmeans(x, 2, init="best", key=Key.from_seed(1))
    with pytest.raises(ValueError, match=r"init must have shape \(2, 2\), got \(1, 2\)"):
        kmeans(x, 2, init=np.zeros((1, 2)))
    with pytest.raises(TypeError, match="rows must be an array of float32 or float64, got dtype <U1"):
        kmeans([["a"]], 1, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="rows must be finite, got nan"):
        kmeans(np.array([[np.nan]]), 1, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="rows must be small enough for squared distances"):
        kmeans(np.array([[1e200], [-1e200]]), 1, key=Key.from_seed(1))
    with pytest.raises(ValueError, match="rows must have at least one row and column"):
        kmeans(np.zeros((0, 2)), 1, key=Key.from_seed(1))
    with pytest.raises(ValueError, match=r"centers must have shape \('any', 2\), got \(1, 3\)"):
        assign_rows(x, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="the number of centers must be at least 1"):
        assign_rows(x, np.zeros((0, 2)))


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_threads_do_not_change_a_bit(is_sparse, instruction_set):
    x = rows(700, 30, 3) * 0.3
    data = of_dense(x) if is_sparse else x
    with hardware.use_instruction_set(instruction_set):
        one, four = (kmeans(data, 7, key=Key.from_seed(2), n_threads=n) for n in (1, 4))
    assert one.centers.tobytes() == four.centers.tobytes()
    assert one.labels.tobytes() == four.labels.tobytes()
    assert one.objective == four.objective


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_second_centres_follow_the_squared_distance():
    x = np.array([[0.0], [1.0], [3.0], [4.0]])
    seen, n = np.zeros((4, 4)), 15_000
    for seed in range(n):
        centers = kmeans(x, 2, n_iterations=0, key=Key.from_seed(seed), n_threads=1).centers.ravel()
        first, second = np.searchsorted(x.ravel(), centers)
        seen[first, second] += 1
    squares = (x - x.T) ** 2
    expected = squares / squares.sum(axis=1, keepdims=True) / 4
    off = ~np.eye(4, dtype=bool)
    assert seen[~off].sum() == 0
    assert counts_are(seen[off], expected[off])
    assert not counts_are(seen[off], tilted(expected[off], 0.8))
    assert not counts_are(seen[off], tilted(expected[off], 1.2))
