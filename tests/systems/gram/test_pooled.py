"""DPGram's estimate from pairs and rounds of columns: its twin, its noise, and the weights of the releases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.gram import pooled as naive
from naive.systems.gram.columns import hollow

from fastfedrec import Key, datasets
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.systems._pair_matrix import PairMatrix
from fastfedrec.systems.gram import pooled, shrinkage
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.pooled import PooledPairs, wiener_weights
from fastfedrec.systems.gram.shrinkage import RANK

KAPPA = 0.002
LARGE = 1e6  # trace of a users' matrix that leaves room for any estimate, so that no item's square is above its bound
NOISE = 1.0  # standard deviation of the noise of a pair


class Form(PairForm):
    """A form with a known scale of the sums of columns."""

    def strength(self, sums, encoder, n_users):
        return KAPPA


def symmetric_noise(n, rng):
    upper = np.triu(rng.normal(size=(n, n)), 1)
    return upper + upper.T


def noisy_pairs(true, seed=3):
    """Return a release of a matrix, without a diagonal."""
    return hollow(true + NOISE * symmetric_noise(len(true), np.random.default_rng(seed))).astype(np.float32)


def estimate_of(pairs, features=None, n_threads=1):
    n = len(pairs)
    form = Form(np.ones(n) / n, True, LARGE)
    return PooledPairs(PairMatrix(pairs.copy(), NOISE, np.ones(n)), form, 100, features, n_threads)


def answer(true, encoder, noise, seed=5):
    """Return the noisy sums of a round for a matrix."""
    return KAPPA * hollow(true) @ encoder + noise * np.random.default_rng(seed).normal(size=encoder.shape)


def with_rounds(estimate, true, noises=(1.0, 0.5), n_columns=10):
    """Return an estimate after one round about this matrix for each noise."""
    for seed, noise in enumerate(noises):
        encoder = estimate.encoder(np.zeros((len(true), n_columns), np.int16))
        estimate.add(answer(true, encoder, noise, seed), encoder, noise)
    return estimate


def square(strengths, n, seed=1):
    """Return a matrix with these eigenvalues and random eigenvectors."""
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, len(strengths))))[0]
    return (vectors * strengths) @ vectors.T


def distance(factors, true):
    """Return the distance of an estimate from a matrix off the diagonal, which releases do not contain."""
    return np.linalg.norm(hollow(factors @ factors.T - true))


def likeliest(estimate):
    """Return the matrix before it is denoised: the whitened one, with the whitening undone."""
    matrix, basis, scales = whitened(estimate)
    back = np.eye(len(matrix)) + (basis * (1 / scales - 1)) @ basis.T
    return estimate._pair_noise * back @ matrix @ back


def whitened(estimate):
    basis, precisions = pooled._directions(estimate._pair_noise * estimate._columns)
    scales = np.sqrt(1 + precisions)
    return estimate._whitened(basis, precisions, scales).astype(np.float64), basis, scales


# ---- oracle ---------------------------------------------------------------------------------------------------------


def encoders(case, n, rng):
    drawn = [rng.integers(-900, 900, size=(n, 4)).astype(np.int16) for _ in range(3)]
    if case == "one round":
        return drawn[:1]
    if case == "the same three times":
        return 3 * drawn[:1]
    if case == "more columns than items":
        return [np.hstack([drawn[0], drawn[1], drawn[2]]), *drawn]
    if case == "columns that are multiples":
        drawn[0][:, 1:3] = np.outer(drawn[0][:, 0], [1, -2])
        drawn[1][:, 0] = drawn[0][:, 0]
    if case == "columns of zeros":
        drawn[0][:, 1] = 0
        drawn[1][:] = 0
    return drawn


CASES = [
    "one round", "three rounds", "the same three times", "more columns than items", "columns that are multiples",
    "columns of zeros",
]  # fmt: skip


@pytest.mark.parametrize("n", [5, 9])
@pytest.mark.parametrize("case", CASES)
def test_the_most_likely_matrix_equals_naive_twin(case, n):
    rng = np.random.default_rng(n)
    true = 3 * square([9.0, 4.0, 1.0], n)
    pairs, rounds = noisy_pairs(true), []
    estimate = estimate_of(pairs)
    for number, encoder in enumerate(encoders(case, n, rng)):
        noise = (3.0, 5.0, 8.0, 13.0)[number]
        sums = answer(true, encoder, noise, number)
        estimate.add(sums, encoder, noise)
        rounds.append((KAPPA * encoder, sums, noise))
    _ = estimate.factors
    diagonal = estimate._diagonal
    assert diagonal.any()
    estimated, expected = likeliest(estimate), naive.most_likely(pairs, NOISE, rounds, diagonal)
    np.testing.assert_allclose(estimated, expected, atol=1e-5 * np.abs(expected).max())
    # Pairs alone give another matrix, and so do sums with half the stated noise.
    wrong_rounds = [(columns, sums, noise / 2) for columns, sums, noise in rounds]
    for wrong in (
        naive.most_likely(pairs, NOISE, [], diagonal),
        naive.most_likely(pairs, NOISE, wrong_rounds, diagonal),
    ):
        assert np.abs(estimated - wrong).max() > 0.02 * np.abs(expected).max()


def case_with_features(n=70, seed=3):
    """Return a matrix of pairs of items in groups, and the features of the groups."""
    rng = np.random.default_rng(seed)
    groups, tastes = rng.integers(0, 5, n), rng.normal(size=(n, 3))
    features = ItemFeatures.of("item_features", {"group": groups.astype(str)}).align("item_features", np.arange(n))
    return 3.0 * (groups[:, None] == groups) + tastes @ tastes.T, features


@pytest.mark.parametrize("has_features", [False, True])
def test_pairs_alone_have_the_estimate_of_pairs_in_two_passes(monkeypatch, has_features):
    true, features = case_with_features()
    pairs, features = noisy_pairs(true), features if has_features else None
    estimate = estimate_of(pairs, features)
    estimated, expected = estimate.factors @ estimate.factors.T, {}
    for n_passes in (1, 2):
        monkeypatch.setattr(shrinkage, "_N_PASSES", n_passes)
        factors = denoise_with_features(pairs.copy(), NOISE, features, np.ones(70) / 70)
        expected[n_passes] = factors @ factors.T
    np.testing.assert_allclose(estimated, expected[2], atol=1e-4 * estimated.max())
    assert np.abs(estimated - expected[1]).max() > 1e-3 * estimated.max()


@settings(max_examples=200)
@given(
    items=st.lists(st.tuples(st.integers(0, 1_000), st.integers(-9, 1_000)), min_size=1, max_size=9),
    scale=st.sampled_from([0.25, 8.0]),
)
def test_item_weights_equal_naive_twin(items, scale):
    squares, largest = np.array(items, dtype=float).T
    weights = wiener_weights(squares, largest)
    np.testing.assert_allclose(weights, naive.wiener_weights(squares.tolist(), largest.tolist()), rtol=1e-12)
    assert ((weights >= 0) & (weights <= 1)).all()
    np.testing.assert_allclose(wiener_weights(scale * squares, scale * largest), weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("preset", "n_items", "is_full", "largest"),
    [("check-ins", 80, True, 0.1), ("movielens-1m", 200, True, 0.3), ("purchases", 300, False, 0.1)],
)
def test_the_bounds_of_squares_are_near_the_diagonal_of_users_contributions(preset, n_items, is_full, largest):
    rows = datasets.generate_implicit(3_000, n_items, key=Key.from_seed(1), preset=preset).to_scipy().toarray()
    rows = rows[rows.sum(axis=1) > 1]
    lengths = rows.sum(axis=1, keepdims=True)
    rows = rows / np.sqrt(lengths)
    form = PairForm.of(rows.mean(axis=0), len(rows))
    assert form.is_full == is_full
    if is_full:  # a user's whole matrix has norm sqrt(2)
        rows = rows - form.mean
        expected = math.sqrt(2) * (np.square(rows) / np.square(rows).sum(axis=1, keepdims=True)).sum(axis=0)
    else:  # the pairs i < j of a user have norm 1
        expected = (np.square(rows) * np.sqrt(2 / (1 - 1 / lengths))).sum(axis=0) - form.weight * form.mean**2
    assert np.abs(form.personal_squares - expected).sum() < largest * expected.sum()
    # The controls: popularity is not subtracted from long rows, and a trace of half the size.
    if is_full:
        assert np.abs(form.about(form.mean).item_squares - expected).sum() > 3 * largest * expected.sum()
    assert np.abs(form.personal_squares / 2 - expected).sum() > 0.4 * expected.sum()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_factors_are_orthogonal_and_strongest_first_and_no_more_than_items():
    true = square(np.geomspace(90.0, 1.0, 30), 30)
    estimate = estimate_of(noisy_pairs(true))
    for _ in range(3):  # the rounds of a run
        with_rounds(estimate, true, (1.0,))
        for factors in (estimate.leading, estimate.factors):
            inner = factors.T @ factors
            assert 1 < len(inner) <= 30
            np.testing.assert_allclose(inner, np.diag(inner.diagonal()), atol=1e-5 * inner.max())
            assert (np.diff(inner.diagonal()) <= 0).all()


def test_estimates_between_rounds_have_fewer_factors_than_the_last_one():
    true = square(np.linspace(900.0, 500.0, 350), 400)
    estimate = with_rounds(estimate_of(noisy_pairs(true)), true, (1.0,))
    assert (estimate.leading.shape, estimate.factors.shape) == ((400, 96), (400, RANK))


def test_a_round_without_columns_keeps_the_estimate_and_its_budget_counts():
    true = square([60.0, 40.0], 50)
    estimate = estimate_of(noisy_pairs(true))
    before = estimate.leading
    estimate.add(np.ones((50, 4)), np.zeros((50, 4), np.int16), 0.5)
    np.testing.assert_array_equal(estimate.leading, before)
    assert estimate.noise == pytest.approx((NOISE**-2 + 0.5**-2) ** -0.5, rel=1e-12)
    with_rounds(estimate, true, (0.25,))
    assert not np.array_equal(estimate.leading, before)
    assert estimate.noise == pytest.approx((NOISE**-2 + 0.5**-2 + 0.25**-2) ** -0.5, rel=1e-12)


def test_unused_columns_do_not_change_the_estimate():
    """The scale of the sums, computed as in real rounds, does not change either."""
    true = square([60.0, 40.0], 50)
    form = PairForm.of(np.full(50, 0.05), 100)
    encoder = next_encoder(estimate_of(noisy_pairs(true)).leading, 6, NOISE)
    estimates = []
    for n_more in (0, 3):
        estimate = PooledPairs(PairMatrix(noisy_pairs(true), NOISE, np.ones(50)), form, 100, None, 1)
        more, sums = np.zeros((50, n_more), np.int16), np.full((50, n_more), 7.0)
        estimate.add(np.hstack([answer(true, encoder, 0.5), sums]), np.hstack([encoder, more]), 0.5)
        estimates.append(estimate.factors)
    np.testing.assert_array_equal(*estimates)


def test_estimates_leave_the_release_as_it_is():
    """Only the prior of the features is subtracted once, and each estimate starts at the result."""
    true, features = case_with_features()
    for item_features in (None, features):
        pairs = PairMatrix(noisy_pairs(true), NOISE, np.ones(70))
        estimate = PooledPairs(pairs, Form(np.ones(70) / 70, True, LARGE), 100, item_features, 1)
        before = pairs.values.copy()
        assert np.array_equal(before, noisy_pairs(true)) == (item_features is None)
        _ = with_rounds(estimate, true).factors
        np.testing.assert_array_equal(pairs.values, before)


def test_an_empty_estimate_stays_empty():
    estimate = estimate_of(np.zeros((7, 7), np.float32))
    encoder = estimate.encoder(np.zeros((7, 5), np.int16))
    assert not encoder.any()
    estimate.add(np.ones((7, 5)), encoder, 1.0)
    assert estimate.factors.shape == estimate.leading.shape == (7, 0)


def test_releases_that_leave_no_eigenvalue_above_0_are_no_error():
    """The columns of two items have negative diagonal entries."""
    estimate, encoder = estimate_of(np.zeros((2, 2), np.float32) + 1e-3), np.diag([900, 900]).astype(np.int16)
    estimate.add(-900.0 * np.eye(2), encoder, 0.1)
    assert estimate.factors.shape == (2, 0)


def filtered(monkeypatch, rank=100):
    """Select the code for many items, which needs more than four times as many items as the rank."""
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    monkeypatch.setattr(pooled, "RANK", rank)


def large_case(has_features, n):
    groups, features = case_with_features(n)
    true = square([200.0, 100.0, 70.0], n) + groups
    return true, noisy_pairs(true), features if has_features else None


@pytest.mark.parametrize("has_features", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_threads_give_the_same_bits(monkeypatch, is_large, has_features):
    if is_large:
        filtered(monkeypatch)
    true, pairs, features = large_case(has_features, 450)
    one, four = (with_rounds(estimate_of(pairs, features, n), true) for n in (1, 4))
    np.testing.assert_array_equal(one.leading, four.leading)
    np.testing.assert_array_equal(one.factors, four.factors)


@pytest.mark.parametrize("has_features", [False, True])
def test_a_large_matrix_has_the_estimate_of_a_full_decomposition(monkeypatch, has_features):
    true, pairs, features = large_case(has_features, 900)
    monkeypatch.setattr(pooled, "RANK", 100)
    monkeypatch.setattr(pooled, "non_negative", lambda factors, shared: factors)  # it is the same code for all sizes
    expected = with_rounds(estimate_of(pairs, features), true).factors
    filtered(monkeypatch)
    factors = with_rounds(estimate_of(pairs, features), true).factors
    assert not np.array_equal(factors, expected)  # the results come from different code
    apart = np.linalg.norm(factors @ factors.T - expected @ expected.T)
    assert apart < 0.02 * np.linalg.norm(expected @ expected.T)
    from_pairs = estimate_of(pairs, features).factors  # the rounds change the estimate by more
    assert np.linalg.norm(from_pairs @ from_pairs.T - expected @ expected.T) > 2 * apart


# ---- statistics -----------------------------------------------------------------------------------------------------


def whitened_variances(stated, n=300, n_draws=4, widths=(1.0, 2.0)):
    """Return variances of pure noise outside the directions of columns, between both, and within the directions."""
    squares = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        estimate = estimate_of(noisy_pairs(np.zeros((n, n)), seed))
        for width in widths:
            encoder = rng.integers(-300, 300, size=(n, 8)).astype(np.int16)
            estimate.add(width * rng.normal(size=(n, 8)), encoder, stated * width)
        estimate._diagonal = np.zeros(n)  # the diagonal of the matrix without noise
        matrix, basis, _ = whitened(estimate)
        turn = np.linalg.qr(np.hstack([basis, rng.normal(size=(n, n - basis.shape[1]))]))[0]
        k, turned = basis.shape[1], turn.T @ matrix @ turn
        assert k == 16
        outside = turned[k:, k:][np.triu_indices(n - k, 1)]
        squares.append([np.square(part).mean() for part in (outside, turned[:k, k:], turned[:k, :k])])
    return np.mean(squares, axis=0)


def test_whitened_noise_has_variance_1_except_within_the_directions_of_columns():
    """Each mean is over more than 18,000 entries, so that its error is about a hundredth."""
    outside, beside, within = whitened_variances(1.0)
    assert outside == pytest.approx(1.0, abs=0.03)
    assert beside == pytest.approx(1.0, abs=0.05)
    assert within > 1.2
    # A stated noise of half the size changes the variances of entries with columns.
    outside, beside, _ = whitened_variances(0.5)
    assert outside == pytest.approx(1.0, abs=0.03)
    assert beside > 1.5


def test_answers_that_are_precise_bring_the_estimate_nearer():
    true = square([60.0, 50.0, 45.0, 35.0, 30.0], 300)
    pairs = noisy_pairs(true)
    before = distance(estimate_of(pairs).factors, true)
    after = distance(with_rounds(estimate_of(pairs), true).factors, true)
    assert after < 0.7 * before
    # Sums in wrong units do not improve the estimate.
    estimate = estimate_of(pairs)
    for noise in (1.0, 0.5):
        encoder = estimate.encoder(np.zeros((300, 10), np.int16))
        estimate.add(7 * answer(true, encoder, noise), encoder, 7 * noise)
    assert distance(estimate.factors, true) > before


def test_exact_sums_improve_the_estimate_in_the_measured_directions():
    """In the measured directions the estimate equals the true matrix, while pairs alone have noise."""
    true = square([90.0, 70.0, 50.0], 200)
    estimate = estimate_of(noisy_pairs(true))
    encoder = estimate.encoder(np.zeros((200, 10), np.int16))

    def away():
        factors = estimate.factors
        return np.linalg.norm(hollow(factors @ factors.T - true) @ (encoder / np.linalg.norm(encoder, axis=0)))

    before = away()
    estimate.add(answer(true, encoder, 0.0), encoder, 1e-3)
    assert away() < 0.1 * before


def distances_with_items_of_two_kinds(strength, is_swapped=False, is_full=False):
    """Return relative distances of estimates with and without weights; half of the items have little signal."""
    n, rng = 200, np.random.default_rng(7)
    sizes = np.where(np.arange(n) < n // 2, 1.0, 0.01)
    tastes = np.sqrt(strength * sizes / 40)[:, None] * rng.normal(size=(n, 40))
    true = tastes @ tastes.T
    # The mean leaves each item the square of its tastes, up to a common factor; the control has it of other items.
    mean = (sizes[::-1] if is_swapped else sizes) / sizes.sum()
    form = Form(mean, is_full, strength * sizes.sum())
    estimate = PooledPairs(PairMatrix(noisy_pairs(true), NOISE, np.ones(n)), form, 100, None, 1)
    _ = estimate.factors  # later estimates have the same diagonal
    raw = estimate._joined(estimate._vectors, RANK)
    with pytest.MonkeyPatch.context() as patch:  # the matrix has negative entries
        patch.setattr(pooled, "non_negative", lambda factors, shared: factors)
        estimates = raw, estimate.factors, estimate.directions, estimate.leading
    return [distance(factors, true) / np.linalg.norm(hollow(true)) for factors in estimates]


def test_weights_of_items_bring_a_noisy_estimate_nearer_and_leave_a_precise_one():
    raw, weighted, raw_leading, weighted_leading = distances_with_items_of_two_kinds(8.0)
    assert weighted < 0.93 * raw
    assert weighted_leading < 0.93 * raw_leading
    raw, weighted, *_ = distances_with_items_of_two_kinds(8.0, is_swapped=True)  # the control
    assert weighted > 1.1 * raw
    raw, weighted, *_ = distances_with_items_of_two_kinds(1e3)
    assert weighted == pytest.approx(raw, rel=0.02)
    raw, weighted, *_ = distances_with_items_of_two_kinds(8.0, is_full=True)  # long rows have no weights
    assert weighted == pytest.approx(raw, rel=1e-9)


def test_an_answer_that_is_noise_changes_little():
    true = square([60.0, 50.0, 45.0], 200)
    pairs = noisy_pairs(true)

    def moved(stated):
        estimate = estimate_of(pairs)
        before = estimate.factors
        encoder = estimate.encoder(np.zeros((200, 10), np.int16))
        estimate.add(answer(true, encoder, 300.0), encoder, stated)
        return distance(estimate.factors, before @ before.T) / np.linalg.norm(hollow(before @ before.T))

    assert moved(300.0) < 0.05
    assert moved(3.0) > 0.5  # a smaller stated noise gives the sums more weight


@pytest.mark.parametrize("has_features", [False, True])
def test_precise_columns_overrule_pairs_and_features(has_features):
    """Pairs and features have a signal that columns contradict or confirm."""
    true, features = case_with_features(200)
    pairs, features = noisy_pairs(true), features if has_features else None
    lengths = {}
    for noise in (0.01, 300.0):
        for factor in (0.0, 1.0):
            estimate = with_rounds(estimate_of(pairs, features), factor * true, (noise, noise), n_columns=20)
            factors = estimate.factors
            lengths[noise, factor] = np.linalg.norm(hollow(factors @ factors.T)) / np.linalg.norm(hollow(true))
    assert lengths[0.01, 0.0] < 0.15
    assert lengths[0.01, 1.0] == pytest.approx(1.0, abs=0.1)
    assert lengths[300.0, 0.0] == pytest.approx(1.0, abs=0.1)  # noisy columns have little weight


def test_informative_features_improve_the_estimate():
    """Columns are as noisy as pairs.  Random groups have no prior, so they do not change the estimate."""
    true, features = case_with_features(300, seed=8)
    true, groups = true / 8, np.random.default_rng(3).integers(0, 5, 300).astype(str)
    wrong = ItemFeatures.of("item_features", {"group": groups}).align("item_features", np.arange(300))
    pairs = noisy_pairs(true)
    without, informed, misled = (
        with_rounds(estimate_of(pairs, of), true, (20.0, 20.0)) for of in (None, features, wrong)
    )
    assert (informed._prior.shape[1], misled._prior.shape[1]) == (5, 0)
    of_none = without.factors
    assert distance(informed.factors, true) < 0.9 * distance(of_none, true)
    np.testing.assert_array_equal(misled.factors, of_none)
