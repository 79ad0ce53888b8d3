"""Decoding of private ratings on the server, by the distribution that it estimates from all of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.systems.rating_svd import laplace_rr_svd as naive
from scipy import stats
from support.significance import ALPHA

from fastfedrec import Interactions, Key, LaplaceRRSVD
from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as kernel
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.mechanisms import BayesKary, Channel, OptimalKary
from fastfedrec.systems.rating_svd import _decoder as decoder
from fastfedrec.systems.rating_svd._biases import fit_biases
from fastfedrec.systems.rating_svd.laplace_rr_svd import rating_channel

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
VALUES = np.array(STARS)
GUARANTEED = ["optimal", "mixture", "serial", "laplace"]
SKEWED = np.array([0.03, 0.07, 0.2, 0.4, 0.3])
U_SHAPED = np.array([0.3, 0.08, 0.06, 0.1, 0.46])
some_shares = st.lists(st.floats(0.02, 1), min_size=5, max_size=5).map(lambda s: np.array(s) / sum(s))


def table_of(channel):
    return np.array([[c / 2**64 for c in row] for row in channel.counts])


def draw_ratings(shares, n, seed):
    return np.random.default_rng(seed).choice(5, n, p=shares).astype(np.uint8)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(variant=st.sampled_from(GUARANTEED), epsilon=st.floats(0.1, 3), shares=some_shares)
def test_decoded_values_equal_naive_twin(variant, epsilon, shares):
    channel = rating_channel(variant, epsilon, epsilon, STARS)
    reports = np.arange(len(channel.outputs))
    report_decoder = decoder.ReportDecoder(channel, reports)
    np.testing.assert_allclose(
        report_decoder.decode(), naive.decoded(report_decoder.shares, table_of(channel), STARS), rtol=1e-6
    )
    report_decoder.shares = shares
    np.testing.assert_allclose(report_decoder.decode(), naive.decoded(shares, table_of(channel), STARS), rtol=1e-6)


@settings(max_examples=20)
@given(
    rows=st.lists(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), min_size=1, max_size=6),
    counts=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    n_steps=st.integers(0, 5),
)
def test_steps_to_the_likely_shares_equal_naive_twin(rows, counts, n_steps):
    table = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    shares, as_floats = np.full(len(rows), 1 / len(rows)), np.array(counts, dtype=float)
    kernel.maximize_shares(table, as_floats, shares, np.empty(4), 5.0, 0.0, n_steps)
    np.testing.assert_allclose(shares, naive.likely_shares(table.tolist(), counts, 5.0, n_steps), rtol=1e-12)


@settings(max_examples=20)
@given(shares=some_shares, epsilon=st.floats(1, 6), n=st.integers(1, 5000), seed=st.integers(0, 99))
def test_estimated_shares_are_the_maximum(shares, epsilon, n, seed):
    table, weight = table_of(OptimalKary(epsilon, STARS)), decoder._PSEUDO_REPORTS
    counts = np.random.default_rng(seed).multinomial(n, shares @ table / (shares @ table).sum())
    estimated = decoder.estimate_shares(table, counts)
    # The slope of log-likelihood and prior is equal for all shares, which is the condition for a maximum.
    slopes = table @ (counts / (estimated @ table)) + weight / estimated
    np.testing.assert_allclose(slopes, n + 5 * weight, rtol=1e-4)
    assert math.isclose(estimated.sum(), 1.0)


@given(shares=some_shares, mean=st.floats(1.05, 4.95))
def test_tilted_shares_have_the_mean_and_the_form(shares, mean):
    (tilted,) = decoder.tilt(shares, VALUES, np.array([mean]))
    assert math.isclose(tilted.sum(), 1.0)
    assert math.isclose(tilted @ VALUES, mean, rel_tol=1e-9)
    np.testing.assert_allclose(np.diff(np.log(tilted / shares), 2), 0, atol=1e-6)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(variant=st.sampled_from(GUARANTEED), epsilon=st.floats(0.2, 3), shares=some_shares, mean=st.floats(1.3, 4.7))
def test_decoded_means_follow_the_expected_means_with_slope_1(variant, epsilon, shares, mean):
    channel = rating_channel(variant, epsilon, epsilon, STARS)
    table = table_of(channel)
    (tilted,) = decoder.tilt(shares, VALUES, np.array([mean]))
    report_decoder = decoder.ReportDecoder(channel, np.arange(len(channel.outputs)))
    # The true distribution is used for all ratings.
    report_decoder.shares = tilted
    near = report_decoder.decode_near(np.full(len(channel.outputs), tilted @ VALUES))
    # `near` estimates means to a 240th of the range.
    for values, tolerance in ((report_decoder.decode(), 1e-6), (near, 0.02)):
        assert math.isclose(tilted @ table @ values, mean, abs_tol=tolerance)
        step = 1e-3
        below, above = decoder.tilt(tilted, VALUES, np.array([mean - step, mean + step]))
        assert math.isclose((above - below) @ table @ values, 2 * step, rel_tol=0.01 + 5 * tolerance)


@given(codes=st.lists(st.integers(0, 4), min_size=1, max_size=40), expected=st.floats(-10, 10))
def test_without_noise_a_report_is_its_rating(codes, expected):
    channel = Channel(
        [[2**64 * (x == y) for y in range(5)] for x in range(5)], inputs=[1, 2, 3, 4, 5], outputs=range(5)
    )
    report_decoder = decoder.ReportDecoder(channel, np.array(codes))
    np.testing.assert_allclose(report_decoder.decode(), VALUES[codes])
    np.testing.assert_allclose(report_decoder.decode_near(np.full(len(codes), expected)), VALUES[codes])


@settings(max_examples=40)
@given(
    variant=st.sampled_from(GUARANTEED),
    epsilon=st.floats(0.01, 4),
    report=st.integers(0, 4),
    n=st.integers(0, 30),
    expected=st.floats(-10, 10),
)
def test_few_or_equal_reports_give_finite_values(variant, epsilon, report, n, expected):
    report_decoder = decoder.ReportDecoder(rating_channel(variant, epsilon, epsilon, STARS), np.full(n, report))
    assert (report_decoder.shares > 0).all()
    for values in (report_decoder.decode(), report_decoder.decode_near(np.full(n, expected))):
        assert values.shape == (n,)
        assert np.isfinite(values).all()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("variant", GUARANTEED)
def test_means_of_groups_are_recovered_by_the_estimated_distribution_only(variant):
    """Check a group with a tenth of the ratings, far lower; the distribution is estimated from all ratings."""
    # "serial" then spends 2 as well.
    epsilon, n = 2.92 if variant == "serial" else 1.0, 400_000
    channel = rating_channel(variant, epsilon, epsilon, STARS)
    (shares_of_group,) = decoder.tilt(SKEWED, VALUES, np.array([2.0]))
    low, other_ratings = draw_ratings(shares_of_group, n // 10, 1), draw_ratings(SKEWED, n - n // 10, 2)
    reports = channel.privatize(np.concatenate([low, other_ratings]), key=Key.from_seed(3)).astype(np.uint16)
    report_decoder = decoder.ReportDecoder(channel, reports)

    def p_value(values, truth):
        return 2 * stats.norm.sf(abs(values.mean() - truth) / (values.std(ddof=1) / math.sqrt(len(values))))

    near = report_decoder.decode_near(np.full(n, VALUES[low].mean()))[: len(low)]
    assert p_value(near, VALUES[low].mean()) > ALPHA
    for factor in (0.9, 1.1):
        assert p_value(near, factor * VALUES[low].mean()) < ALPHA
    everything = VALUES[np.concatenate([low, other_ratings])].mean()
    assert p_value(report_decoder.decode(), everything) > ALPHA
    # "optimal" has the least informative outputs about single ratings.
    if variant == "optimal":
        report_decoder.shares = U_SHAPED
        assert (
            p_value(report_decoder.decode_near(np.full(n, VALUES[low].mean()))[: len(low)], VALUES[low].mean()) < ALPHA
        )


def generated_ratings(seed):
    """Return ratings of user, item and normal error, rounded to stars: mostly 3 to 5, as in real data."""
    rng = np.random.default_rng(seed)
    means = 3.6 + rng.normal(0, 0.45, (500, 1)) + rng.normal(0, 0.5, 400)
    ratings = np.clip(np.round(means + rng.normal(0, 0.95, means.shape)), 1, 5)
    users, items = np.nonzero(rng.random(means.shape) < 0.2)
    return Interactions.from_arrays(users, items, ratings[users, items])


@pytest.mark.slow
def test_decoder_beats_unbiased_decoding_and_channel_beats_minimum_variance():
    train, test = next(KFold().split(generated_ratings(1), key=Key.from_seed(1)))
    users = np.repeat(np.arange(train.n_users), train.interactions_per_user())
    codes = (train.values_or_ones() - 1).astype(np.uint8)
    tested = np.repeat(np.arange(test.n_users), test.interactions_per_user())

    def error(channel, decode):
        reports = channel.privatize(codes, key=Key.from_seed(2)).astype(np.uint16)
        biases = fit_biases(users, train.indices, decode(channel, reports), train.n_users, train.n_items, 1)
        predicted = np.clip(biases.mean + biases.users[tested] + biases.items[test.indices], 1, 5)
        return math.sqrt(np.mean((predicted - test.values_or_ones()) ** 2))

    ours, smallest_variance = BayesKary(2.0, STARS), OptimalKary(2.0, STARS)
    by_shares = error(ours, lambda channel, reports: decoder.ReportDecoder(channel, reports).decode())
    assert by_shares < error(ours, Channel.estimate) - 0.005
    assert by_shares < error(smallest_variance, Channel.estimate) - 0.003
    model = LaplaceRRSVD(n_factors=0).fit(train, key=Key.from_seed(2))
    assert evaluate_ratings(model, test)["rmse"] < error(smallest_variance, Channel.estimate) - 0.005
