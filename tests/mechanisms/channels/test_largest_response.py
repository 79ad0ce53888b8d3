"""Tests of LargestResponse: its exact distribution for few entries stays within the claim and matches the draws."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels.largest_response import distribution_of_reports, report
from scipy import stats
from support.significance import counts_are

from fastfedrec import Key
from fastfedrec.mechanisms import BinaryResponse, LargestResponse
from fastfedrec.mechanisms.channels.channel import TOTAL, exp_lower
from fastfedrec.systems.gram.shuffled_sketch import mean_largest

VALUES = st.integers(-3, 3)


def ratio_of_the_most_likely(n_candidates, share, n_entries):
    """Return the likelihood ratio of the largest of many entries and its opposite sign, which only clones report."""
    chosen = 1 - (1 - Fraction(1, n_entries)) ** n_candidates
    clone = share / (2 * n_entries)
    return ((1 - share) * chosen + clone) / clone


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_candidates", [1, 2, 8, 500])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 2.5, 20.0])
def test_clones_are_as_few_as_epsilon_allows(epsilon, n_candidates):
    response, bound = LargestResponse(epsilon, n_candidates), exp_lower(epsilon)
    assert response.likelihood_ratio <= bound
    fewer = response.clones - 2
    assert 1 + Fraction(2 * n_candidates * (TOTAL - fewer), fewer) > bound
    assert response.clones % 2 == 0
    assert response.epsilon <= epsilon
    assert response.epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("n_candidates", "n_entries", "round"), [(1, 4, 0), (2, 8, 3), (8, 16, 1), (3, 1, 2)])
def test_largest_responses_equal_naive_twin(n_candidates, n_entries, round):
    response, key = LargestResponse(1.5, n_candidates), Key.from_seed(5)
    values = np.random.default_rng(1).integers(-3, 4, (300, n_entries)) / 2
    words = key.words("largest_response", round=round, size=300 * (1 + n_candidates)).reshape(300, -1).tolist()
    expected = [report(row, drawn, response.clones) for row, drawn in zip(values.tolist(), words, strict=True)]
    assert response.privatize(values, key=key, round=round).tolist() == [list(answer) for answer in expected]


@pytest.mark.parametrize("epsilon", [0.3, 2.5])
def test_one_candidate_is_binary_response_about_a_random_entry(epsilon):
    one, binary = LargestResponse(epsilon, 1), BinaryResponse(epsilon)
    assert one.decoder == pytest.approx(binary.decoder, rel=1e-12)
    share = Fraction(one.clones, TOTAL)
    actual = distribution_of_reports([3, -1], 1, share)
    for entry, sign in itertools.product((0, 1), (1, -1)):
        answer = binary.probability(0, 0) if (entry == 0) == (sign == 1) else binary.probability(0, 1)
        assert float(actual[entry, sign]) == pytest.approx(float(answer) / 2, rel=1e-12)


def test_the_noise_of_the_page():
    """The signal of shuffled reports is w^2 c / v, for normal entries at epsilon 2.5, as the page states."""
    x = np.linspace(-9, 9, 18_001)
    density, below, ratio = stats.norm.pdf(x), stats.norm.cdf(x), math.exp(2.5)
    largest = x[1] - x[0]
    largest *= (x * 2 * 8 * density * np.maximum(2 * below - 1, 0) ** 7).sum()
    clones = LargestResponse(2.5, 8).clones / TOTAL
    ours = largest**2 * clones / (2 * 8**2 / 15 - 1)
    caps = np.linspace(0.001, 0.5, 500)
    cap = (stats.norm.pdf(stats.norm.isf(caps)) ** 2 / (caps * (1 - caps)) / (caps * ratio + 1 - caps)).max()
    corners = (x[1] - x[0]) * (x * 8 * density * below**7).sum() * math.sqrt(8 / 7)
    simplex = corners**2 / 7 * 8 / (ratio + 7)
    binary = 2 / math.pi * 2 / (ratio + 1)
    actual = [ours, mean_largest(8, True) ** 2 * clones / (2 * 8**2 / 15 - 1), cap, simplex, binary]
    assert [round(one, 3) for one in actual] == [0.248, 0.304, 0.162, 0.138, 0.097]
    assert [round(math.sqrt(ours / one), 2) for one in actual] == [1, 0.9, 1.24, 1.34, 1.6]


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_no_two_vectors_differ_by_more_than_the_claim(values, data):
    other_values = data.draw(st.lists(VALUES, min_size=len(values), max_size=len(values)))
    response = LargestResponse(data.draw(st.sampled_from([0.2, 1.0, 3.0])), data.draw(st.integers(1, 4)))
    share = Fraction(response.clones, TOTAL)
    first, second = (distribution_of_reports(of, response.n_candidates, share) for of in (values, other_values))
    assert sum(first.values()) == 1
    assert max(first[y] / second[y] for y in first) <= response.likelihood_ratio
    # A clone's share is the lower bound of each probability; the largest choice adds the upper bound.
    uniform = Fraction(1, 2 * len(values))
    assert all(
        share * uniform <= p <= (share + (1 - share) * 2 * response.n_candidates) * uniform for p in first.values()
    )


@pytest.mark.parametrize("n_candidates", [1, 2, 8])
def test_the_claim_is_reached_with_many_entries_so_that_less_is_refuted(n_candidates):
    response = LargestResponse(2.5, n_candidates)
    share = Fraction(response.clones, TOTAL)
    if n_candidates < 8:
        few = distribution_of_reports([5, 1, 2], n_candidates, share)
        assert few[0, 1] / few[0, -1] == ratio_of_the_most_likely(n_candidates, share, 3)
    reached = math.log(ratio_of_the_most_likely(n_candidates, share, 10_000))
    assert 0.999 * response.epsilon < reached <= response.epsilon
    fewer_clones = ratio_of_the_most_likely(n_candidates, share * Fraction(9, 10), 10_000)
    more_candidates = ratio_of_the_most_likely(n_candidates + 1, share, 10_000)
    assert min(fewer_clones, more_candidates) > response.likelihood_ratio


@settings(max_examples=40)
@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(1, 3))
def test_answers_mean_the_largest_entry_exactly(values, n_candidates):
    share = Fraction(1, 3)
    actual = distribution_of_reports(values, n_candidates, share)
    mean = sum(p * sign * values[entry] for (entry, sign), p in actual.items()) / (1 - share)
    drawn = list(itertools.product([abs(v) for v in values], repeat=n_candidates))
    assert mean == Fraction(sum(map(max, drawn)), len(drawn))


def test_an_empty_vector_is_reported_uniformly():
    assert set(distribution_of_reports([0, 0, 0], 3, Fraction(1, 7)).values()) == {Fraction(1, 6)}


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("values", [[3.0, -2.0, 0.5, 0.5], [0.0, -1.0, 0.0, 1.0], [-2.0]])
def test_reports_have_the_exact_distribution_and_no_other(values):
    response, n = LargestResponse(1.5, 2), 200_000
    entries, signs = response.privatize(np.tile(values, (n, 1)), key=Key.from_seed(1)).T
    reports = [(entry, sign) for entry in range(len(values)) for sign in (1, -1)]
    seen = [int(((entries == entry) & (signs == sign)).sum()) for entry, sign in reports]

    def chances(share):
        actual = distribution_of_reports(values, 2, share)
        return [float(actual[report]) for report in reports]

    share = Fraction(response.clones, TOTAL)
    assert counts_are(seen, chances(share))
    assert not counts_are(seen, chances(share * Fraction(9, 10)))
    assert not counts_are(seen, chances(share * Fraction(11, 10)))


def test_no_users_have_no_reports():
    assert LargestResponse(1.0).privatize(np.empty((0, 4)), key=Key.from_seed(1)).shape == (0, 2)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"nominal_epsilon": 0.0}, ValueError, "nominal_epsilon must be greater than 0"),
        ({"nominal_epsilon": 1e-19}, ValueError, r"nominal_epsilon must be at least about 2e-18 for 8 candidates"),
        ({"nominal_epsilon": 1.0, "n_candidates": 0}, ValueError, "n_candidates must be at least 1"),
        ({"nominal_epsilon": 1.0, "n_candidates": 2**17}, ValueError, "n_candidates must be at most 65536"),
        ({"epsilon": 1.0}, TypeError, "takes nominal_epsilon, not epsilon"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        LargestResponse(**arguments)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], r"values must have 2 dimensions, .* got shape \(2,\)"),
        ([[1.0, 2.0, 3.0]], r"the second a power of 2 \(append zeros\), got shape \(1, 3\)"),
        (np.empty((2, 0)), r"got shape \(2, 0\)"),
        (np.array([[True, False]]), "^values must be"),
        ([["1", "2"]], "^values must be"),
        ([[1j, 0]], "^values must be"),
        ([[1.0], [1.0, 2.0]], "^values must be"),
    ],
)
def test_bad_vectors(values, message):
    with pytest.raises((TypeError, ValueError), match=message):
        LargestResponse(1.0).privatize(values, key=Key.from_seed(1))


@pytest.mark.parametrize("epsilon", [1e-15, 800.0, 1e300])
def test_extremes_keep_their_word(epsilon):
    response = LargestResponse(epsilon)
    assert 0 < response.epsilon <= epsilon
    assert 2 <= response.clones < TOTAL
    assert response.decoder >= 1
