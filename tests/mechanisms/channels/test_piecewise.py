"""Piecewise and hybrid mechanisms: their integers, their exact tables, and their reports."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels import binary_response as naive_bounds
from naive.mechanisms.channels import piecewise as naive
from support.significance import assert_only, mean_is, share_is

from fastfedrec import Key
from fastfedrec._kernels.mechanisms.channels import piecewise as kernel
from fastfedrec.mechanisms import Hybrid, Piecewise

TOTAL = 2**64
GRID = [-1.0, -0.5, 0.0, 0.5, 1.0]

epsilons = st.floats(min_value=1e-3, max_value=20)
cells = st.integers(1, 100).map(lambda n: 2 * n + 1)
any_double = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-1, 1)
mechanisms = pytest.mark.parametrize("mechanism", [Piecewise, Hybrid])


def integers(mechanism):
    names = ("n_cells", "window", "low", "extra", "half", "span", "minus", "plus")
    return dict(zip(names, mechanism._numbers.tolist(), strict=True))


def placements_of(mechanism, values):
    out = np.empty((len(values), 3), dtype=np.uint64)
    kernel.placements(np.array(values, dtype=np.float64), mechanism._numbers, out)
    return out.tolist()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@mechanisms
@settings(max_examples=50)
@given(epsilon=epsilons, n_cells=cells, values=st.lists(any_double, max_size=8), seed=st.integers(0, 99))
def test_reports_equal_naive_twin(mechanism, epsilon, n_cells, values, seed):
    channel, key = mechanism(epsilon, n_cells), Key.from_seed(seed)
    words = key.words(channel._purpose, round=2, size=len(values)).tolist()
    numbers = integers(channel)
    expected = [
        naive.report(*placement, w, numbers) for placement, w in zip(placements_of(channel, values), words, strict=True)
    ]
    assert channel.privatize(np.array(values, dtype=np.float64), key=key, round=2).tolist() == expected


@mechanisms
@given(epsilon=epsilons, n_cells=cells, t=any_double)
@example(epsilon=1.0, n_cells=9, t=1.0)
@example(epsilon=20.0, n_cells=3, t=-1 + 2**-53)
def test_exact_table_equals_reports_of_words_at_every_edge(mechanism, epsilon, n_cells, t):
    channel = mechanism(epsilon, n_cells)
    numbers = integers(channel)
    placement = placements_of(channel, [t])[0]
    row = channel.channel([t]).counts[0]
    # Edges at which the naive walk changes its report: multiples of low, the window's pieces, then the answers.
    common, favoured = n_cells * numbers["low"], numbers["window"] * numbers["extra"]
    pieces = [c * numbers["extra"] + s for c in range(numbers["window"]) for s in (0, numbers["extra"] - placement[1])]
    edges = [c * numbers["low"] for c in range(n_cells + 1)] if numbers["low"] else [0]
    edges += [common + p for p in pieces] + [common + favoured, common + favoured + placement[2], TOTAL]
    edges = sorted({edge for edge in edges if edge <= TOTAL})
    out = np.empty(2 * (len(edges) - 1), dtype=np.uint16)
    words = [w for a, b in itertools.pairwise(edges) for w in (a, b - 1)]
    kernel.report_words(np.full(len(words), t), np.array(words, dtype=np.uint64), channel._numbers, out)
    # Between two edges the report is one and the same, so the intervals' lengths are its words.
    totals = [0] * len(row)
    for (a, b), first, last in zip(itertools.pairwise(edges), out[::2].tolist(), out[1::2].tolist(), strict=True):
        assert first == last
        totals[first] += b - a
    assert totals == list(row)


@mechanisms
@given(epsilon=epsilons, n_cells=cells, t=st.floats(-1, 1))
def test_window_equals_that_of_exact_arithmetic(mechanism, epsilon, n_cells, t):
    channel = mechanism(epsilon, n_cells)
    if not channel.low:
        return
    start, shift, _ = placements_of(channel, [t])[0]
    cell, words = naive.window_start(t, n_cells, channel.window, channel.extra)
    error = (start - cell) * channel.extra + shift - words
    assert abs(error) <= 1 + Fraction(n_cells * channel.extra, 2**51)


def test_second_block_of_values_reads_a_separate_stream():
    channel, key = Hybrid(1.0, 101), Key.from_seed(1)
    values = np.linspace(-1, 1, 65_536 + 9)
    words = key.words("hybrid.privatize", user=1, size=9).tolist()
    numbers, spots = integers(channel), placements_of(channel, values[-9:])
    expected = [naive.report(*placement, word, numbers) for placement, word in zip(spots, words, strict=True)]
    assert channel.privatize(values, key=key)[-9:].tolist() == expected


@mechanisms
@given(epsilon=epsilons, n_cells=cells, t=st.floats(-1, 1))
def test_variance_is_that_of_the_exact_table(mechanism, epsilon, n_cells, t):
    channel = mechanism(epsilon, n_cells)
    assert channel.variance(t) == channel.channel([t]).variance(0)


# ---- invariants -----------------------------------------------------------------------------------------------------


@mechanisms
@settings(max_examples=50)
@given(epsilon=epsilons, n_cells=cells, values=st.lists(any_double, max_size=6))
def test_no_values_have_a_larger_ratio_than_stated(mechanism, epsilon, n_cells, values):
    channel = mechanism(epsilon, n_cells)
    stated = channel.likelihood_ratio
    assert stated <= naive_bounds.exp_bounds(epsilon)[0]
    assert epsilon * (1 - 1e-6) < channel.epsilon <= epsilon
    assert channel.channel([*values, 0.3, -0.4]).likelihood_ratio <= stated
    assert channel.channel([*values, -1.0, 1.0]).likelihood_ratio == stated


@mechanisms
def test_one_word_more_in_the_window_breaks_the_claim(mechanism):
    channel = mechanism(2.0)
    slack = 4 + math.exp(2)  # counts are rounded to even numbers
    assert Fraction(channel.low + channel.extra + math.ceil(slack), channel.low) > naive_bounds.exp_bounds(2.0)[1]


@mechanisms
@given(epsilon=st.floats(0.01, 20), n_cells=cells, t=st.floats(-1, 1))
def test_decoder_is_unbiased_exactly_at_the_ends_and_nearly_elsewhere(mechanism, epsilon, n_cells, t):
    channel = mechanism(epsilon, n_cells)
    table = channel.channel([-1.0, t, 1.0])
    assert (table.mean(0), table.mean(2)) == (-1, 1)
    bound = Fraction(1, 2**50)
    if channel.low:
        bound += Fraction(2, n_cells * channel.extra)
    if channel._span:
        bound += Fraction(1, channel._span)
    assert abs(table.mean(1) - Fraction(t)) <= bound


@pytest.mark.parametrize(
    ("mechanism", "formula"), [(Piecewise, naive.piecewise_variance), (Hybrid, naive.hybrid_variance)]
)
@pytest.mark.parametrize("epsilon", [0.3, 0.7, 2.0, 6.0])
def test_variance_is_the_papers_up_to_the_grid(mechanism, formula, epsilon):
    for t in (-1.0, 0.0, 0.37):
        assert math.isclose(mechanism(epsilon).variance(t), formula(t, epsilon), rel_tol=2e-3)
        assert math.isclose(mechanism(epsilon, 255).variance(t), formula(t, epsilon), rel_tol=0.05)


def test_hybrid_is_binary_response_alone_for_a_small_epsilon():
    # Wang et al. 2019: the border is 0.61.
    assert Hybrid(0.60).low == 0
    assert Hybrid(0.62).low > 0
    assert set(Hybrid(0.5, 11).privatize(np.zeros(500), key=Key.from_seed(1)).tolist()) == {11, 12}


@mechanisms
def test_values_out_of_range_and_not_finite(mechanism):
    channel, key = mechanism(8.0), Key.from_seed(1)
    values = np.array([np.nan, np.inf, -np.inf, 7.0, -7.0] * 200)
    neutral = np.array([0.0, 0.0, 0.0, 1.0, -1.0] * 200)
    np.testing.assert_array_equal(channel.privatize(values, key=key), channel.privatize(neutral, key=key))
    assert channel.channel([np.nan, 7.0]).inputs == (0, 1)


@mechanisms
def test_shapes_types_and_out(mechanism):
    channel, key = mechanism(1.0), Key.from_seed(1)
    values = np.linspace(-1, 1, 60, dtype=np.float32)
    expected = channel.privatize(values.astype(np.float64), key=key)
    np.testing.assert_array_equal(channel.privatize(values, key=key), expected)
    out = np.empty((6, 10), dtype=np.uint16)
    assert channel.privatize(values.reshape(6, 10), key=key, out=out) is out
    np.testing.assert_array_equal(out.reshape(-1), expected)
    assert channel.estimate(out).shape == (6, 10)
    assert channel.privatize([], key=key).shape == (0,)
    assert channel.privatize(0.5, key=key).shape == ()
    read_only = values[::2]
    read_only.flags.writeable = False
    assert channel.privatize(read_only, key=key).shape == (30,)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@mechanisms
@pytest.mark.parametrize("epsilon", [9e-7, 40.1])
def test_bad_epsilons(mechanism, epsilon):
    with pytest.raises(ValueError, match="epsilon must be"):
        mechanism(epsilon)


@mechanisms
def test_epsilons_at_the_ends(mechanism):
    for epsilon in (1e-6, 40.0):
        channel = mechanism(epsilon)
        assert 0.9 * epsilon < channel.epsilon <= epsilon
        assert channel.channel([-1.0, 1.0]).mean(1) == 1


@mechanisms
def test_bad_arguments(mechanism):
    with pytest.raises(ValueError, match="n_cells must be odd, got 4"):
        mechanism(1.0, 4)
    with pytest.raises(ValueError, match="n_cells must be at most 65533"):
        mechanism(1.0, 65_535)
    channel = mechanism(1.0, 5)
    with pytest.raises(ValueError, match="t must be at most 1"):
        channel.variance(1.5)
    with pytest.raises(TypeError, match="reports must be integers"):
        channel.estimate([0.0])
    with pytest.raises(ValueError, match=r"reports must be in \[0, "):
        channel.estimate([7])
    with pytest.raises(TypeError, match="out must be an array of uint16, got an array of uint8"):
        channel.privatize([0.0], out=np.empty(1, dtype=np.uint8))
    with pytest.raises(TypeError, match="values must be real numbers, got dtype <U1"):
        channel.privatize(["x"])
    with pytest.raises(ValueError, match="round must be at least 0"):
        channel.privatize([0.0], round=-1)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@mechanisms
@pytest.mark.parametrize("t", [-0.9, 0.4])
def test_share_of_the_window_and_mean_are_the_stated_ones(mechanism, t):
    channel, n = mechanism(2.0), 500_000
    reports = channel.privatize(np.full(n, t), key=Key.from_seed(5))
    row = channel.channel([t]).counts[0]
    in_window = np.array(row[: channel.n_cells]) > channel.low
    stated = sum(row[cell] for cell in np.flatnonzero(in_window)) / TOTAL
    hits = in_window[reports[reports < channel.n_cells]].sum()
    decoded, stddev = channel.estimate(reports), math.sqrt(channel.variance(t))
    assert_only(lambda factor: share_is(hits, n, factor * stated))
    assert_only(lambda factor: mean_is(decoded, factor * t, stddev))
