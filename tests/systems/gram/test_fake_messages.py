"""Fake messages: their distribution, and the choice of a user's own cells."""

import bisect
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fastfedrec import Key
from fastfedrec.systems.gram.fake_messages import (
    FakeMessages,
    choose_ranks,
    poisson_table,
    scale_words,
    shares_of_rows,
)

ALPHA = 1e-6
KEY = Key.from_seed(5)
MEANS = [Fraction(1, 10**6), Fraction(1, 3), Fraction(15, 2), Fraction(16_687)]


def chances_of(table):
    edges = [0, *(high << 64 | low for high, low in table.thresholds.tolist()), 2**128]
    return [Fraction(high - low, 2**128) for low, high in itertools.pairwise(edges)]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", MEANS)
def test_a_table_has_the_chances_of_scipy(mean):
    table = poisson_table(mean)
    numbers = np.arange(table.low, table.high + 1)
    chances = np.array([float(chance) for chance in chances_of(table)])
    np.testing.assert_allclose(chances, stats.poisson.pmf(numbers, float(mean)), rtol=1e-9, atol=1e-17)


@pytest.mark.parametrize("mean", MEANS[1:3])
def test_the_distance_of_a_table_is_below_its_bound(mean):
    # Rational bounds of e^-mean by its series, and exact chances.
    terms = [Fraction(1)]
    while terms[-1] > Fraction(1, 2**200):
        terms.append(terms[-1] * mean / len(terms))
    norm, table = sum(terms), poisson_table(mean)
    distance = sum(
        abs(chance - terms[number] / norm) for number, chance in enumerate(chances_of(table), start=table.low)
    )
    outside = 1 - sum(terms[table.low : table.high + 1]) / norm
    assert (distance + outside) / 2 <= table.total_variation < Fraction(1, 2**110)


@pytest.mark.parametrize("mean", MEANS)
def test_a_draw_is_the_number_of_thresholds_up_to_all_128_bits(mean):
    # Many thresholds of the tails have the same first word.
    table = poisson_table(mean)
    numbers = [high << 64 | low for high, low in table.thresholds.tolist()]
    bits = sorted({min(max(number + step, 0), 2**128 - 1) for number in numbers for step in (-1, 0, 1)})
    words = np.array([divmod(one, 2**64) for one in bits], dtype=np.uint64)
    assert table.draw(words).tolist() == [table.low + bisect.bisect_right(numbers, one) for one in bits]


def test_more_cells_than_the_scaling_of_words_allows_are_refused():
    assert FakeMessages.of(1.0, 92_682 * 92_681 // 2).n_cells < 2**32
    with pytest.raises(ValueError, match=r"must be at most 4,294,967,295, got 4,295,022,903; choose fewer items"):
        FakeMessages.of(1.0, 92_683 * 92_682 // 2)


@given(word=st.integers(0, 2**64 - 1), n=st.integers(1, 2**32 - 1))
def test_words_are_scaled_exactly(word, n):
    assert scale_words(np.array([word], dtype=np.uint64), n).tolist() == [word * n >> 64]


@given(n_messages=st.integers(1, 200), n_cells=st.integers(0, 400))
def test_rows_have_the_best_number_of_messages(n_messages, n_cells):
    (times,), (size,) = shares_of_rows(np.array([n_cells]), n_messages)
    assert times**2 * size <= n_messages
    assert size <= n_cells
    if n_cells:
        best = max(c * min(1, n_messages // c**2 / n_cells) for c in range(1, math.isqrt(n_messages) + 1))
        assert times * size / n_cells == pytest.approx(best)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(n_cells=st.lists(st.integers(5, 60), min_size=1, max_size=8), size=st.integers(0, 5))
def test_ranks_are_distinct_cells_of_the_row(n_cells, size):
    words = KEY.words_by_user("ranks", np.arange(len(n_cells), dtype=np.uint64), size=size)
    ranks = choose_ranks(words, np.array(n_cells))
    assert ranks.shape == (len(n_cells), size)
    for row, limit in zip(ranks.tolist(), n_cells, strict=True):
        assert len(set(row)) == size
        assert all(0 <= rank < limit for rank in row)


@given(rate=st.floats(1e-9, 1e3), n_cells=st.integers(1, 10**7))
def test_a_cell_has_at_least_the_requested_rate(rate, n_cells):
    fakes = FakeMessages.of(rate, n_cells)
    assert rate * (1 - 2.0**-50) <= fakes.rate <= rate * (1 + 2.0**-20)
    # The least likely cell has floor(2^64 / n_cells) words.
    assert Fraction(fakes.rate) <= fakes.total * Fraction(2**64 // n_cells, 2**64)


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (0.9, False), (1.1, False)])
def test_numbers_of_fakes_have_the_distribution_of_poisson(factor, is_right):
    draws = poisson_table(Fraction(15, 2)).draw(KEY.words("numbers", size=200_000).reshape(-1, 2))
    top = 20
    observed = np.bincount(np.minimum(draws, top), minlength=top + 1)
    chances = stats.poisson.pmf(np.arange(top), 7.5 * factor)
    expected = len(draws) * np.append(chances, 1 - chances.sum())
    assert (stats.chisquare(observed, expected * len(draws) / expected.sum()).pvalue > ALPHA) == is_right


@pytest.mark.slow
def test_sets_of_ranks_are_equally_likely():
    words = KEY.words_by_user("sets", np.arange(60_000, dtype=np.uint64), size=3)
    ranks = np.sort(choose_ranks(words, np.full(60_000, 6)), axis=1)
    sets, counts = np.unique(ranks, axis=0, return_counts=True)
    assert len(sets) == math.comb(6, 3)
    assert stats.chisquare(counts).pvalue > ALPHA
    assert stats.chisquare(counts + np.eye(20, dtype=int)[0] * 300 - np.eye(20, dtype=int)[1] * 300).pvalue < ALPHA
