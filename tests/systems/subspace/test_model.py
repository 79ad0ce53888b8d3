"""DPSubspace: the budget, the server's algebra, devices' scores, and the required accuracy."""

import logging
import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given
from hypothesis import strategies as st
from naive.systems.subspace import model as naive
from support.data import generated
from support.decision_case import prefer

from fastfedrec import DPSubspace, Interactions, Key, Popularity, datasets, load
from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.memory import format_bytes
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate
from fastfedrec.systems._feature_prior import prior_factors
from fastfedrec.systems._pair_matrix import Candidate
from fastfedrec.systems._public_mean import floored, to_grid
from fastfedrec.systems.projection_rounds import FINEST, SCALE, UNIT, ProjectionSum, SubspaceState, public_signs
from fastfedrec.systems.subspace import _inference as inference


@pytest.fixture(scope="module")
def data():
    return generated()


@pytest.fixture(scope="module")
def fitted(data):
    return DPSubspace(8.0, n_columns=16).fit(data, key=Key.from_seed(2))


def exact(data, mean, encoder):
    """Return a round's sums without noise, in L2 bounds of a contribution."""
    system = ProjectionSum(None, None, 0.0, 0)
    state = SubspaceState(to_grid(mean), encoder)
    return system.local_round(state, data, Key.from_seed(1), 0).arrays["item_projections"] / UNIT


def mean_of(data):
    lengths = data.interactions_per_user()
    entries = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths)
    return np.bincount(data.indices, entries, data.n_items) / data.n_users


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_devices_score_as_dense_algebra(data, fitted):
    users = data.user_ids[:30]
    rows = data.to_scipy()[:30].toarray().astype(float)
    rows /= np.sqrt(np.maximum(rows.sum(axis=1, keepdims=True), 1))
    weights = naive.ease_weights(fitted.item_factors_, np.square(fitted.item_scales_))
    scores = fitted.score(np.repeat(users, 80), np.tile(data.item_ids, 30)).reshape(30, 80)
    np.testing.assert_allclose(scores, rows @ weights, rtol=1e-6, atol=1e-9)
    items, parts = fitted.explain(users[3], data.item_ids[7])
    assert parts.sum() == pytest.approx(scores[3, 7], rel=1e-9)
    assert len(items) == data.interactions_per_user()[3]


@given(n_items=st.integers(2, 40), n_columns=st.integers(1, 12), seed=st.integers(0, 99))
def test_shrinking_equals_naive_twin(n_items, n_columns, seed):
    rng = np.random.default_rng(seed)
    signal = 9 * rng.normal(size=(n_items, 1)) * rng.normal(size=n_columns)
    matrix = signal + rng.normal(size=(n_items, n_columns))
    lefts, values, right = np.linalg.svd(matrix, full_matrices=False)
    shrunk = lefts * inference.shrink(values**2, n_items, n_columns) @ right
    np.testing.assert_allclose(shrunk, naive.shrink(matrix), atol=1e-8)


def test_rows_weigh_as_popularity_and_alike_where_all_are():
    """The spectrum of weighted noise ends at the edge of a matrix with the effective number of rows."""
    # Equal shares give equal weights.
    alike = inference.Projections(100, np.full(50, 0.1))
    np.testing.assert_allclose(alike._weights, 1.0)
    assert alike._n_rows == pytest.approx(50)
    projections = inference.Projections(100, 1.0 / np.arange(10, 2_010))
    assert projections._weights.argmax() == 0
    assert np.square(projections._weights).sum() == pytest.approx(projections._n_rows)
    noise = np.random.default_rng(1).normal(size=(2_000, 30))
    # The upper edge of the spectrum of noise is (sqrt(n_rows) + sqrt(n_columns))^2.
    squares = np.linalg.eigvalsh((noise * projections._weights[:, None]).T @ noise)
    edge = projections._n_rows * (1 + np.sqrt(30 / projections._n_rows)) ** 2
    assert squares.max() == pytest.approx(edge, rel=0.15)


def test_entries_go_as_far_toward_zero_as_they_are_likely_noise():
    rng = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, 5_001)
    shares /= shares.sum()
    strength, noise = np.array([3_000.0, 40.0]), np.array([0.5, 0.1])
    clean = rng.normal(size=(5_000, 2)) * np.sqrt(shares[:, None] * strength)
    rows = clean + rng.normal(size=(5_000, 2)) * np.sqrt(noise)
    # The best shrinkage with known variances of signal and noise.
    best = rows * (shares[:, None] * strength) / (shares[:, None] * strength + noise)

    def error(shrunk):
        return np.square(shrunk - clean).sum(axis=0)

    shrunk = inference.shrink_rows(rows.copy(), noise, shares)
    assert (error(shrunk) <= 1.05 * error(best)).all()
    assert (error(shrunk) < 0.8 * np.minimum(error(rows), error(np.zeros_like(rows)))).all()


