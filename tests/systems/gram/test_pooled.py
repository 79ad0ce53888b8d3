"""DPGram's estimate from pairs and rounds of columns: its twin, its noise, and which release it follows how far."""

import numpy as np
import pytest
from naive.systems.gram import pooled as naive
from naive.systems.gram.columns import hollow

from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.systems.gram import pooled, shrinkage
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features
from fastfedrec.systems.gram.columns import next_encoder
from fastfedrec.systems.gram.decision import PairMatrix
from fastfedrec.systems.gram.pairs import PairForm
from fastfedrec.systems.gram.pooled import PooledPairs
from fastfedrec.systems.gram.shrinkage import RANK

KAPPA = 0.002
NOISE = 1.0  # of a pair


class Form(PairForm):
    """A form whose sums of columns have a known scale."""

    def strength(self, sums, encoder, n_users):
        return KAPPA


def symmetric_noise(n, rng):
    upper = np.triu(rng.normal(size=(n, n)), 1)
    return upper + upper.T


def noisy_pairs(true, seed=3):
    """A release of a matrix; its diagonal is missing."""
    return hollow(true + NOISE * symmetric_noise(len(true), np.random.default_rng(seed))).astype(np.float32)


def estimate_of(pairs, features=None, n_threads=1):
    n = len(pairs)
    form = Form(np.ones(n) / n, True, 1.0)
    return PooledPairs(PairMatrix(pairs.copy(), NOISE, np.ones(n)), form, 100, features, n_threads)


def answer(true, encoder, noise, seed=5):
    """Noisy sums that users send about a matrix."""
    return KAPPA * hollow(true) @ encoder + noise * np.random.default_rng(seed).normal(size=encoder.shape)


def with_rounds(estimate, true, noises=(1.0, 0.5), n_columns=10):
    """An estimate after it has asked about this matrix once for each noise."""
    for seed, noise in enumerate(noises):
        encoder = estimate.encoder(np.zeros((len(true), n_columns), np.int16))
        estimate.add(answer(true, encoder, noise, seed), encoder, noise)
    return estimate


def square(strengths, n, seed=1):
    """A matrix with these eigenvalues, in directions at random."""
    vectors = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, len(strengths))))[0]
    return (vectors * strengths) @ vectors.T


def distance(factors, true):
    """How far an estimate is from a matrix off the diagonal, which nothing but pairs tells of."""
    return np.linalg.norm(hollow(factors @ factors.T - true))


def most_likely(estimate):
    """The matrix before it is denoised: the whitened one, without its whitening."""
    matrix, basis, scales = whitened(estimate)
    back = np.eye(len(matrix)) + (basis * (1 / scales - 1)) @ basis.T
    return estimate._pair_noise * back @ matrix @ back


def whitened(estimate):
    basis, precisions = pooled._directions(estimate._pair_noise * estimate._columns)
    scales = np.sqrt(1 + precisions)
    return estimate._whitened(basis, precisions, scales).astype(np.float64), basis, scales


# ---- oracle ---------------------------------------------------------------------------------------------------------


def encoders(case, n, rng):
    found = [rng.integers(-900, 900, size=(n, 4)).astype(np.int16) for _ in range(3)]
    if case == "one round":
        return found[:1]
    if case == "the same three times":
        return 3 * found[:1]
    if case == "more columns than items":
        return [np.hstack([found[0], found[1], found[2]]), *found]
    if case == "columns that are multiples":
        found[0][:, 1:3] = np.outer(found[0][:, 0], [1, -2])
        found[1][:, 0] = found[0][:, 0]
    if case == "columns of zeros":
        found[0][:, 1] = 0
        found[1][:] = 0
    return found


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
    diagonal = estimate._diagonal
    assert diagonal.any()
    found, expected = most_likely(estimate), naive.most_likely(pairs, NOISE, rounds, diagonal)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    # Neither pairs alone nor answers of half the noise have this matrix.
    others = [(asked, sums, noise / 2) for asked, sums, noise in rounds]
    for wrong in (naive.most_likely(pairs, NOISE, [], diagonal), naive.most_likely(pairs, NOISE, others, diagonal)):
        assert np.abs(found - wrong).max() > 0.02 * np.abs(expected).max()


