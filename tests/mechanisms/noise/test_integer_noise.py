"""Tests of integer noise: tables against the distributions to 80 digits, sums, and the cost of the sampler."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.mechanisms.noise import integer_noise as naive

from fastfedrec import Key, hardware
from fastfedrec._kernels.mechanisms.noise import _noise_table as table_kernel
from fastfedrec._kernels.mechanisms.noise import integer_noise as kernel
from fastfedrec.mechanisms import DiscreteGaussian, DiscreteLaplace, LayeredGaussian, RoundedGaussian
from fastfedrec.mechanisms.noise.exact_sampling import exp_minus

MAKERS = {
    "laplace": lambda p: DiscreteLaplace(p, sampler="table"),
    "gaussian": lambda p: DiscreteGaussian(p, sampler="table"),
    "rounded": RoundedGaussian,
}
IDEALS = {"laplace": naive.laplace, "gaussian": naive.gaussian, "rounded": naive.rounded_gaussian}
CASES = [
    *(("laplace", p) for p in (Fraction(1, 300), Fraction(1, 3), 1, 2.5, Fraction(10) / Fraction(0.7))),
    *(("gaussian", p) for p in (Fraction(1, 30), 0.4, 1, 7.25, Fraction(50, 3))),
    *(("rounded", p) for p in (Fraction(1, 2), 0.7, 1, 7.25, Fraction(50, 3))),
]
noises = st.sampled_from(CASES).map(lambda case: MAKERS[case[0]](case[1]))


def thresholds_of(noise):
    (table,) = noise._tables
    return [
        (int(high) << 64) | int(low) for high, low in zip(table.high[:-1], table.low[:-1], strict=True)
    ], table.reach


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_table_is_within_the_stated_distance_and_perturbed_ones_are_not(name, parameter):
    noise = MAKERS[name](parameter)
    thresholds, reach = thresholds_of(noise)
    assert thresholds == sorted(thresholds)
    stated = naive.to_decimal(noise.total_variation)

    def distance(factor):
        return naive.table_distance(thresholds, reach, IDEALS[name](Fraction(parameter) * factor, 2 * reach + 40))

    assert distance(1) <= stated < Decimal("1e-34")
    # Negative controls: 10%, and one part in 10^28.
    for factor in (Fraction(9, 10), Fraction(11, 10), 1 + Fraction(1, 10**28)):
        assert distance(factor) > stated or Fraction(parameter) < Fraction(1, 20)


def test_table_of_a_large_scale_is_within_the_stated_distance():
    noise = RoundedGaussian(Fraction(1234, 3))
    thresholds, reach = thresholds_of(noise)
    # The full table is too long for 120 digits, so the test checks the middle and both ends.
    ideal = naive.rounded_gaussian(Fraction(1234, 3), 6)
    edges = [0, *thresholds, 2**128]
    for x in range(-5, 6):
        got = Fraction(edges[reach + x + 1] - edges[reach + x], 2**128)
        assert abs(got - Fraction(ideal[abs(x)])) < Fraction(1, 2**127)
    assert edges[1] < 2**10
    assert 2**128 - edges[-2] < 2**10


@pytest.mark.parametrize("parameter", [Fraction(1, 2), Fraction(0.7), Fraction(50, 3), Fraction(77.7)])
def test_tables_are_those_of_whole_numbers_of_any_size(parameter):
    one = exp_minus(1 / parameter, 256)
    assert thresholds_of(MAKERS["laplace"](parameter))[0] == naive.thresholds(naive.falling_weights(one))
    q = 1 / (2 * parameter**2)
    densities = naive.falling_weights(exp_minus(q, 256), exp_minus(2 * q, 256))
    assert thresholds_of(MAKERS["gaussian"](parameter))[0] == naive.thresholds(densities)
    masses = naive.cell_masses(densities, parameter)
    assert thresholds_of(MAKERS["rounded"](parameter))[0] == naive.thresholds(masses)


@given(weights=st.lists(st.integers(1, 2**300), max_size=20), first=st.integers(2**256, 2**300))
def test_thresholds_of_any_weights_are_rounded_down(weights, first):
    weights = [first, *weights, 0]
    rows = np.array([[w >> 64 * k & (2**64 - 1) for k in range(5)] for w in weights], dtype=np.uint64)
    total = 2 * sum(weights[1:]) + first
    words = [np.array([x >> 64 * k & (2**64 - 1) for k in range(n)], dtype=np.uint64)
             for x, n in ((total, 5), (2**448 // total, 4))]  # fmt: skip
    high, low = np.zeros((2, 2 * len(weights) - 4), dtype=np.uint64)
    table_kernel.fill_thresholds(rows[:-1], *words, high, low)
    table = [(int(a) << 64) | int(b) for a, b in zip(high, low, strict=True)]
    assert table == naive.thresholds(weights)


@given(noise=noises, seed=st.integers(0, 2**32), n=st.integers(0, 60))
def test_draws_equal_naive_twin(noise, seed, n):
    thresholds, reach = thresholds_of(noise)
    key = Key.from_seed(seed)
    words = key.words("test", round=5, size=n).tolist()
    expected = [naive.draw(thresholds, reach, word << 64) for word in words]  # no ties but with chance 2^-60
    assert noise.sample(n, key=key, purpose="test", round=5).tolist() == expected


@given(noise=noises, data=st.data())
def test_ties_are_decided_by_the_second_word(noise, data):
    thresholds, reach = thresholds_of(noise)
    near = st.sampled_from([0, *thresholds, 2**128 - 1]).flatmap(
        lambda t: st.integers(-2, 2).map(lambda d: min(max(t + d, 0), 2**128 - 1))
    )
    numbers = data.draw(st.lists(st.one_of(near, st.integers(0, 2**128 - 1)), max_size=40))
    words = np.array([[n >> 64, n & (2**64 - 1)] for n in numbers], dtype=np.uint64).reshape(-1, 2)
    out = np.zeros(len(numbers), dtype=np.int64)
    (table,) = noise._tables
    kernel.lookup(words, out, table.high, table.low, table.guide, table.shift)
    assert out.tolist() == [naive.draw(thresholds, reach, n) for n in numbers]


def test_second_block_of_values_reads_a_separate_stream():
    noise, key = RoundedGaussian(9), Key.from_seed(1)
    thresholds, reach = thresholds_of(noise)
    expected = [naive.draw(thresholds, reach, word << 64) for word in key.words("test", user=1, size=9).tolist()]
    assert noise.sample(65_536 + 9, key=key, purpose="test")[-9:].tolist() == expected


def tied_table(words, rng):
    """High and low halves of thresholds, some high ones equal to words, and the sentinels."""
    high = sorted(set(words) | set(rng.integers(2**64, size=5, dtype=np.uint64).tolist()))
    high = high[: len(high) // 2 * 2]
    low = rng.integers(2**64, size=len(high), dtype=np.uint64).tolist()
    guide = np.searchsorted(np.array(high, dtype=np.uint64), np.arange(256, dtype=np.uint64) << np.uint64(56))
    return (*(np.array([*half, 2**64 - 1], dtype=np.uint64) for half in (high, low)), guide.astype(np.int32))


def draws_of(words, n, high, low, guide):
    """The naive draws of a stream, a second word for each tie."""
    high, low = high[:-1].tolist(), low[:-1].tolist()
    thresholds = [(upper << 64) | lower for upper, lower in zip(high, low, strict=True)]
    draws, position = [], 0
    while len(draws) < n:
        second = words[position + 1] if words[position] in high else 0
        draws.append(naive.draw(thresholds, len(high) // 2, (words[position] << 64) | second))
        position += 2 if words[position] in high else 1
    return draws


sizes = st.sampled_from([1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 384, 700])
tied_positions = st.lists(st.integers(0, 400), min_size=1, max_size=3)


@pytest.mark.every_instruction_set
@given(n=sizes, tied=tied_positions, seed=st.integers(0, 2**32))
def test_a_tie_takes_a_second_word_wherever_it_falls(n, tied, seed):
    # Thresholds equal words of the stream: a tie that occurs by chance once in 2^60 draws.
    key = Key.from_seed(seed)
    words = key.words("test", size=n + 8).tolist()
    table = tied_table([words[t % n] for t in tied], np.random.default_rng(seed))
    expected = draws_of(words, n, *table)
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            got = np.zeros(n, dtype=np.int64)
            kernel.add_noise(got, *table, key.subkey("test"), 56, 0, 1)
            assert got.tolist() == expected


@pytest.mark.every_instruction_set
@given(
    n=sizes, tied=st.lists(tied_positions, min_size=2, max_size=7), base=st.integers(0, 500), seed=st.integers(0, 2**32)
)
def test_layers_equal_naive_twin_with_ties_in_any_of_them(n, tied, base, seed):
    key, rng = Key.from_seed(seed), np.random.default_rng(seed)
    names = [f"layer {layer}" for layer in range(len(tied))]
    words = [key.words(name, size=n + 24).tolist() for name in names]
    ties = [[w[t % n] for t in positions] for w, positions in zip(words, tied, strict=True)]
    top, below = tied_table(ties[0], rng), tied_table(itertools.chain(*ties[1:]), rng)
    draws = [draws_of(w, n, *(below if layer else top)) for layer, w in enumerate(words)]
    ends = np.array([2**63 - 1, -(2**63), 0] * n, dtype=np.int64)[:n]
    for name in hardware.instruction_sets():
        with hardware.use_instruction_set(name):
            got = ends.copy()
            subkeys = np.stack([key.subkey(name) for name in names])
            kernel.add_layers(got, *top, *below, subkeys, 56, 56, base, 0, 1)
            assert got.tolist() == naive.add_layers(ends.tolist(), draws, base)


@pytest.mark.parametrize("n_layers", [0, 8])
def test_more_layers_than_a_block_has_room_for_are_refused(n_layers):
    table = tied_table([], np.random.default_rng(0))
    values, subkeys = np.zeros(3, dtype=np.int64), np.zeros((n_layers, 8), dtype=np.uint32)
    with pytest.raises(ValueError, match=f"subkeys must be of 1 to 7 layers, got {n_layers}"):
        kernel.add_layers(values, *table, *table, subkeys, 56, 56, 10, 0, 1)
    assert not values.any()


def test_the_twin_of_layers_knows_their_order_and_their_base():
    layers = [[3, -1], [0, 2], [5, 5]]
    assert naive.add_layers([1, 1], layers, 10) == [306, -74]
    assert naive.add_layers([1, 1], layers[::-1], 10) != [306, -74] != naive.add_layers([1, 1], layers, 11)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(noise=noises, epsilon=st.floats(0, 50), n=st.integers(0, 10**12))
def test_delta_is_the_formula_rounded_up(noise, epsilon, n):
    delta = noise.delta(epsilon, n)
    exact = (1 + Fraction(math.exp(epsilon))) * n * noise.total_variation
    assert Fraction(delta) >= min(exact * (1 - Fraction(1, 2**50)), 1)
    assert Fraction(delta) <= exact * (1 + Fraction(1, 2**49))
    assert noise.delta(epsilon, n + 1) >= delta
    assert noise.delta(epsilon + 1, n) >= delta


def test_exact_samplers_add_no_delta():
    assert DiscreteLaplace(3).delta(1.0, 10**9) == DiscreteGaussian(3).delta(1.0, 10**9) == 0
    assert DiscreteLaplace(3).total_variation == 0


def test_at_an_epsilon_beyond_floats_a_table_has_no_guarantee():
    assert DiscreteGaussian(3, sampler="table").delta(5_000.0) == 1.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64, ">i4", ">u8"])
@pytest.mark.parametrize(
    "noise",
    [
        RoundedGaussian(9),
        LayeredGaussian(2**20),
        DiscreteLaplace(9),
        DiscreteGaussian(9),
        DiscreteLaplace(9, sampler="table"),
    ],
    ids=repr,
)
def test_privatize_adds_the_sample_and_keeps_the_shape(noise, dtype):
    values, key = np.arange(60, dtype=dtype).reshape(3, 20)[:, ::2], Key.from_seed(2)
    noisy = noise.privatize(values, key=key, round=3)
    assert noisy.dtype == np.int64
    drawn = noise.sample(30, key=key, purpose=noise._purpose, round=3).reshape(3, 10)
    np.testing.assert_array_equal(noisy - values.astype(np.int64), drawn)
    np.testing.assert_array_equal(noise.estimate(noisy), noisy.astype(float))
    out = np.ascontiguousarray(values).astype(np.int64)
    assert noise.privatize(out, key=key, round=3, out=out) is out
    np.testing.assert_array_equal(out, noisy)
    assert (noise.privatize(values, key=key, round=4) != noisy).any()


def test_sums_beyond_int64_saturate():
    noise, key = RoundedGaussian(9), Key.from_seed(2)
    ends = np.array([[2**63 - 3, -(2**63) + 3]] * 50)
    noisy = noise.privatize(ends, key=key)
    drawn = noise.sample(100, key=key, purpose=noise._purpose).tolist()
    expected = [min(max(v + d, -(2**63)), 2**63 - 1) for v, d in zip(ends.ravel().tolist(), drawn, strict=True)]
    assert noisy.ravel().tolist() == expected
    assert {2**63 - 1, -(2**63)} <= set(expected)
    for order in "<>":
        large = np.array([2**64 - 1, 2**63 + 5], dtype=f"{order}u8")
        assert (noise.privatize(large, key=key) >= 2**63 - 200).all()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    noise = RoundedGaussian(3)
    values = np.zeros(4, dtype=np.int64)
    with pytest.raises(TypeError, match="values must be integers, got dtype float64"):
        noise.privatize([0.5])
    with pytest.raises(TypeError, match="reports must be integers, got dtype float64"):
        noise.estimate([0.5])
    with pytest.raises(TypeError, match="key must be Key, got int"):
        noise.sample(2, key=1, purpose="test")
    with pytest.raises(ValueError, match="round must be at most"):
        noise.privatize(values, round=2**32)
    with pytest.raises(TypeError, match="out must be an array of int64, got an array of int32"):
        noise.privatize(values, out=values.astype(np.int32))
    with pytest.raises(ValueError, match="out must not share memory"):
        noise.privatize(values[:3], out=values[1:])
    with pytest.raises(ValueError, match="epsilon must be at least 0"):
        noise.delta(-1.0)
    with pytest.raises(ValueError, match="n_draws must be at least 0"):
        noise.delta(1.0, -1)
    for make in (lambda: DiscreteLaplace(10**4, sampler="table"), lambda: DiscreteGaussian(10**5, sampler="table")):
        with pytest.raises(ValueError, match=r"must be small enough for a table of .* use sampler='exact'"):
            make()


def test_entropy_key_serves_one_call_and_is_not_lost_to_a_bad_one():
    key, noise, values = Key.from_entropy(), RoundedGaussian(3), np.zeros(4, dtype=np.int64)
    with pytest.raises(ValueError, match="out must have shape"):
        noise.privatize(values, key=key, out=np.zeros(3, dtype=np.int64))
    noise.privatize(values, key=key)
    with pytest.raises(ValueError, match=r"already used by RoundedGaussian\.privatize"):
        noise.privatize(values, key=key)


# ---- statistics -----------------------------------------------------------------------------------------------------
# With the mechanisms: test_discrete_laplace.py, test_discrete_gaussian.py, test_rounded_gaussian.py.
