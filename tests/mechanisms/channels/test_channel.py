"""Finite channels: exact epsilon, mean and variance, and the directed rounding beneath them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.channels import channel as naive
from support.significance import assert_only, counts_are, mean_is, tilted
from support.strategies import counts_of

from fastfedrec import Key
from fastfedrec._kernels.mechanisms.channels import channel as kernel
from fastfedrec.mechanisms import Channel
from fastfedrec.mechanisms.channels.channel import TOTAL, exp_lower, log_upper
from fastfedrec.mechanisms.channels.exact_counts import counts_within, unbiased_outputs

THREE = Channel(
    [[2**63, 2**62, 2**62], [2**62, 2**63, 2**62], [2**62, 2**62, 2**63]], inputs=[0, 1, 2], outputs=[-3, 1, 5]
)


@st.composite
def tables(draw):
    """Counts of 1 to 4 inputs by 1 to 5 outputs, zeros included, with output values."""
    n_outputs = draw(st.integers(1, 5))
    rows = draw(counts_of(n_outputs))
    values = draw(st.lists(st.fractions(-9, 9, max_denominator=99), min_size=n_outputs, max_size=n_outputs))
    return rows, values


# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(table=tables())
def test_ratio_and_moments_equal_naive_twin(table):
    counts, values = table
    channel = Channel(counts, inputs=range(len(counts)), outputs=values)
    assert channel.likelihood_ratio == naive.likelihood_ratio(counts)
    for x in range(len(counts)):
        assert (channel.mean(x), channel.variance(x)) == naive.moments(counts, values, x)
        assert sum(channel.probability(x, y) for y in range(len(values))) == 1


@given(table=tables(), seed=st.integers(0, 99))
def test_reports_equal_naive_twin(table, seed):
    counts, values = table
    channel, key = Channel(counts, inputs=range(len(counts)), outputs=values), Key.from_seed(seed)
    inputs = np.arange(40) % len(counts)
    words = key.words("channel.privatize", round=2, size=40).tolist()
    expected = [naive.report(counts[x], word) for x, word in zip(inputs.tolist(), words, strict=True)]
    assert channel.privatize(inputs, key=key, round=2).tolist() == expected


@given(table=tables())
def test_words_at_the_edges_of_every_threshold_equal_naive_twin(table):
    counts, values = table
    channel = Channel(counts, inputs=range(len(counts)), outputs=values)
    for x, row in enumerate(counts):
        sums = itertools.accumulate(row, initial=0)
        words = sorted({w for total in sums for w in (total - 1, total, total + 1) if 0 <= w < TOTAL})
        out = np.empty(len(words), dtype=np.int64)
        rows = np.full(len(words), x)
        kernel.sample_words(rows, np.array(words, dtype=np.uint64), *channel._thresholds, out)
        assert out.tolist() == [naive.report(row, word) for word in words]


def test_second_block_of_values_reads_a_separate_stream():
    key, values = Key.from_seed(1), np.arange(65_536 + 9) % 3
    words = key.words("channel.privatize", user=1, size=9).tolist()
    expected = [naive.report(THREE.counts[x], word) for x, word in zip(values[-9:].tolist(), words, strict=True)]
    assert THREE.privatize(values, key=key)[-9:].tolist() == expected


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(
    weights=st.lists(st.lists(st.integers(1, 1000), min_size=4, max_size=4), min_size=2, max_size=5),
    epsilon=st.floats(3.0, 9.0),
)
def test_counts_within_keep_the_ratio_for_any_wish(weights, epsilon):
    # Wishes with ratios up to 1000 and more, of rows that need not even add up to 1.
    wishes = [[Fraction(w, 1 + sum(row)) for w in row] for row in weights]
    ratio = exp_lower(epsilon)
    if sum(min(column) for column in zip(*wishes, strict=True)) * ratio < 1 + Fraction(1, 2**50):
        with pytest.raises(ValueError, match="no table of 64-bit counts keeps it"):  # columns too small to fill a row
            counts_within([[w / 2 for w in row] for row in wishes], ratio)
        return
    counts = counts_within(wishes, ratio)
    assert Channel(counts, inputs=range(len(counts)), outputs=range(4)).likelihood_ratio <= ratio


@given(table=tables(), start=st.lists(st.integers(-9, 9), min_size=5, max_size=5))
def test_unbiased_outputs_are_unbiased_or_refused(table, start):
    counts, values = table
    if len(counts) > len(values):
        return
    inputs = [Fraction(x) for x in range(len(counts))]
    first = [Fraction(v) for v in start[: len(values)]]
    if naive.rank(counts) < len(counts):
        with pytest.raises(ValueError, match="linearly independent"):
            unbiased_outputs(counts, inputs, first)
        return
    outputs = unbiased_outputs(counts, inputs, first)
    channel = Channel(counts, inputs=inputs, outputs=outputs)
    assert [channel.mean(x) for x in range(len(counts))] == inputs


def test_privatize_in_place_and_into_out():
    key, values = Key.from_seed(3), np.arange(1000) % 3
    expected = THREE.privatize(values, key=key)
    assert expected.dtype == np.uint8
    for dtype in (np.uint8, np.uint16, np.int32, np.int64):
        reports = values.astype(dtype)
        assert THREE.privatize(reports, key=key, out=reports) is reports
        np.testing.assert_array_equal(reports, expected)
        out = np.empty((10, 100), dtype=dtype)
        assert THREE.privatize(values.reshape(10, 100).astype(np.int8), key=key, out=out) is out
        np.testing.assert_array_equal(out.reshape(-1), expected)
    assert THREE.privatize([], key=key).shape == (0,)
    assert THREE.privatize(2, key=key).shape == ()
    read_only = values[::2]
    read_only.flags.writeable = False
    assert THREE.privatize(read_only, key=key).shape == (500,)


def test_positions_find_each_input():
    channel = Channel([[TOTAL]] * 3, inputs=[2, -1, Fraction(1, 2)], outputs=[0])
    assert channel.positions([[-1, 0.5], [2, 2]]).tolist() == [[1, 2], [0, 0]]
    assert channel.worst_variance == 0


@given(x=st.floats(1e-3, 20))
def test_exp_lower_is_below_and_close(x):
    below, _ = naive_bounds.exp_bounds(x)  # closer to e^x than 1 part in 10^75
    assert below * (1 - Fraction(1, 10**57)) < exp_lower(x) < below


@given(ratio=st.fractions(Fraction(1001, 1000), 10**8))
def test_log_upper_is_the_smallest_float_that_is_not_below(ratio):
    bound = log_upper(ratio)
    assert naive_bounds.exp_bounds(bound)[1] >= ratio
    assert naive_bounds.exp_bounds(math.nextafter(bound, 0.0))[0] < ratio


def test_log_upper_of_one_is_zero():
    assert log_upper(Fraction(1)) == 0.0


def test_epsilon_of_simple_channels():
    assert Channel([[TOTAL]], inputs=[0], outputs=[0]).epsilon == 0.0
    assert Channel([[TOTAL, 0], [TOTAL - 1, 1]], inputs=[0, 1], outputs=[0, 1]).epsilon == math.inf
    assert Channel([[TOTAL, 0], [TOTAL, 0]], inputs=[0, 1], outputs=[0, 1]).epsilon == 0.0
    three = Channel([[3 * 2**62, 2**62], [2**62, 3 * 2**62]], inputs=[1, -1], outputs=[2, -2])
    assert three.epsilon >= math.log(3)
    assert math.isclose(three.epsilon, math.log(3), rel_tol=1e-15)
    assert three.estimate([0, 1, 1]).tolist() == [2.0, -2.0, -2.0]
    assert three.estimate([[0], [1]]).shape == (2, 1)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_tables():
    with pytest.raises(ValueError, match=r"counts must have one row per input \(2\), got 1"):
        Channel([[TOTAL]], inputs=[0, 1], outputs=[0])
    with pytest.raises(ValueError, match=r"counts\[0\] must be 2 integers of at least 0 that add up to 2\*\*64"):
        Channel([[TOTAL - 1, 0]], inputs=[0], outputs=[0, 1])
    with pytest.raises(ValueError, match=r"counts\[0\] must be"):
        Channel([[TOTAL + 1, -1]], inputs=[0], outputs=[0, 1])
    with pytest.raises(ValueError, match=r"counts\[0\] must be 3 integers"):
        Channel([[TOTAL, 0]], inputs=[0], outputs=[0, 1, 2])


def test_bad_reports():
    channel = Channel([[2**63, 2**63]], inputs=[0], outputs=[0, 1])
    with pytest.raises(TypeError, match="reports must be integers, got dtype float64"):
        channel.estimate([0.0])
    with pytest.raises(ValueError, match=r"reports must be in \[0, 2\), got 0 to 2"):
        channel.estimate([0, 2])


def test_bad_values_and_outs():
    values = np.arange(6, dtype=np.uint8) % 3
    with pytest.raises(TypeError, match="values must be integers, got dtype float64; number the possible values"):
        THREE.privatize([0.0])
    with pytest.raises(TypeError, match="out must be an array of uint8, got an array of float64"):
        THREE.privatize(values, out=np.empty(6))
    with pytest.raises(ValueError, match=r"out must have shape \(6,\)"):
        THREE.privatize(values, out=np.empty(5, dtype=np.uint8))
    with pytest.raises(ValueError, match="out must be C-contiguous and writable"):
        THREE.privatize(values, out=np.empty(12, dtype=np.uint8)[::2])
    buffer = np.zeros(7, dtype=np.uint8)
    with pytest.raises(ValueError, match="out must not share memory"):
        THREE.privatize(buffer[:6], out=buffer[1:])
    with pytest.raises(ValueError, match="round must be at least 0"):
        THREE.privatize(values, round=-1)
    with pytest.raises(TypeError, match="key must be Key, got int"):
        THREE.privatize(values, key=3)


@given(values=st.lists(st.floats() | st.sampled_from([0.5, 1.5, 2.5]), min_size=1))
def test_a_value_that_is_no_input_has_the_position_of_the_nearest(values):
    channel = Channel([[2**63, 2**63]] * 3, inputs=[2, -1, 0.75], outputs=[0, 1])
    ascending = {-1.0: 1, 0.75: 2, 2.0: 0}
    expected = [
        ascending[min(ascending, key=lambda x: abs(Fraction(x) - Fraction(min(max(v, -9.0), 9.0))))] if v == v else 1
        for v in values
    ]
    assert channel.positions(values).tolist() == expected


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("x", [0, 1, 2])
def test_shares_of_reports_are_the_stated_ones(x):
    reports = THREE.privatize(np.full(200_000, x), key=Key.from_seed(5))
    counts = np.bincount(reports, minlength=3)
    stated = [float(THREE.probability(x, y)) for y in range(3)]
    assert_only(lambda factor: counts_are(counts, tilted(stated, factor)))


@pytest.mark.slow
def test_decoded_mean_is_the_exact_one_and_others_are_rejected():
    channel = Channel([[2**63, 2**63 - 2**60, 2**60]], inputs=[1], outputs=[1, 5, 12])
    mean, stddev = float(channel.mean(0)), math.sqrt(channel.variance(0))
    decoded = channel.estimate(channel.privatize(np.zeros(200_000, dtype=np.uint8), key=Key.from_seed(6)))
    assert_only(lambda factor: mean_is(decoded, factor * mean, stddev))