@given(size=st.integers(1, 5), more=st.integers(0, 6), seed=st.integers(0, 99))
def test_the_nearest_symmetric_matrix_equals_least_squares(size, more, seed):
    rng = np.random.default_rng(seed)
    values, inputs = rng.normal(size=(2, size, size + more))
    nearest = inference.solve_symmetric(values, inputs)
    np.testing.assert_allclose(nearest, nearest.T, atol=1e-9 * np.abs(nearest).max())
    residual, min_residual = (
        np.square(values - symmetric @ inputs).sum() for symmetric in (nearest, naive.nearest_symmetric(values, inputs))
    )
    assert residual <= min_residual + 1e-6 * np.square(values).sum()


def test_the_scale_of_a_round_is_that_of_the_exact_matrix():
    """The kappa from the trace is compared with a regression on the exact matrix, which only a test knows."""
    data = generated(3000, 150)
    mean = floored(mean_of(data))
    pairs = naive.pair_matrix(data.to_scipy().toarray(), to_grid(mean) / SCALE)
    np.fill_diagonal(pairs, 0)
    projections = inference.Projections(data.n_users, mean)
    encoder = public_signs(150, 16)
    for _ in range(2):
        sums, products = exact(data, mean, encoder), pairs @ encoder
        strength = inference.strength_of(sums, encoder, projections.diagonal, data.n_users)
        assert strength == pytest.approx(np.vdot(sums, products) / np.vdot(products, products), rel=0.25)
        projections.add(sums, encoder, 0.01)
        encoder = projections.next_encoder()


def test_without_noise_the_strongest_directions_are_found():
    data = generated(3000, 150)
    mean = floored(mean_of(data))
    projections = inference.Projections(data.n_users, mean)
    projections.add(exact(data, mean, public_signs(150, 32)), public_signs(150, 32), 0.5)
    encoder = projections.next_encoder()
    projections.add(exact(data, mean, encoder), encoder, 0.5)
    pairs = naive.pair_matrix(data.to_scipy().toarray(), to_grid(mean) / SCALE)
    values, vectors = np.linalg.eigh(pairs)
    for position in (-1, -2, -3):
        # The estimate has the strongest directions with about the right eigenvalues.
        ours = vectors[:, position] @ projections.factors
        assert ours @ ours == pytest.approx(values[position], rel=0.3)


def test_uninformative_features_have_the_mean_square_of_all_pairs():
    data = generated(3000, 60)
    mean = floored(mean_of(data))
    projections = inference.Projections(data.n_users, mean)
    for encoder in (public_signs(60, 5), public_signs(60, 4) * 3):
        projections.add(exact(data, mean, encoder), encoder, 0.5)
    encoders = np.column_stack([release.strength * release.encoder for release in projections.releases])
    pairs = np.column_stack([release.sums for release in projections.releases]) @ encoders.T
    weights = np.outer(mean, mean)
    np.fill_diagonal(weights, 0)
    expected = np.average(np.square((pairs + pairs.T) / 2), weights=weights)
    assert projections._mean_square() == pytest.approx(expected, rel=1e-5)


def test_uninformative_features_are_ignored_with_little_noise():
    data = generated(3000, 150)
    mean = floored(mean_of(data))
    encoder = public_signs(150, 32)
    pairs = naive.pair_matrix(data.to_scipy().toarray(), to_grid(mean) / SCALE)
    # The feature splits the items by the sign of the strongest eigenvector; permutations are uninformative.
    side = np.where(np.linalg.eigh(pairs)[1][:, -1] > 0, "a", "b")
    sums = exact(data, mean, encoder)
    is_believed = []
    for seed in range(41):
        dealt = np.random.default_rng(seed).permutation(side) if seed else side
        features = ItemFeatures.of("item_features", {"side": dealt}).align("item_features", data.item_ids)
        projections = inference.Projections(data.n_users, mean, prior_factors(features, mean))
        projections.add(sums, encoder, 0.5)
        is_believed.append(projections.prior.shape[1] > 0)
    assert is_believed[0]
    assert sum(is_believed[1:]) <= 4  # compared with the noise alone, 11 of 40 would be used


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 2, width=32), min_size=1, max_size=60))
def test_the_mean_is_one_that_devices_answer(item_means):
    mean = floored(np.array(item_means))
    assert (mean > 0).all()
    grid = to_grid(mean)
    state = SubspaceState(grid, np.zeros((0, 1), np.int16))
    assert grid.dtype == np.int32
    assert ProjectionSum(None, None, 0.0, 0)._objection(state) is None


