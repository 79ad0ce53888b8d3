"""Private k-means: swaps against brute force, and the exponential mechanism by its exact integer weights."""

import itertools
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.private_prototypes import private_kmeans as naive
from support.significance import counts_are, tilted
from support.strategies import seeds

from fastfedrec import Key, hardware
from fastfedrec.accounting import PureAccountant, ZCDPAccountant
from fastfedrec.mechanisms.bounded_rows import grid_candidates
from fastfedrec.mechanisms.noise.exact_sampling import exp_minus
from fastfedrec.systems.private_prototypes.private_kmeans import (
    LEVELS,
    clustering_events,
    draw_loss,
    private_kmeans,
    selection_weights,
    swap_losses,
)
from fastfedrec.systems.private_prototypes.private_lloyd import private_lloyd

KEY = Key.from_seed(1)


def points(n, p=2, seed=0):
    return np.random.default_rng(seed).uniform(-0.7, 0.7, (n, p))


def levels(x, candidates, radius):
    return np.array([[naive.grid_distance(a, b, radius) for b in candidates] for a in x], dtype=np.uint16)


def exact_ratio_holds(weights, other_weights, epsilon):
    """Check in integers that no probability exceeds exp(epsilon) times the other; exp(-epsilon) is rounded up."""
    shrink = Fraction(exp_minus(Fraction(epsilon), 200) + 2, 2**200)
    a, b = weights.tolist(), other_weights.tolist()
    return all(
        x * sum(b) * shrink <= y * sum(a) and y * sum(a) * shrink <= x * sum(b) for x, y in zip(a, b, strict=True)
    )


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(seed=seeds(), n=st.integers(1, 30), n_candidates=st.integers(1, 9), data=st.data(), n_threads=st.integers(1, 3))
def test_swap_losses_equal_brute_force(seed, n, n_candidates, data, n_threads):
    rng = np.random.default_rng(seed)
    distances = rng.choice([0, 1, 7, 65534, 65535], (n, n_candidates)).astype(np.uint16)
    # A candidate may be drawn twice.
    chosen = rng.integers(0, n_candidates, data.draw(st.integers(1, n_candidates)))
    assert swap_losses(distances, chosen, n_threads).tolist() == naive.swap_losses(distances.tolist(), chosen.tolist())


# The numbers of candidates include whole vectors of every instruction set, and others.
@pytest.mark.parametrize("n_candidates", [1, 7, 8, 31, 32, 33, 130, 400])
@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_swap_losses_of_any_number_of_candidates(n_candidates, instruction_set):
    rng = np.random.default_rng(n_candidates)
    distances = rng.choice([0, 1, 300, 65534, 65535], (40, n_candidates)).astype(np.uint16)
    chosen = rng.integers(0, n_candidates, 3)
    with hardware.use_instruction_set(instruction_set):
        losses = swap_losses(distances, chosen, 1)
    assert losses.tolist() == naive.swap_losses(distances.tolist(), chosen.tolist())


@pytest.mark.parametrize("n_candidates", [3, 40])
def test_swap_losses_do_not_overflow(n_candidates):
    distances = np.full((70_000, n_candidates), LEVELS, dtype=np.uint16)
    assert (swap_losses(distances, np.array([0, 1]), 2) == 70_000 * LEVELS).all()


