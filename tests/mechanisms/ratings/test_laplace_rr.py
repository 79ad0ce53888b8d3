"""Laplace noise and randomized response on ratings: exact epsilon of each, and the published failure."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.ratings import laplace_rr as naive
from support.significance import assert_only, mean_is, share_is

from fastfedrec import Key
from fastfedrec.audit import audit
from fastfedrec.mechanisms import MixtureLaplaceRR, OptimalKary, PublishedLaplaceRR, RoundedLaplace, SerialLaplaceRR

STARS = [1, 2, 3, 4, 5]
HALF_STARS = [j / 2 for j in range(1, 11)]
epsilons = st.floats(0.05, 4)
grids = st.lists(st.integers(-12, 12), min_size=2, max_size=7, unique=True).map(sorted)


def probabilities(channel):
    return [[float(Fraction(c, 2**64)) for c in row] for row in channel.counts]


def satisfies(channel, *spent):
    """Return whether the counts satisfy the exact sum of epsilons, in rationals with an independent bound of e^x."""
    return channel.likelihood_ratio <= naive_bounds.exp_bounds(sum(map(Fraction, spent)))[0]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(
    epsilon_2=st.floats(0.01, 5) | st.sampled_from([1e-9, 36.0, 40.0, 800.0]),  # from 37 on the probability is 1
    words=st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4),
)
def test_published_report_equals_naive_twin_on_both_sides_of_its_coin(epsilon_2, words):
    published = PublishedLaplaceRR(0.7, epsilon_2, low=1, high=5)
    border = int(Fraction(published.truth_probability) * 2**64)
    near = [border + step for step in (-4096, -2049, -2048, -1, 0, 1, 2047, 2048, 4096)]
    firsts = [min(max(word, 0), 2**64 - 1) for word in (*words, *near, 0, 2**64 - 1)]
    pairs = [[first, words[k % 4]] for k, first in enumerate(firsts)]
    got = published._report(np.full(len(pairs), 4.0), np.array(pairs, dtype=np.uint64))
    expected = [naive.published(4.0, pair, published.truth_probability, 4 / 0.7) for pair in pairs]
    assert [x == 4.0 for x in got] == [x == 4.0 for x in expected]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@given(epsilon=epsilons, grid=grids)
def test_rounded_laplace_is_the_distribution_function_of_laplace(epsilon, grid):
    np.testing.assert_allclose(probabilities(RoundedLaplace(epsilon, grid)), naive.table(epsilon, grid), atol=1e-13)


@given(epsilon=epsilons, margin=st.floats(0.1, 6))
def test_rounded_laplace_beyond_the_grid(epsilon, margin):
    channel = RoundedLaplace(epsilon, STARS, margin=margin)
    n_steps = math.ceil(min(margin * 4 / epsilon, 1024))
    cells = list(range(1 - n_steps, 6 + n_steps))
    expected = [naive.rounded_laplace(x, cells, 4 / epsilon) for x in STARS]
    np.testing.assert_allclose(probabilities(channel), expected, atol=1e-13)


def test_far_beyond_the_grid_a_report_is_decoded_as_itself():
    outputs = [float(v) for v in RoundedLaplace(1.0, STARS, margin=12).outputs]
    np.testing.assert_allclose(outputs, range(-47, 54), atol=0.01)


@given(epsilon_1=epsilons, epsilon_2=epsilons, grid=grids)
def test_serial_is_noise_followed_by_randomized_response(epsilon_1, epsilon_2, grid):
    expected = naive.serial(epsilon_1, epsilon_2, grid)
    channel = SerialLaplaceRR(epsilon_1, epsilon_2, grid)
    np.testing.assert_allclose(probabilities(channel), expected, atol=1e-13)
    assert math.isclose(channel.epsilon, naive.epsilon_of(expected), rel_tol=1e-9)


@given(epsilon_1=epsilons, epsilon_2=epsilons, grid=grids)
def test_mixture_has_the_largest_share_of_truth(epsilon_1, epsilon_2, grid):
    channel = MixtureLaplaceRR(epsilon_1, epsilon_2, grid)
    truth = naive.largest_truth(epsilon_1, epsilon_2, grid)
    assert math.isclose(channel.truth_probability, truth, rel_tol=1e-7)
    np.testing.assert_allclose(probabilities(channel), naive.mixture(truth, epsilon_1, grid), atol=1e-7)


@pytest.mark.parametrize(
    ("channel", "epsilon"),
    [
        (SerialLaplaceRR(1, 1, STARS), 0.367),
        (PublishedLaplaceRR(1, 1).on_grid(STARS), 3.87),
        (PublishedLaplaceRR(1, 1).on_grid(HALF_STARS), 4.80),
    ],
)
def test_epsilon_is_the_design_pages(channel, epsilon):
    # design page systems/rating_svd/laplace-rr-svd.md
    assert abs(channel.epsilon - epsilon) < 0.006


def test_truth_probability_is_the_design_pages():
    # design page systems/rating_svd/laplace-rr-svd.md: .242 where the paper's p is .731
    assert abs(MixtureLaplaceRR(1, 1, STARS).truth_probability - 0.242) < 0.0005
    assert abs(PublishedLaplaceRR(1, 1).truth_probability - 0.731) < 0.0005


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(epsilon_1=epsilons, epsilon_2=epsilons, grid=grids | st.just(HALF_STARS))
def test_exact_epsilon_is_at_most_the_stated_one_and_reports_are_unbiased(epsilon_1, epsilon_2, grid):
    noise, far = RoundedLaplace(epsilon_1, grid), RoundedLaplace(epsilon_1, grid, margin=3)
    serial, mixture = SerialLaplaceRR(epsilon_1, epsilon_2, grid), MixtureLaplaceRR(epsilon_1, epsilon_2, grid)
    assert satisfies(noise, epsilon_1)
    assert satisfies(far, epsilon_1)
    assert satisfies(serial, epsilon_1)
    assert satisfies(serial, epsilon_2)
    assert satisfies(mixture, epsilon_1, epsilon_2)
    # The bounds are tight: the ends of the unclamped noise and the mixture spend the full epsilon.
    assert far.epsilon > epsilon_1 * (1 - 1e-9)
    assert mixture.epsilon > (epsilon_1 + epsilon_2) * (1 - 1e-9)
    for channel in (noise, far, serial, mixture):
        assert [channel.mean(x) for x in range(len(grid))] == [Fraction(v) for v in grid]


def test_keeps_is_not_true_of_everything():
    assert not satisfies(MixtureLaplaceRR(1, 1, STARS), 1, 0.999999)
    assert not satisfies(PublishedLaplaceRR(1, 1).on_grid(STARS), 1, 1)


@given(epsilon=epsilons)
def test_more_epsilon_is_less_noise(epsilon):
    for grid in (STARS, HALF_STARS):
        assert RoundedLaplace(1.5 * epsilon, grid).worst_variance < RoundedLaplace(epsilon, grid).worst_variance


@settings(max_examples=6)
@given(epsilon_1=st.floats(0.5, 3), epsilon_2=st.floats(0.5, 3))
def test_at_equal_exact_epsilon_no_variant_beats_the_optimal_channel(epsilon_1, epsilon_2):
    for channel in (
        SerialLaplaceRR(epsilon_1, epsilon_2, STARS),
        MixtureLaplaceRR(epsilon_1, epsilon_2, STARS),
        RoundedLaplace(epsilon_1, STARS),
        RoundedLaplace(epsilon_1, STARS, margin=12),
    ):
        assert OptimalKary(channel.epsilon, STARS).worst_variance < channel.worst_variance * (1 + 1e-6)


@given(epsilon_1=epsilons, epsilon_2=epsilons, epsilon=st.floats(0, 9))
def test_delta_of_the_published_mechanism(epsilon_1, epsilon_2, epsilon):
    published = PublishedLaplaceRR(epsilon_1, epsilon_2)
    p = published.truth_probability
    assert published.epsilon == math.inf
    assert p >= 0.5
    # The Laplace mechanism's own, by the integral of the positive part of the difference of two densities.
    t = np.linspace(-60 / epsilon_1, 60 / epsilon_1, 400_001)
    densities = [epsilon_1 / 2 * np.exp(-epsilon_1 * np.abs(t - x)) for x in (0, 1)]
    noise_alone = np.trapezoid(np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0), t)
    assert math.isclose(published.delta(epsilon), p + (1 - p) * noise_alone, abs_tol=1e-3)
    assert epsilon < epsilon_1 or published.delta(epsilon) == p


def test_audit_refutes_the_published_claim():
    # Inputs 1.0 and 0.0: the report is exactly 1 only for input 1.
    result = audit(PublishedLaplaceRR(1, 1), 0.0, 1.0, claim=2.0, key=Key.from_seed(1))
    assert result.verdict == "violated"
    assert result.lower_bound > 8
    on_grid = audit(PublishedLaplaceRR(1, 1).on_grid(STARS), 1, 4, claim=2.0)
    assert (on_grid.verdict, round(on_grid.overall, 2)) == ("violated", 3.87)


def test_audit_finds_no_violation_of_the_guaranteed_ones():
    for channel in (MixtureLaplaceRR(1, 1, STARS), SerialLaplaceRR(1, 1, STARS), RoundedLaplace(2, STARS, margin=12)):
        assert audit(channel, 0, 4, claim=2.0).verdict == "consistent"


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SerialLaplaceRR, MixtureLaplaceRR])
@pytest.mark.parametrize("name", ["epsilon_1", "epsilon_2"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_epsilons(kind, name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        kind(**({"epsilon_1": 1.0, "epsilon_2": 1.0, "grid": STARS} | {name: value}))
    with pytest.raises(ValueError, match=f"{name} must be"):
        PublishedLaplaceRR(**({"epsilon_1": 1.0, "epsilon_2": 1.0} | {name: value}))


def test_bad_grids_and_ranges():
    with pytest.raises(ValueError, match="grid must be 2 to 32 increasing numbers"):
        MixtureLaplaceRR(1.0, 1.0, [2, 1])
    with pytest.raises(ValueError, match="margin must be at least 0"):
        RoundedLaplace(1.0, STARS, margin=-1.0)
    with pytest.raises(ValueError, match=r"high must be greater than 5\.0"):
        PublishedLaplaceRR(1.0, 1.0, low=5, high=5)
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        PublishedLaplaceRR(1.0, 1.0).delta(-1)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_reports_have_the_published_distribution():
    published, n = PublishedLaplaceRR(1.0, 0.5, low=1, high=5), 400_000
    noise = published.privatize(np.full(n, 4.0), key=Key.from_seed(6)) - 4.0
    p, scale = published.truth_probability, 4.0
    assert_only(lambda factor: share_is((noise == 0).sum(), n, factor * p))
    assert_only(lambda factor: mean_is(noise + 4, factor * 4, math.sqrt(published.variance)))
    tail = (1 - p) * math.exp(-2 / scale)
    assert_only(lambda factor: share_is((np.abs(noise) > 2).sum(), n, factor * tail))