def case_with_features(n=70, seed=3):
    """A matrix of pairs of items in groups, and what is known of these."""
    rng = np.random.default_rng(seed)
    groups, tastes = rng.integers(0, 5, n), rng.normal(size=(n, 3))
    features = ItemFeatures.of("item_features", {"group": groups.astype(str)}).align("item_features", np.arange(n))
    return 3.0 * (groups[:, None] == groups) + tastes @ tastes.T, features


@pytest.mark.parametrize("is_told", [False, True])
def test_pairs_alone_have_the_estimate_of_pairs_in_two_passes(monkeypatch, is_told):
    true, features = case_with_features()
    pairs, features = noisy_pairs(true), features if is_told else None
    estimate = estimate_of(pairs, features)
    found, expected = estimate.factors @ estimate.factors.T, {}
    for n_passes in (1, 2):
        monkeypatch.setattr(shrinkage, "_N_PASSES", n_passes)
        factors = denoise_with_features(pairs.copy(), NOISE, features, np.ones(70) / 70)
        expected[n_passes] = factors @ factors.T
    np.testing.assert_allclose(found, expected[2], atol=1e-4 * found.max())
    assert np.abs(found - expected[1]).max() > 1e-3 * found.max()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_factors_are_orthogonal_and_strongest_first_and_no_more_than_items():
    true = square(np.geomspace(90.0, 1.0, 30), 30)
    estimate = estimate_of(noisy_pairs(true))
    for _ in range(3):  # as the rounds of a run
        with_rounds(estimate, true, (1.0,))
        for factors in (estimate.leading, estimate.factors):
            inner = factors.T @ factors
            assert 1 < len(inner) <= 30
            np.testing.assert_allclose(inner, np.diag(inner.diagonal()), atol=1e-8 * inner.max())
            assert (np.diff(inner.diagonal()) <= 0).all()


def test_estimates_between_rounds_have_fewer_factors_than_the_last_one():
    true = square(np.linspace(900.0, 500.0, 350), 400)
    estimate = with_rounds(estimate_of(noisy_pairs(true)), true, (1.0,))
    assert (estimate.leading.shape, estimate.factors.shape) == ((400, 96), (400, RANK))


def test_a_round_without_columns_tells_nothing_and_the_noise_of_its_budget_is_counted():
    true = square([60.0, 40.0], 50)
    estimate = estimate_of(noisy_pairs(true))
    before = estimate.leading
    estimate.add(np.ones((50, 4)), np.zeros((50, 4), np.int16), 0.5)
    assert estimate.leading is before
    assert estimate.noise == pytest.approx((NOISE**-2 + 0.5**-2) ** -0.5, rel=1e-12)
    with_rounds(estimate, true, (0.25,))
    assert not np.array_equal(estimate.leading, before)
    assert estimate.noise == pytest.approx((NOISE**-2 + 0.5**-2 + 0.25**-2) ** -0.5, rel=1e-12)


def test_columns_that_are_not_used_change_nothing():
    """In the scale of the answer either, which is that of real rounds here."""
    true = square([60.0, 40.0], 50)
    form = PairForm.of(np.full(50, 0.05), 100)
    encoder = next_encoder(estimate_of(noisy_pairs(true)).leading, 6, NOISE)
    found = []
    for n_more in (0, 3):
        estimate = PooledPairs(PairMatrix(noisy_pairs(true), NOISE, np.ones(50)), form, 100, None, 1)
        more, sums = np.zeros((50, n_more), np.int16), np.full((50, n_more), 7.0)
        estimate.add(np.hstack([answer(true, encoder, 0.5), sums]), np.hstack([encoder, more]), 0.5)
        found.append(estimate.factors)
    np.testing.assert_array_equal(*found)