@given(
    losses=st.lists(st.integers(0, 10**7), min_size=1, max_size=20),
    epsilon=st.floats(2.0**-16, 50),
    sensitivity=st.sampled_from([1, 5, LEVELS, 10**6]),
)
def test_weights_are_exponentials(losses, epsilon, sensitivity):
    weights = selection_weights(np.array(losses), epsilon, sensitivity)
    slope = Fraction(epsilon) - Fraction(1, 2**23)
    for loss, weight in zip(losses, weights.tolist(), strict=True):
        x = min(slope * (loss - min(losses)) / sensitivity, Fraction(24))
        exact = Fraction(exp_minus(x, 128), 2**64)
        assert abs(Fraction(weight) / exact - 1) < Fraction(1, 2**26)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [2.0**-16, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("start", [[0, 0, 0], [10**6, 0, 400_000], [5, 10**9, 10**8]])
def test_enumerated_mechanism_satisfies_epsilon_exactly(epsilon, start):
    worst, start = 0.0, np.array(start)
    for added in itertools.product([0, 1, 30_000, LEVELS], repeat=3):
        a, b = selection_weights(start, epsilon), selection_weights(start + np.array(added), epsilon)
        assert exact_ratio_holds(a, b, epsilon)
        ratios = (a / a.sum(dtype=float)) / (b / b.sum(dtype=float))
        worst = max(worst, np.abs(np.log(ratios)).max())
    if start.max() == 0 and epsilon <= 1:
        # With three equal losses, at most ln((2 + e^epsilon) / 3) of epsilon is not reached.
        assert worst > 0.4 * epsilon


def test_epsilon_is_reached_and_violated_by_ten_percent_less_noise():
    # One user raises all losses except the best one's, and its share rises by nearly e^epsilon.
    start, added = np.array([3 * LEVELS, *[0] * 999]), np.array([0, *[LEVELS] * 999])
    a, b = selection_weights(start, 1.0), selection_weights(start + added, 1.0)
    assert exact_ratio_holds(a, b, 1.0)
    assert not exact_ratio_holds(a, b, 0.9)
    hot = [selection_weights(x, 1.1) for x in (start, start + added)]
    assert not exact_ratio_holds(*hot, 1.0)


@settings(max_examples=25)
@given(seed=seeds())
def test_enumerated_swaps_of_neighbours_stay_within_epsilon(seed):
    x, candidates = points(6, seed=seed), points(5, seed=seed + 1)
    distances, chosen = levels(x, candidates, 1.0), np.array([0, 3])
    whole = swap_losses(distances, chosen, 1).reshape(-1)
    for user in range(6):
        without = swap_losses(np.delete(distances, user, axis=0), chosen, 1).reshape(-1)
        assert ((whole >= without) & (whole - without <= LEVELS)).all()
        assert exact_ratio_holds(selection_weights(whole, 0.5), selection_weights(without, 0.5), 0.5)


@given(
    words=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2), losses=st.lists(st.integers(0, 300), min_size=1)
)
def test_a_draw_is_the_position_of_its_bits_among_the_weights(words, losses):
    losses = np.array(losses)
    weights = selection_weights(losses, 1.0, 50).tolist()
    target = (words[0] << 64 | words[1]) * sum(weights) >> 128
    expected = next(i for i, end in enumerate(itertools.accumulate(weights)) if end > target)
    assert draw_loss(losses, 1.0, np.array(words, dtype=np.uint64), 50) == expected


def test_removing_a_user_changes_no_shape_and_no_number_of_words(monkeypatch):
    taken, original = [], Key.words

    def words(self, purpose, *, round=0, user=0, size, **options):
        taken.append((purpose, round, user, size))
        return original(self, purpose, round=round, user=user, size=size, **options)

    monkeypatch.setattr(Key, "words", words)
    x, candidates = points(30), points(12, seed=3)
    seen = []
    for some in (x, x[1:], x[:0], np.repeat(x, 20, axis=0)):
        taken.clear()
        centers = private_kmeans(some, candidates, 3, radius=1.0, n_swaps=7, epsilon=0.3, key=KEY, round=4)
        seen.append((centers.shape, list(taken)))
    assert all(other == seen[0] for other in seen)
    assert ("private_kmeans.swap", 4, 0, 16) in seen[0][1]


def test_centres_are_candidates_and_good_ones_without_noise():
    x = np.concatenate([points(50) * 0.05 + c for c in (-0.6, 0.0, 0.6)])
    candidates = np.concatenate([points(40, seed=9), [[c, c] for c in (-0.6, 0.0, 0.6)]])
    centers = private_kmeans(x, candidates, 3, radius=1.0, n_swaps=30, epsilon=50.0, key=KEY)
    assert sorted(centers[:, 0].tolist()) == [-0.6, 0.0, 0.6]


def test_a_far_point_counts_no_more_than_any_user():
    # The point is outside the ball, and the clamp still holds.
    x = np.array([[0.0, 0.0], [1e200, -1e200]])
    centers = private_kmeans(x, points(4), 2, radius=1.0, n_swaps=2, epsilon=1.0, key=KEY)
    assert centers.shape == (2, 2)


