"""Tests of bounded contributions, projections and candidates: the influence of one user's data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms import bounded_rows as naive
from support.significance import assert_only, mean_is, share_is
from support.strategies import interaction_matrices, seeds

from fastfedrec import Interactions, Key
from fastfedrec.mechanisms import DiscreteLaplace
from fastfedrec.mechanisms.bounded_rows import grid_candidates, limit_contributions, project_rows, public_candidates

KEY = Key.from_seed(3)


def data(n_users=30, n_items=25, seed=0):
    rng = np.random.default_rng(seed)
    held = rng.random((n_users, n_items)) < rng.random((n_users, 1))
    held[:, 0] = True
    users, items = np.nonzero(held)
    return Interactions.from_arrays(users, items, rng.integers(1, 8, len(users)).astype(float))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(n_dimensions=st.integers(1, 6), radius=st.sampled_from([0.5, 5.0, 1e6]), seed=seeds())
def test_projection_is_the_product_shrunk_into_the_ball(n_dimensions, radius, seed):
    x = data(seed=seed)
    got = project_rows(x, n_dimensions, radius, key=KEY, round=2)
    draws = KEY.normal("projection.directions", round=2, size=x.n_items * n_dimensions)
    expected = x.to_scipy().toarray() @ (draws.reshape(x.n_items, n_dimensions) / np.sqrt(n_dimensions))
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected * np.minimum(1, radius / norms), atol=1e-9)


def test_projection_equals_naive_twin():
    x = data()
    directions = KEY.normal("projection.directions", round=2, size=x.n_items * 3).reshape(x.n_items, 3) / np.sqrt(3)
    expected = naive.project(x.to_scipy().toarray().tolist(), directions.tolist(), 5.0)
    np.testing.assert_allclose(project_rows(x, 3, 5.0, key=KEY, round=2), expected, atol=1e-12)


@given(max_entries=st.integers(1, 30), seed=seeds())
def test_kept_entries_equal_naive_twin(max_entries, seed):
    x = data(seed=seed)
    limited = limit_contributions(x, max_entries, value_range=(0.0, 9.0), key=KEY, round=4)
    selected = naive.keep_entries(x.interactions_per_user().tolist(), x.global_user_ids.tolist(), max_entries, KEY, 4)
    for u, positions in enumerate(selected):
        mine = limited.indices[limited.indptr[u] : limited.indptr[u + 1]]
        assert mine.tolist() == x.indices[x.indptr[u] : x.indptr[u + 1]][positions].tolist()


def test_grid_finds_the_cells_that_hold_the_points():
    x = np.concatenate([np.full((400, 2), 0.31), np.full((400, 2), -0.77)])
    candidates = grid_candidates(x, 20, radius=1.0, depth=8, n_shifts=1, epsilon=2.0, key=KEY)
    for center in candidates[:2]:  # the deepest cells: 4 / 2^8 wide
        assert np.abs(x - center).max(axis=1).min() <= 4 / 2**9


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(x=interaction_matrices(), max_entries=st.integers(1, 5), high=st.sampled_from([0.1, 1.0, 3.7]))
def test_contributions_are_bounded_and_a_subset(x, max_entries, high):
    limited = limit_contributions(x, max_entries, value_range=(0.05, high), key=KEY)
    lengths = np.minimum(x.interactions_per_user(), max_entries)
    assert limited.interactions_per_user().tolist() == lengths.tolist()
    values = limited.values_or_ones()
    assert ((values >= 0.05) & (values <= high)).all()
    for u in range(x.n_users):
        mine = set(limited.indices[limited.indptr[u] : limited.indptr[u + 1]].tolist())
        assert mine <= set(x.indices[x.indptr[u] : x.indptr[u + 1]].tolist())


def test_a_users_entries_do_not_depend_on_other_users():
    x = data()
    without = x.select_users(np.arange(1, x.n_users))
    whole, part = (limit_contributions(d, 4, value_range=(0.0, 5.0), key=KEY) for d in (x, without))
    assert whole.select_users(np.arange(1, x.n_users)).indices.tolist() == part.indices.tolist()
    assert (project_rows(whole, 3, 2.0, key=KEY)[1:] == project_rows(part, 3, 2.0, key=KEY)).all()


def test_users_and_rounds_keep_different_entries():
    """Users with equal rows keep different entries, and each round keeps different ones."""
    x = Interactions.from_arrays(np.repeat(np.arange(2), 400), np.tile(np.arange(400), 2))
    first, same_round, other = (
        limit_contributions(x, 100, value_range=(0.0, 1.0), key=KEY, round=r).indices.reshape(2, 100) for r in (0, 0, 1)
    )
    assert (first == same_round).all()
    for one, two in ((first[0], first[1]), (first[0], other[0]), (first[1], other[1])):
        assert len(np.intersect1d(one, two)) < 60  # of 100; 25 by chance


def test_candidates_have_one_shape_for_any_data():
    x = project_rows(data(), 3, 2.0, key=KEY)
    for some in (x, x[1:], x[:0], np.repeat(x, 50, axis=0)):
        candidates = grid_candidates(some, 40, radius=2.0, depth=5, n_shifts=2, epsilon=0.5, key=KEY)
        assert candidates.shape == (40, 3)


def test_a_user_is_counted_in_one_cell_of_a_level(monkeypatch):
    counted = []

    def no_noise(self, counts, **_):
        counted.append(counts.copy())
        return counts

    monkeypatch.setattr(DiscreteLaplace, "add_noise", no_noise)
    x = project_rows(data(), 2, 2.0, key=KEY)
    arguments = {"radius": 2.0, "depth": 3, "n_shifts": 2, "epsilon": 1.0, "threshold": -1.0, "key": KEY}
    grid_candidates(x, 5, **arguments)
    whole = list(counted)
    counted.clear()
    grid_candidates(x[1:], 5, **arguments)
    assert [len(c) for c in whole] == [4, 16, 64] * 2  # every child of an active cell, empty ones too
    assert all(np.abs(a - b).sum() == 1 and c.sum() == len(x) for a, b, c in zip(whole, counted, whole, strict=True))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    x = data()
    with pytest.raises(TypeError, match=r"interactions must be Interactions, a SciPy .* got ndarray"):
        limit_contributions(np.ones((2, 2)), 1, value_range=(0.0, 1.0), key=KEY)
    with pytest.raises(TypeError, match=r"value_range must be a pair \(low, high\), got 5"):
        limit_contributions(x, 1, value_range=5, key=KEY)
    with pytest.raises(ValueError, match=r"value_range\[1\] must be greater than 3\.0"):
        limit_contributions(x, 1, value_range=(3.0, 3.0), key=KEY)
    with pytest.raises(ValueError, match="max_entries must be at least 1"):
        limit_contributions(x, 0, value_range=(0.0, 1.0), key=KEY)
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        project_rows(x, 2, 1.0, key=None)
    with pytest.raises(ValueError, match="n_dimensions must be at least 1"):
        public_candidates(3, 0, 1.0, key=KEY)
    with pytest.raises(ValueError, match="the number of points' columns must be at most 12, got 13"):
        grid_candidates(np.zeros((2, 13)), 3, radius=1.0, depth=1, n_shifts=1, epsilon=1.0, key=KEY)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_a_bit():
    x = data(300)
    one, four = (project_rows(x, 5, 2.0, key=KEY, n_threads=n) for n in (1, 4))
    assert one.tobytes() == four.tobytes()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_noise_on_cells_has_the_variance_of_epsilon(monkeypatch):
    """A user is in one cell, so noise of scale 1 / epsilon: its mean size is 1 / sinh(epsilon), nearly that."""
    add_noise, noise, epsilon = DiscreteLaplace.add_noise, [], 0.25

    def recorded(self, counts, **options):
        noisy = add_noise(self, counts, **options)
        noise.append(noisy - counts)
        return noisy

    monkeypatch.setattr(DiscreteLaplace, "add_noise", recorded)
    grid_candidates(np.zeros((5, 12)), 5, radius=2.0, depth=1, n_shifts=8, epsilon=epsilon, key=KEY)
    sizes = np.abs(np.concatenate(noise)).astype(np.float64)
    expected = 1 / np.sinh(epsilon)
    stddev = np.sqrt(1 / (2 * np.sinh(epsilon / 2) ** 2) - expected**2)
    assert len(sizes) == 8 * 2**12
    assert_only(lambda factor: mean_is(factor * sizes, expected, stddev))


@pytest.mark.slow
def test_every_entry_is_as_likely_to_be_kept():
    n, items = 40_000, 5
    x = Interactions.from_arrays(np.repeat(np.arange(n), items), np.tile(np.arange(items), n))
    selected = limit_contributions(x, 2, value_range=(0.0, 1.0), key=KEY).interactions_per_item()
    for count in selected:
        assert_only(lambda factor, count=count: share_is(count, n, 0.4 * factor))


@pytest.mark.slow
def test_public_candidates_fill_the_ball_evenly():
    points = public_candidates(40_000, 3, 2.0, key=KEY)
    inner = (np.linalg.norm(points, axis=1) < 2 * 0.5 ** (1 / 3)).sum()
    assert_only(lambda factor: share_is(inner, 40_000, 0.5 * factor))