def test_estimates_leave_the_release_as_it_is():
    """Of what features say it is without; each estimate begins at it again."""
    true, features = case_with_features()
    for told in (None, features):
        pairs = PairMatrix(noisy_pairs(true), NOISE, np.ones(70))
        estimate = PooledPairs(pairs, Form(np.ones(70) / 70, True, 1.0), 100, told, 1)
        before = pairs.values.copy()
        assert np.array_equal(before, noisy_pairs(true)) == (told is None)
        _ = with_rounds(estimate, true).factors
        np.testing.assert_array_equal(pairs.values, before)


def test_nothing_known_stays_nothing():
    estimate = estimate_of(np.zeros((7, 7), np.float32))
    encoder = estimate.encoder(np.zeros((7, 5), np.int16))
    assert not encoder.any()
    estimate.add(np.ones((7, 5)), encoder, 1.0)
    assert estimate.factors.shape == estimate.leading.shape == (7, 0)


def test_releases_that_leave_no_eigenvalue_above_0_are_no_error():
    """Two items whose columns say that each is less than nothing."""
    estimate, encoder = estimate_of(np.zeros((2, 2), np.float32) + 1e-3), np.diag([900, 900]).astype(np.int16)
    estimate.add(-900.0 * np.eye(2), encoder, 0.1)
    assert estimate.factors.shape == (2, 0)


def filtered(monkeypatch, rank=100):
    """Take the path of many items, which finds some of the eigenvectors; it needs more than four times the rank."""
    monkeypatch.setattr(shrinkage, "_MAX_FULL", 0)
    monkeypatch.setattr(pooled, "RANK", rank)


def large_case(is_told, n):
    groups, features = case_with_features(n)
    true = square([200.0, 100.0, 70.0], n) + groups
    return true, noisy_pairs(true), features if is_told else None


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_threads_give_the_same_bits(monkeypatch, is_large, is_told):
    if is_large:
        filtered(monkeypatch)
    true, pairs, features = large_case(is_told, 450)
    one, four = (with_rounds(estimate_of(pairs, features, n), true) for n in (1, 4))
    np.testing.assert_array_equal(one.leading, four.leading)
    np.testing.assert_array_equal(one.factors, four.factors)


@pytest.mark.parametrize("is_told", [False, True])
def test_a_large_matrix_has_the_estimate_of_a_full_decomposition(monkeypatch, is_told):
    true, pairs, features = large_case(is_told, 900)
    monkeypatch.setattr(pooled, "RANK", 100)
    expected = with_rounds(estimate_of(pairs, features), true).factors
    filtered(monkeypatch)
    factors = with_rounds(estimate_of(pairs, features), true).factors
    assert not np.array_equal(factors, expected)  # it is another path
    apart = np.linalg.norm(factors @ factors.T - expected @ expected.T)
    assert apart < 0.02 * np.linalg.norm(expected @ expected.T)
    alone = estimate_of(pairs, features).factors  # what rounds are worth is more than that
    assert np.linalg.norm(alone @ alone.T - expected @ expected.T) > 2 * apart


# ---- statistics -----------------------------------------------------------------------------------------------------


def whitened_variances(stated, n=300, n_draws=4, widths=(1.0, 2.0)):
    """Of pure noise: outside of the directions that columns tell of, beside these, and within them."""
    squares = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        estimate = estimate_of(noisy_pairs(np.zeros((n, n)), seed))
        for width in widths:
            encoder = rng.integers(-300, 300, size=(n, 8)).astype(np.int16)
            estimate.add(width * rng.normal(size=(n, 8)), encoder, stated * width)
        estimate._diagonal = np.zeros(n)  # that of the matrix behind the noise
        matrix, basis, _ = whitened(estimate)
        turn = np.linalg.qr(np.hstack([basis, rng.normal(size=(n, n - basis.shape[1]))]))[0]
        k, turned = basis.shape[1], turn.T @ matrix @ turn
        assert k == 16
        outside = turned[k:, k:][np.triu_indices(n - k, 1)]
        squares.append([np.square(part).mean() for part in (outside, turned[:k, k:], turned[:k, :k])])
    return np.mean(squares, axis=0)


