"""Client sampling: against naive twins on the same words, and against the distributions that accountants assume."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive.mechanisms import client_sampling as naive
from support.significance import assert_only, counts_are, share_is
from support.strategies import keys

from fastfedrec import Key
from fastfedrec._kernels.mechanisms import client_sampling as kernel
from fastfedrec.mechanisms import FixedSizeSampling, PoissonSampling

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(n=st.integers(0, 200), probability=st.floats(1e-3, 1), key=keys())
@example(n=65_536 + 50, probability=0.01, key=Key.from_seed(1))
def test_poisson_cohort_equals_naive_twin(n, probability, key):
    sampling = PoissonSampling(probability)
    cohort = sampling.sample(n, key=key, round=2)
    assert cohort.dtype == np.int64
    assert cohort.tolist() == naive.poisson(n, sampling.sampling_probability, key, 2)


@given(n=st.integers(1, 300), data=st.data(), key=keys())
def test_fixed_size_cohort_equals_naive_twin(n, data, key):
    size = data.draw(st.integers(1, n))
    words = iter(key.words("client_sampling.fixed_size", round=2, size=size + 20).tolist())
    cohort = FixedSizeSampling(size).sample(n, key=key, round=2)
    assert cohort.dtype == np.int64
    assert cohort.tolist() == naive.fixed_size(n, size, words)


@given(bound=st.integers(1, 2**64 - 1) | st.integers(2**63, 2**63 + 99), key=keys())
@example(bound=2**63 + 1, key=Key.from_seed(1))
def test_integers_are_drawn_again_as_by_naive_twin(bound, key):
    out = np.zeros(20, dtype=np.uint64)
    kernel.uniform_integers(out, key.subkey("test"), bound, 3)
    words = iter(key.words("test", round=3, size=400).tolist())
    assert out.tolist() == [naive.below(bound, words) for _ in range(20)]


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 7])
def test_naive_integers_are_unbiased_over_all_words(bound):
    # The same rule with 8-bit words: every integer is reached by equally many words.
    accepted = Counter((word * bound) >> 8 for word in range(256) if (word * bound) % 256 >= 256 % bound)
    assert accepted == dict.fromkeys(range(bound), 256 // bound)
    # Negative control: without drawing again, some integers come oftener.
    biased = Counter((word * bound) >> 8 for word in range(256))
    assert (len(set(biased.values())) == 1) == (256 % bound == 0)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(probability=st.floats(1e-18, 1))
@example(probability=1.0)
@example(probability=0.1)
def test_probability_is_rounded_down_to_64_bits(probability):
    exact = PoissonSampling(probability).sampling_probability
    assert exact.denominator <= 2**64
    assert 0 <= Fraction(probability) - exact <= Fraction(1, 2**64)
    assert exact < 1


@given(n=st.integers(1, 300), data=st.data(), key=keys())
def test_fixed_size_cohort_is_a_subset_of_the_stated_size(n, data, key):
    size = data.draw(st.integers(1, n))
    cohort = FixedSizeSampling(size).sample(n, key=key).tolist()
    assert len(cohort) == size
    assert cohort == sorted(set(cohort) & set(range(n)))


def test_poisson_choice_of_a_client_does_not_depend_on_later_clients():
    sampling, key = PoissonSampling(0.3), Key.from_seed(1)
    long = sampling.sample(70_000, key=key)
    np.testing.assert_array_equal(sampling.sample(500, key=key), long[long < 500])


def test_rounds_differ():
    key = Key.from_seed(1)
    for sampling in (PoissonSampling(0.5), FixedSizeSampling(50)):
        assert sampling.sample(100, key=key).tolist() == sampling.sample(100, key=key).tolist()
        assert sampling.sample(100, key=key).tolist() != sampling.sample(100, key=key, round=1).tolist()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments():
    for probability in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="sampling_probability must be"):
            PoissonSampling(probability)
    with pytest.raises(ValueError, match=r"sampling_probability must be at least 2\*\*-64, got 0.0"):
        PoissonSampling(0.0)
    with pytest.raises(ValueError, match="cohort_size must be at least 1"):
        FixedSizeSampling(0)
    with pytest.raises(TypeError, match="cohort_size must be an integer"):
        FixedSizeSampling(2.0)
    with pytest.raises(ValueError, match="n_clients must be at least cohort_size=5, got 4"):
        FixedSizeSampling(5).sample(4, key=Key.from_seed(1))
    for sampling in (PoissonSampling(0.5), FixedSizeSampling(1)):
        with pytest.raises(TypeError, match="key must be Key, got int"):
            sampling.sample(4, key=1)
        with pytest.raises(ValueError, match="round must be at least 0"):
            sampling.sample(4, key=Key.from_seed(1), round=-1)


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_cohort():
    sampling, key = PoissonSampling(0.1), Key.from_seed(1)
    np.testing.assert_array_equal(
        sampling.sample(300_000, key=key, n_threads=1), sampling.sample(300_000, key=key, n_threads=4)
    )


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_words", [1, 1023, 1024, 1025, 5000])
def test_marked_clients_are_listed_on_any_number_of_threads(n_words, n_threads):
    marked = np.random.default_rng(n_words).integers(0, 2**64, n_words, dtype=np.uint64)
    marked[n_words // 3 : n_words // 2] = 0
    expected = np.flatnonzero(np.unpackbits(marked.astype("<u8").view(np.uint8), bitorder="little"))
    out = np.full(len(expected), -1)
    kernel.list_marked(marked, out, n_threads)
    np.testing.assert_array_equal(out, expected)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.004, 0.3])
def test_share_of_clients_is_the_stated_one(probability):
    taken = len(PoissonSampling(probability).sample(2_000_000, key=Key.from_seed(1)))
    assert_only(lambda factor: share_is(taken, 2_000_000, probability * factor))


@pytest.mark.slow
def test_every_cohort_is_equally_likely():
    key, n_rounds = Key.from_seed(2), 100_000
    seen = Counter(tuple(FixedSizeSampling(2).sample(5, key=key, round=r).tolist()) for r in range(n_rounds))
    pairs = list(itertools.combinations(range(5), 2))
    counts = [seen[pair] for pair in pairs]
    assert sum(counts) == n_rounds
    assert_only(lambda factor: counts_are(counts, [factor * 0.1] + [(1 - factor * 0.1) / 9] * 9))


@pytest.mark.slow
def test_poisson_clients_are_independent():
    key, n_rounds = Key.from_seed(3), 60_000
    sampling = PoissonSampling(0.5)
    seen = Counter(tuple(sampling.sample(2, key=key, round=r, n_threads=1).tolist()) for r in range(n_rounds))
    counts = [seen[cohort] for cohort in ((), (0,), (1,), (0, 1))]
    assert counts_are(counts, [0.25] * 4)
    for shift in (-0.025, 0.025):  # correlation of -10% and +10%
        assert not counts_are(counts, [0.25 + shift, 0.25 - shift, 0.25 - shift, 0.25 + shift])