def test_the_ledgers_sum_is_the_stated_epsilon():
    arguments = {"swap_epsilon": 0.125, "n_swaps": 15, "grid_epsilon": 0.25, "depth": 4, "n_shifts": 2}
    assert PureAccountant().compose(clustering_events(**arguments)).get_epsilon() == 16 * 0.125 + 8 * 0.25
    events = clustering_events(**arguments, accounting="zcdp").events
    assert sum(Fraction(e.rho) * e.count for e in events) == Fraction(16, 8 * 64) + Fraction(8, 2 * 16)
    assert ZCDPAccountant().compose(clustering_events(**arguments, accounting="zcdp")).get_epsilon(1e-5) > 0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1.7e308])
def test_no_row_of_one_user_changes_whether_a_release_is_made(odd):
    x = points(40)
    x[7] = odd, 0.1
    like = np.where(np.arange(40)[:, None] == 7, [[1e99, 0.1]] if np.isfinite(odd) else [[0.0, 0.0]], x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for release in (
            lambda some: private_kmeans(some, points(9), 3, radius=1.0, n_swaps=5, epsilon=5.0, key=KEY),
            lambda some: private_lloyd(some, 3, radius=1.0, n_rounds=3, epsilon=50.0, key=KEY),
            lambda some: grid_candidates(some, 9, radius=1.0, depth=3, n_shifts=1, epsilon=50.0, key=KEY),
        ):
            np.testing.assert_array_equal(release(x), release(like))


def test_bad_arguments():
    x, candidates = points(5), points(4)
    defaults = {"radius": 1.0, "n_swaps": 2, "epsilon": 1.0, "key": KEY}
    with pytest.raises(ValueError, match="n_clusters must be at most 4, got 5"):
        private_kmeans(x, candidates, 5, **defaults)
    with pytest.raises(ValueError, match=r"candidates must have shape \('any', 2\), got \(4, 1\)"):
        private_kmeans(x, candidates[:, :1], 2, **defaults)
    with pytest.raises(TypeError, match="points must be an array of float64"):
        private_kmeans(x.astype(np.float32), candidates, 2, **defaults)
    with pytest.raises(ValueError, match="epsilon must be at least"):
        private_kmeans(x, candidates, 2, **defaults | {"epsilon": 1e-9})
    with pytest.raises(ValueError, match=r"epsilon must be at most 1e\+100, got 1.7e\+308"):
        private_kmeans(x, candidates, 2, **defaults | {"epsilon": 1.7e308})
    with pytest.raises(ValueError, match="n_swaps must be at least 1, got 0"):
        private_kmeans(x, candidates, 2, **defaults | {"n_swaps": 0})
    with pytest.raises(ValueError, match=r"radius must be at least 1e-100"):
        private_kmeans(x, candidates, 2, **defaults | {"radius": 0.0})
    with pytest.raises(TypeError, match="key must be Key, got NoneType"):
        private_kmeans(x, candidates, 2, **defaults | {"key": None})
    with pytest.raises(ValueError, match="accounting must be one of 'pure', 'zcdp'"):
        clustering_events(swap_epsilon=1.0, n_swaps=1, accounting="rdp")


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instruction_set", hardware.instruction_sets())
def test_threads_and_instruction_sets_do_not_change_a_bit(instruction_set):
    x, candidates = points(9_000), points(37, seed=5)
    plain = private_kmeans(x, candidates, 5, radius=1.0, n_swaps=5, epsilon=0.01, key=KEY, n_threads=1)
    with hardware.use_instruction_set(instruction_set):
        four = private_kmeans(x, candidates, 5, radius=1.0, n_swaps=5, epsilon=0.01, key=KEY, n_threads=4)
    assert plain.tobytes() == four.tobytes()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_have_exactly_the_stated_probabilities():
    losses, epsilon, n = np.array([0, 20, 50, 120]), 1.0, 100_000
    words = KEY.words("test", size=2 * n).reshape(-1, 2)
    seen = np.bincount([draw_loss(losses, epsilon, w, 50) for w in words], minlength=4)
    expected = naive.probabilities(losses.tolist(), epsilon, 50)
    assert counts_are(seen, expected)
    assert not counts_are(seen, naive.probabilities(losses.tolist(), epsilon * 0.9, 50))
    assert not counts_are(seen, naive.probabilities(losses.tolist(), epsilon * 1.1, 50))
    assert not counts_are(seen, tilted(expected, 0.9))
    assert math.isclose(sum(expected), 1.0)