def test_whitened_noise_has_variance_1_outside_of_the_block_that_columns_tell_twice():
    """Each mean is over more than 18,000 entries, so that its error is about a hundredth."""
    outside, beside, within = whitened_variances(1.0)
    assert outside == pytest.approx(1.0, abs=0.03)
    assert beside == pytest.approx(1.0, abs=0.05)
    assert within > 1.2
    # Noise that is stated half as large is seen where columns tell of it.
    outside, beside, _ = whitened_variances(0.5)
    assert outside == pytest.approx(1.0, abs=0.03)
    assert beside > 1.5


def test_answers_that_are_precise_bring_the_estimate_nearer():
    true = square([60.0, 50.0, 45.0, 35.0, 30.0], 300)
    pairs = noisy_pairs(true)
    before = distance(estimate_of(pairs).factors, true)
    found = distance(with_rounds(estimate_of(pairs), true).factors, true)
    assert found < 0.7 * before
    # In the wrong units they are no nearer.
    estimate = estimate_of(pairs)
    for noise in (1.0, 0.5):
        encoder = estimate.encoder(np.zeros((300, 10), np.int16))
        estimate.add(7 * answer(true, encoder, noise), encoder, 7 * noise)
    assert distance(estimate.factors, true) > before


def test_an_answer_that_agrees_exactly_brings_the_estimate_nearer_where_it_tells():
    """In the directions that were asked for the estimate is then the true matrix; pairs alone leave their noise."""
    true = square([90.0, 70.0, 50.0], 200)
    estimate = estimate_of(noisy_pairs(true))
    encoder = estimate.encoder(np.zeros((200, 10), np.int16))

    def away():
        factors = estimate.factors
        return np.linalg.norm(hollow(factors @ factors.T - true) @ (encoder / np.linalg.norm(encoder, axis=0)))

    before = away()
    estimate.add(answer(true, encoder, 0.0), encoder, 1e-3)
    assert away() < 0.1 * before


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
    assert moved(3.0) > 0.5  # it is believed if its noise is said to be smaller


@pytest.mark.parametrize("is_told", [False, True])
def test_what_precise_columns_do_not_find_is_taken_back(is_told):
    """Pairs, and what features say, tell of a matrix that columns contradict or bear out."""
    true, features = case_with_features(200)
    pairs, features = noisy_pairs(true), features if is_told else None
    lengths = {}
    for noise in (0.01, 300.0):
        for factor in (0.0, 1.0):
            estimate = with_rounds(estimate_of(pairs, features), factor * true, (noise, noise), n_columns=20)
            factors = estimate.factors
            lengths[noise, factor] = np.linalg.norm(hollow(factors @ factors.T)) / np.linalg.norm(hollow(true))
    assert lengths[0.01, 0.0] < 0.15
    assert lengths[0.01, 1.0] == pytest.approx(1.0, abs=0.1)
    assert lengths[300.0, 0.0] == pytest.approx(1.0, abs=0.1)  # columns of much noise are not followed


def test_what_features_say_is_in_the_estimate_and_helps():
    """Where columns are as noisy as pairs.  Of groups at random nothing is told, so nothing is another."""
    true, features = case_with_features(300, seed=8)
    true, groups = true / 8, np.random.default_rng(3).integers(0, 5, 300).astype(str)
    wrong = ItemFeatures.of("item_features", {"group": groups}).align("item_features", np.arange(300))
    pairs = noisy_pairs(true)
    without, told, misled = (with_rounds(estimate_of(pairs, of), true, (20.0, 20.0)) for of in (None, features, wrong))
    assert (told._prior.shape[1], misled._prior.shape[1]) == (5, 0)
    of_none = without.factors
    assert distance(told.factors, true) < 0.9 * distance(of_none, true)
    np.testing.assert_array_equal(misled.factors, of_none)