@given(n_items=st.integers(1, 300), n_columns=st.integers(1, 9), power=st.integers(-30, 30), one=st.booleans())
def test_an_encoder_is_one_that_devices_answer(n_items, n_columns, power, one):
    columns = 2.0**power * np.random.default_rng(n_items).normal(size=(n_items, n_columns))
    if one:
        columns[1:] = 0.0
    encoder = inference.to_whole(columns)
    assert encoder.dtype == np.int16
    assert 4 <= np.abs(encoder).max() <= FINEST
    largest = np.abs(columns).argmax()
    np.testing.assert_allclose(encoder / encoder.ravel()[largest], columns / columns.ravel()[largest], atol=0.2)


@given(
    item_means=st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=12),
    n_columns=st.integers(1, 8),
    n_users=st.integers(1, 50),
    scales=st.lists(st.sampled_from([0.0, 1.0, 1e6]), min_size=2, max_size=4),
    noise=st.sampled_from([1e-4, 1.0, 1e9]),
    n_kinds=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@example(item_means=[2.0] * 3, n_columns=2, n_users=1, scales=[1.0, 1.0], noise=1e9, n_kinds=1, seed=0)
@example(item_means=[0.5] * 6, n_columns=1, n_users=9, scales=[0.0, 0.0], noise=1.0, n_kinds=2, seed=1)
def test_no_noise_makes_a_fit_fail(item_means, n_columns, n_users, scales, noise, n_kinds, seed):
    """No release and no noisy mean of the largest norm raises an error or a warning."""
    mean, rng = floored(np.array(item_means)), np.random.default_rng(seed)
    kinds = rng.integers(n_kinds, size=len(mean)).astype(str)
    features = ItemFeatures.of("item_features", {"kind": kinds}).align("item_features", np.arange(len(mean)))
    projections = inference.Projections(n_users, mean, prior_factors(features, mean))
    encoder = public_signs(len(mean), n_columns)
    for scale in scales:
        sums = scale * noise * rng.normal(size=encoder.shape)
        projections.add(sums if seed % 2 else -encoder * np.abs(sums), encoder, noise)
        encoder = projections.next_encoder()
        assert encoder.any()
    scoring = projections.form.about(mean).score(projections.factors, Candidate(1.0, 0.5), projections.noise)
    assert all(np.isfinite(array).all() for array in (scoring.left, scoring.right))
    assert (scoring.scales > 0).all()
    lengths = np.linalg.norm(projections.factors, axis=0)
    assert (np.diff(lengths) <= 0).all()


def test_popularity_takes_the_rest_of_the_budget_and_the_ledger_states_so(data, monkeypatch):
    prefer(monkeypatch, personal=False)
    model = DPSubspace(1.0).fit(data, key=Key.from_seed(2))
    assert not model.is_personal_
    assert not model.decision_.is_personal
    spent = sum(event.noise_multiplier**-2 for event in model.ledger_.events.elements())
    assert math.sqrt(spent) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    assert "DPSubspace chose popularity." in model.ledger_.summary()
    ids, scores = model.recommend(data.user_ids, n=80, filter_seen=False)
    assert (ids == ids[0]).all()
    np.testing.assert_array_equal(scores[0], np.sort(model.item_means_)[::-1])
    with pytest.raises(ValueError, match="released popularity only"):
        model.similar_items(data.item_ids[:1])
    with pytest.raises(ValueError, match="all users are recommended popular items"):
        model.explain(data.user_ids[0], data.item_ids[0])


@pytest.mark.parametrize("n_groups", [4, 1])
def test_devices_distinguish_groups_with_separate_items_from_random_rows(n_groups):
    rng = np.random.default_rng(1)
    groups = rng.integers(n_groups, size=4000)
    shares = n_groups * np.linspace(0.02, 0.12, 60)
    dense = (rng.random((4000, 60)) < shares) & (np.arange(60) % n_groups == groups[:, None])
    model = DPSubspace(1.0).fit(
        Interactions.from_scipy(scipy.sparse.csr_array(dense, dtype=np.float32)), key=Key.from_seed(1)
    )
    assert model.is_personal_ or n_groups == 1
    assert (model.decision_.gain > 5 * model.decision_.error) is (n_groups == 4)


