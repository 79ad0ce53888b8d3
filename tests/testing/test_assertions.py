"""Tests of the assertions for other projects' suites: accepted and refused inputs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from support import broken
from support.significance import ALPHA as SIGNIFICANCE

from fastfedrec import Key
from fastfedrec.mechanisms import BinaryResponse, Channel, clip_rows_l1, clip_rows_l2
from fastfedrec.testing import ALPHA, assert_clipped, assert_epsilon, assert_unbiased


def l2_clip(rows, c):
    return broken.stopping_clip(rows, c)


def l1_clip(rows, c):
    return broken.stopping_clip(rows, c, order=1)


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_alpha_is_one_in_a_million_everywhere():
    assert ALPHA == SIGNIFICANCE == 1e-6


@given(st.integers(0, 99), st.sampled_from([0.9, 0.99, 1.01, 1.1]))
def test_unbiased_accepts_if_a_z_test_accepts(seed, factor):
    draws = np.random.default_rng(seed).normal(3.0, 2.0, size=2000)
    p_value = 2 * stats.norm.sf(abs(draws.mean() - 3.0 * factor) / (2.0 / math.sqrt(2000)))
    if p_value < ALPHA:
        with pytest.raises(AssertionError, match="the mean is"):
            assert_unbiased(draws, 3.0 * factor, stddev=2.0, control=0.9)
    else:
        assert_unbiased(draws, 3.0 * factor, stddev=2.0, control=0.9)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 37.5])
def test_sound_clips_pass(dtype, clip_norm):
    assert_clipped(l2_clip, clip_norm, dtype=dtype)
    assert_clipped(l1_clip, clip_norm, norm="l1", dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_clips_of_the_package_pass(dtype):
    assert_clipped(clip_rows_l2, 1.7, dtype=dtype)
    assert_clipped(clip_rows_l1, 1.7, norm="l1", dtype=dtype)


def test_exact_channels_pass_and_inexact_claims_do_not():
    assert assert_epsilon(BinaryResponse(1.0), 0, 1, 1.0).verdict == "consistent"
    with pytest.raises(AssertionError, match="VIOLATED"):
        assert_epsilon(BinaryResponse(1.1), 0, 1, 1.0)
    with pytest.raises(AssertionError, match=r"control: a claim of 0\.9 would pass too"):
        assert_epsilon(BinaryResponse(0.9), 0, 1, 1.0)
    assert_epsilon(BinaryResponse(0.9), 0, 1, 1.0, control=0.2)
    # The control of a channel is its worst pair, like the verdict.
    counts = [[2**63, 2**63], [2**63, 2**63], [3 * 2**62, 2**62]]
    assert_epsilon(Channel(counts, inputs=[0, 1, 2], outputs=[0, 1]), 0, 1, 0.7)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: assert_unbiased([], 1.0, stddev=1.0), "estimates must have shape"),
        (lambda: assert_unbiased([1.0], 0.0, stddev=1.0), "expected must not be 0 everywhere"),
        (lambda: assert_unbiased([1.0], 1.0, stddev=0.0), "stddev must be greater than 0"),
        (lambda: assert_unbiased([1.0], math.nan, stddev=1.0), "expected must be finite"),
        (lambda: assert_unbiased([1.0], 1.0, stddev=1.0, control=0.0), "control must be greater than 0"),
        (lambda: assert_epsilon(BinaryResponse(1.0), 0, 1, 1.0, control=1.0), "control must be less than 1"),
        (lambda: assert_clipped(l2_clip, 0.0), "clip_norm must be greater than 0"),
        (lambda: assert_clipped(l2_clip, norm="l3"), "norm must be one of 'l1', 'l2'"),
        (lambda: assert_clipped(l2_clip, n_columns=1), "n_columns must be at least 2"),
    ],
)
def test_bad_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_types():
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got int64"):
        assert_clipped(l2_clip, dtype=np.int64)
    with pytest.raises(AssertionError, match="clip must return floats of shape"):
        assert_clipped(lambda rows, c: rows[:1])


# ---- what must be refused: the negative controls --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (broken.textbook_clip, "is longer than 1 by a factor of 1"),
        (lambda rows, c: l2_clip(rows, 1.1 * c), "is longer than 1 by a factor of 1"),
        (lambda rows, c: l2_clip(rows, 0.9 * c), "clipped more than needed"),
        (lambda rows, c: 0.5 * l2_clip(rows, c), "clipped more than needed"),
        (lambda rows, c: np.zeros_like(rows), "clipped more than needed"),
        (lambda rows, c: np.where(np.isnan(rows), np.nan, l2_clip(rows, c)), "is not finite after clipping"),
        (
            lambda rows, c: np.where(np.abs(rows).sum(axis=1, keepdims=True) < c / 2, 0.0, l2_clip(rows, c)),
            r"was within half of 1 and was changed",
        ),
    ],
)
def test_broken_clips_are_refused(clip, message):
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=message):
        assert_clipped(clip)


def test_a_clip_that_ignores_its_bound_fails_the_control():
    with pytest.raises(AssertionError, match="control: a bound 10% too small would pass"):
        assert_clipped(lambda rows, c: l2_clip(rows, 1.0))


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_biased_decoders_are_refused(factor):
    channel = BinaryResponse(1.0)
    t = np.array([1.0, -0.4])
    values = np.tile(t, (400_000, 1))
    decoded = channel.estimate(channel.privatize(values, key=Key.from_seed(3)))
    stddev = [math.sqrt(channel.value_variance(v)) for v in t]
    assert_unbiased(decoded, t, stddev=stddev)
    with pytest.raises(AssertionError, match="the mean of coordinate 0 is"):
        assert_unbiased(factor * decoded, t, stddev=stddev)
    with pytest.raises(AssertionError, match=r"control: a bias of 0\.1 would pass with 1000 estimates; use"):
        assert_unbiased(decoded[:1000], t, stddev=stddev)
    decoded[7] = math.nan
    with pytest.raises(AssertionError, match="2 of 800000 estimates are not finite"):
        assert_unbiased(decoded, t, stddev=stddev)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_bias_is_seen_in_one_coordinate_and_a_control_needs_both_directions(side):
    n, t = 4000, np.array([1.0, 0.5, -1.0])
    width = -special.ndtri(ALPHA / 2 / 3) / math.sqrt(n)
    off = side * width * np.array([0, 1, 0])
    assert_unbiased(np.tile(t, (n, 1)), t, stddev=1.0, control=3 * width)
    assert_unbiased(np.tile(t + 0.9 * off, (n, 1)), t, stddev=1.0, control=3 * width)
    with pytest.raises(AssertionError, match="the mean of coordinate 1 is"):
        assert_unbiased(np.tile(t + 1.1 * off, (n, 1)), t, stddev=1.0, control=3 * width)
    with pytest.raises(AssertionError, match="control: a bias of"):  # seen on the other side alone
        assert_unbiased(np.tile(t + 0.9 * off, (n, 1)), t, stddev=1.0, control=1.5 * width)


def test_the_number_of_estimates_of_the_control_suffices():
    draws = np.random.default_rng(1).normal(1.0, 1.0, size=100_000)
    enough = math.ceil((2 * stats.norm.isf(ALPHA / 2) / 0.1) ** 2)  # an error and the bias, each within its own width
    with pytest.raises(AssertionError, match=f"use {enough} or more"):
        assert_unbiased(draws[:500], 1.0, stddev=1.0)
    assert_unbiased(draws[:enough], 1.0, stddev=1.0)


@pytest.mark.parametrize("epsilon", [0.9, 1.1])
def test_epsilons_ten_percent_off_are_refused(epsilon):
    rng = np.random.default_rng(2)
    sound = assert_epsilon(broken.response(rng, broken.keep_probability(1.0)), 0, 1, 1.0, 200_000)
    assert sound.alpha == ALPHA  # of a hundred suites not one fails by chance
    with pytest.raises(AssertionError, match="VIOLATED" if epsilon > 1 else "control: a claim of"):
        assert_epsilon(broken.response(rng, broken.keep_probability(epsilon)), 0, 1, 1.0, 200_000)


# ---- threads --------------------------------------------------------------------------------------------------------
# No function here has a number of threads.