def test_the_signal_is_of_public_numbers_only():
    signals = {DPSubspace(1.0, n_users=5000).fit(generated(n), key=Key.from_seed(2)).signal_ for n in (50, 900)}
    # Both numbers of rows give the same signal.
    (signal,) = signals
    assert signal == pytest.approx(5000 * gaussian_mu(1.0, 1e-6) / 80)


@pytest.mark.parametrize(("n_rounds", "n_events"), [(1, 3), (2, 5), ("auto", 6), (4, 7)])
def test_a_run_has_as_many_rounds_as_it_states(data, n_rounds, n_events, monkeypatch):
    """There are the mean, the projections, and one measurement before the last projection and one after it."""
    prefer(monkeypatch, personal=True)
    model = DPSubspace(4.0, n_columns=4, n_rounds=n_rounds).fit(data, key=Key.from_seed(2))
    assert sum(model.ledger_.events.values()) == n_events
    assert len(model.communication_.rounds) == n_events


def test_a_given_ridge_is_the_ridge_of_all_candidates(data):
    model = DPSubspace(4.0, n_columns=4, ridge=3.0).fit(data, key=Key.from_seed(2))
    assert {candidate.ridge for candidate in model.decision_.scores if candidate.personal_weight} == {3.0}


def test_costs_are_those_of_a_fit(data, caplog, monkeypatch):
    prefer(monkeypatch, personal=True, start="mean, pairs")
    model = DPSubspace(4.0, n_columns=4, n_rounds=3)
    with caplog.at_level(logging.INFO, "fastfedrec"):
        model.fit(data, key=Key.from_seed(2))
    rounds = model.communication_.rounds
    down, up = sum(r.download for r in rounds), sum(r.upload for r in rounds)
    assert model.costs(80) in caplog.messages
    assert f"receives {format_bytes(down)} and sends {format_bytes(up)} at most, in 7 rounds" in model.costs(80)
    assert f"holds {format_bytes(model.memory_needed(1, 80, 0))} beside" in model.costs(80)


def test_the_error_for_too_many_items_states_a_remedy(monkeypatch, data):
    needed = DPSubspace().memory_needed(*data.shape, 0)
    monkeypatch.setattr("fastfedrec.core.memory.memory_bytes", lambda: needed - 1)
    with pytest.raises(ValueError, match=r"grows with their number, and there are .*lower n_columns"):
        DPSubspace().fit(data)
    monkeypatch.setattr("fastfedrec.core.memory.memory_bytes", lambda: needed)
    assert DPSubspace().fit(data).item_means_.any()


def test_a_file_with_invalid_scales_is_refused(fitted, tmp_path):
    fitted.item_scales_[3], scale = 0.0, fitted.item_scales_[3]
    try:
        fitted.save(tmp_path / "model")
    finally:
        fitted.item_scales_[3] = scale
    with pytest.raises(ValueError, match="item_scales_"):
        load(tmp_path / "model")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_costs_of_no_items_are_refused(fitted):
    with pytest.raises(ValueError, match="n_items must be at least 1"):
        fitted.costs(0)


def test_one_item_and_one_user_fit():
    data = Interactions.from_arrays([1, 2, 2], ["a", "a", "b"])
    for part in (data, data.top_items(1)):
        model = DPSubspace().fit(part, key=Key.from_seed(1))
        assert np.isfinite(model.recommend(part.user_ids, n=1, filter_seen=False)[1]).all()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_many_items_gain_over_popularity():
    """The smallest case of the page has half the users, and so half the signal, of the recommended minimum."""
    data = datasets.generate_implicit(50_000, 10_000, key=Key.from_seed(1), mean_interactions=30.0)
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(1)))
    model = DPSubspace(1.0).fit(train, key=Key.from_seed(3))
    some = train.select_users(train.user_ids[::10])
    held_out = test.select_users(some.user_ids)

    def hit_ratio(model):
        options = {"metrics": ["hr@10"], "candidates": Sampled(99), "key": Key.from_seed(1)}
        return evaluate(model, some, held_out, **options)["hr@10"]

    popular = hit_ratio(Popularity().fit(some))
    assert hit_ratio(model.with_users(some)) >= popular + 0.08
