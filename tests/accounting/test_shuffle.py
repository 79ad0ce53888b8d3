import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    PLDAccountant,
    ShuffledReports,
    _loss,
    shuffled_epsilon,
    shuffled_epsilon_lower_bound,
)
from fastfedrec.accounting.shuffle import shuffled_loss, split_reports, zero_out_loss

DEFAULT = {"epsilon_per_report": 2.5, "n_reports": 100, "n_users": 50_000, "n_rounds": 1, "delta": 1e-6}


def ones_among(bits, epsilon):
    """Return the distribution of the number of ones among binary responses to `bits`, by enumeration."""
    truth_probability = 1 / (1 + math.exp(-epsilon))
    counts = Counter()
    for answers in itertools.product((0, 1), repeat=len(bits)):
        probability = math.prod(
            truth_probability if a == b else 1 - truth_probability for a, b in zip(answers, bits, strict=True)
        )
        counts[sum(answers)] += probability
    return counts


def exact_delta(epsilon, rounds, n_users, target):
    """Return the largest delta over all data of the other users, for one user's reports all ones or all zeros."""
    worst = 0.0
    for n_ones in range(n_users):
        other_bits = [1] * n_ones + [0] * (n_users - 1 - n_ones)
        one, zero = ones_among([1, *other_bits], epsilon), ones_among([0, *other_bits], epsilon)
        for p, q in ((one, zero), (zero, one)):
            delta = sum(
                max(0.0, math.prod(p[y] for y in ys) - math.exp(target) * math.prod(q[y] for y in ys))
                for ys in itertools.product(range(n_users + 1), repeat=rounds)
            )
            worst = max(worst, delta)
    return worst


def pair_delta(epsilon, n_users, target):
    """Return delta of one use of the variation-ratio pair, as an explicit sum."""
    clone, truth_probability = 2 / (math.exp(epsilon) + 1), 1 / (1 + math.exp(-epsilon))
    delta = 0.0
    for clones in range(n_users):
        weight = math.comb(n_users - 1, clones) * clone**clones * (1 - clone) ** (n_users - 1 - clones)
        for ones in range(clones + 2):
            as_one = math.comb(clones, ones - 1) if ones else 0
            as_zero = math.comb(clones, ones)
            p, q = (
                truth_probability * as_one + (1 - truth_probability) * as_zero,
                truth_probability * as_zero + (1 - truth_probability) * as_one,
            )
            delta += weight * 0.5**clones * max(0.0, p - math.exp(target) * q)
    return delta


def shuffled(epsilon, n_reports, n_users, **fields):
    return PLDAccountant().compose(ShuffledReports("binary response", epsilon, n_reports, n_users, **fields))


def mixed(rows, epsilon, n_subjects):
    """Return the distribution of the shuffled reports of all users, each about one of the subjects, by enumeration.

    A row gives for each subject the true answer, 1 or 0, or None for a fair coin.
    """
    truth_probability = 1 / (1 + math.exp(-epsilon))
    total = Counter({(): 1.0})
    for row in rows:
        one = Counter()
        for subject in range(n_subjects):
            for bit in (0, 1):
                chance = (
                    0.5 if row[subject] is None else truth_probability if bit == row[subject] else 1 - truth_probability
                )
                one[subject, bit] += chance / n_subjects
        grown = Counter()
        for seen, p in total.items():
            for report, q in one.items():
                grown[tuple(sorted([*seen, report]))] += p * q
        total = grown
    return total


def hockey_stick(p, q, target):
    return sum(max(0.0, p[y] - math.exp(target) * q[y]) for y in p.keys() | q.keys())


def zero_out_pair_delta(epsilon, n_reports, n_users, target):
    """Return delta of the exact pair for data against none as explicit sums, in both directions."""
    clone = 2 / (math.exp(epsilon) + 1)
    other_bits, user_row = (n_users - 1) * n_reports, [0.0] * (n_reports + 1)
    for ones in range(n_reports + 1):
        user_row[ones] = math.comb(n_reports, ones) * (1 - clone / 2) ** ones * (clone / 2) ** (n_reports - ones)
    forward = backward = 0.0
    for clones in range(other_bits + 1):
        weight = math.comb(other_bits, clones) * clone**clones * (1 - clone) ** (other_bits - clones)
        for ones in range(clones + n_reports + 1):
            inner = range(max(0, ones - clones), min(ones, n_reports) + 1)
            p = sum(user_row[i] * math.comb(clones, ones - i) for i in inner) / 2**clones
            q = math.comb(clones + n_reports, ones) / 2 ** (clones + n_reports)
            forward += weight * max(0.0, p - math.exp(target) * q)
            backward += weight * max(0.0, q - math.exp(target) * p)
    return max(forward, backward)


# --- oracle ---


@pytest.mark.parametrize(
    ("changed", "epsilon", "within"),
    [
        ({"n_reports": 1}, 0.0690, 5e-5),
        ({}, 0.811, 5e-4),
        ({"delta": 1e-8}, 0.993, 6e-4),
        ({"n_rounds": 10}, 2.84, 5e-3),
        ({"n_rounds": 20}, 4.18, 5e-3),
    ],
)
def test_figures_of_the_design_page(changed, epsilon, within):
    # design page on privacy, "Accounting": eps0 = 2.5, n = 50,000, delta = 1e-6
    assert shuffled_epsilon(**(DEFAULT | changed)) == pytest.approx(epsilon, abs=within)


def test_lower_bound_of_the_design_page():
    assert shuffled_epsilon_lower_bound(2.5, 100, 50_000, 1e-6) == pytest.approx(0.584, abs=5e-4)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("n_users", [1, 2, 9, 60])
def test_one_report_is_the_pair_written_out(epsilon, n_users):
    total = shuffled(epsilon, 1, n_users)
    for target in (0.0, 0.1, 0.5, 2.0):
        exact = pair_delta(epsilon, n_users, target)
        assert exact - 1e-12 <= total.get_delta(target) <= exact + 1e-5


@pytest.mark.parametrize(("rounds", "n_users"), [(1, 2), (1, 6), (2, 3), (3, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_never_below_the_truth_of_a_few_users(rounds, n_users, epsilon):
    total = shuffled(epsilon, rounds, n_users)
    for target in (0.0, 0.4, 1.2):
        assert total.get_delta(target) >= exact_delta(epsilon, rounds, n_users, target)


@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 1), (3, 1), (1, 9), (2, 12), (7, 5)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_data_against_none_is_the_pair_written_out(epsilon, n_reports, n_users):
    total = shuffled(epsilon, n_reports, n_users, neighboring="zero_out")
    for target in (0.0, 0.1, 0.5, 2.0):
        exact = zero_out_pair_delta(epsilon, n_reports, n_users, target)
        assert exact - 1e-12 <= total.get_delta(target) <= exact + 2e-5


@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 2), (1, 4), (2, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
def test_public_places_never_cost_more_than_is_said(n_reports, n_users, epsilon, neighboring):
    # Each report draws one of two subjects.  Other users may have any data, and answers may agree at one or be coins.
    total = shuffled(epsilon, n_reports, n_users, neighboring=neighboring)
    kinds = [(0, 0), (0, 1), (1, 1), (None, 1)]
    for user_row in kinds:
        for other in [(None, None)] if neighboring == "zero_out" else kinds:
            for crowd in kinds[:3]:
                crowd_rows = [crowd] * (n_reports * (n_users - 1))
                p, q = (mixed([row] * n_reports + crowd_rows, epsilon, 2) for row in (user_row, other))
                for target in (0.0, 0.4, 1.2):
                    assert max(hockey_stick(p, q, target), hockey_stick(q, p, target)) <= total.get_delta(target)


@pytest.mark.parametrize(
    ("n_reports", "n_users", "epsilon"), [(590, 50_000, 2.5), (2118, 50_000, 2.5), (7000, 50_000, 1)]
)
def test_many_reports_come_near_the_normal_law(n_reports, n_users, epsilon):
    # Its mu is sqrt(k (1 - clone)^2 / (N clone)); another program computes the cost of that.
    from fastfedrec.accounting import gaussian_mu

    clone = 2 / (math.exp(epsilon) + 1)
    cost = shuffled_epsilon(epsilon, n_reports, n_users, 1, 1e-6, neighboring="zero_out")
    mu = math.sqrt(n_reports * (1 - clone) ** 2 / (n_users * clone))
    assert gaussian_mu(cost, 1e-6) == pytest.approx(mu, rel=2e-3)


def test_lower_bound_is_a_true_one():
    # Two users with two reports each, all mixed: the attack of the docstring by enumeration.
    epsilon, target_delta = 1.0, 0.05
    bound = shuffled_epsilon_lower_bound(epsilon, 2, 2, target_delta)
    one, zero = ones_among([1, 1, 1, 1], epsilon), ones_among([0, 0, 1, 1], epsilon)
    reached = max(sum(max(0.0, p[y] - math.exp(bound) * q[y]) for y in range(5)) for p, q in ((one, zero), (zero, one)))
    assert reached == pytest.approx(target_delta, rel=1e-4)
    assert reached >= target_delta


# --- invariants ---


def test_coarse_tables_only_lose_tightness(monkeypatch):
    from fastfedrec.accounting import shuffle

    fine = shuffled_epsilon(**DEFAULT)
    shuffle._clone_pmf.cache_clear()
    monkeypatch.setattr(shuffle, "_LARGEST_TABLE", 20_000)
    coarse = shuffled_epsilon(**DEFAULT)
    shuffle._clone_pmf.cache_clear()
    assert fine < coarse < fine * 1.02


@settings(max_examples=10)
@given(st.floats(0.05, 6), st.integers(1, 200), st.integers(1, 100_000), st.integers(1, 20), st.floats(1e-8, 0.01))
def test_between_the_attack_and_no_shuffler(epsilon, n_reports, n_users, n_rounds, delta):
    upper = shuffled_epsilon(epsilon, n_reports, n_users, n_rounds, delta)
    assert shuffled_epsilon_lower_bound(epsilon, n_reports, n_users, delta) <= upper
    assert upper <= n_rounds * n_reports * epsilon


def test_coarse_counts_only_lose_tightness_for_data_against_none(monkeypatch):
    from fastfedrec.accounting import shuffle

    fine = shuffled_epsilon(**DEFAULT, neighboring="zero_out")
    shuffle._zero_out_pmfs.cache_clear()
    monkeypatch.setattr(shuffle, "_FINEST_COUNT", 1e-2)
    coarse = shuffled_epsilon(**DEFAULT, neighboring="zero_out")
    shuffle._zero_out_pmfs.cache_clear()
    assert fine < coarse < fine * 1.01


@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 30), (40, 6_040), (2_980, 6_040)])
def test_with_one_probability_after_the_other_an_account_moves_by_less_than_it_is_rounded_up(
    monkeypatch, n_reports, n_users
):
    from fastfedrec.accounting import _binomial, shuffle

    arguments = {"n_users": n_users, "n_rounds": 1, "delta": 1e-6, "neighboring": "zero_out"}
    ours = shuffled_epsilon(2.5, n_reports, **arguments)
    for error, is_the_same in ((0.0, True), (1e-6, False)):
        shuffle._zero_out_pmfs.cache_clear()
        monkeypatch.setattr(
            _binomial, "fair_pmf", lambda a, b, n, p=0.5 + error: _binomial.pmf(np.arange(a, b + 1), n, p)
        )
        assert (abs(shuffled_epsilon(2.5, n_reports, **arguments) - ours) < 1e-9) == is_the_same
    shuffle._zero_out_pmfs.cache_clear()


def test_data_against_none_cost_about_half_of_replacing_them():
    zero_out, replaced = (shuffled_epsilon(**DEFAULT, neighboring=name) for name in ("zero_out", "replace"))
    assert 0.45 < zero_out / replaced < 0.55
    rounds = shuffled_epsilon(**(DEFAULT | {"n_rounds": 4}), neighboring="zero_out")
    more = shuffled_epsilon(**(DEFAULT | {"n_reports": 400}), neighboring="zero_out")
    assert more == pytest.approx(rounds, rel=1e-3)


def test_monotone_in_everything():
    base = shuffled_epsilon(**DEFAULT)
    for name, more, less in (
        ("epsilon_per_report", 2.55, 2.45),
        ("n_reports", 102, 98),
        ("n_users", 49_000, 51_000),
        ("n_rounds", 2, None),
        ("delta", 0.9e-6, 1.1e-6),
    ):
        assert shuffled_epsilon(**(DEFAULT | {name: more})) > base
        if less is not None:
            assert shuffled_epsilon(**(DEFAULT | {name: less})) < base


def test_only_honest_users_hide():
    assert shuffled_epsilon(**DEFAULT, honest_fraction=0.5) == shuffled_epsilon(**(DEFAULT | {"n_users": 25_000}))
    event = shuffled(2.5, 100, 50_000, honest_fraction=0.5)
    assert event.get_epsilon(1e-6) == shuffled_epsilon(**DEFAULT, honest_fraction=0.5)
    assert shuffled_epsilon(**(DEFAULT | {"n_users": 1, "n_reports": 1})) > 2.4  # there is no crowd


def test_what_is_not_whole_is_rounded_against_the_users():
    """Honest users are rounded down, and the reports of a batch up."""
    assert ShuffledReports("binary response", 1.0, 1, 5, 0.5).n_honest_users == 2
    of_five, of_two = (shuffled_epsilon(1.0, 1, n, 1, 1e-6, honest_fraction=f) for n, f in ((5, 0.5), (2, 1.0)))
    assert of_five == of_two > shuffled_epsilon(1.0, 1, 3, 1, 1e-6)
    max_reports = 10**7
    for n_reports in (
        1,
        max_reports - 1,
        max_reports,
        max_reports + 1,
        2 * max_reports + 1,
        3 * max_reports - 1,
        10**12 + 1,
    ):
        per_batch, batches = split_reports(n_reports)
        assert per_batch <= max_reports
        assert (per_batch - 1) * batches < n_reports <= per_batch * batches


@pytest.mark.parametrize("n_users", [1, 30])
def test_reports_that_nobody_hides_cost_what_they_cost_without_a_shuffler(n_users):
    one_batch = shuffled_epsilon(5.0, 2_980, n_users=n_users, n_rounds=2, delta=1e-6, neighboring="zero_out")
    assert one_batch == 2 * 2_980 * 5.0
    crowd = shuffled_epsilon(5.0, 2_980, n_users=100_000, n_rounds=2, delta=1e-6, neighboring="zero_out")
    assert crowd < one_batch / 100


def test_losses_are_a_distribution():
    for n_users in (1, 3, 1000, 10**7):
        pmf, same = shuffled_loss(1.0, n_users).build(1e-4)
        assert pmf is same
        assert pmf.pmf.sum() == pytest.approx(1, abs=1e-12)
        assert pmf.infinity == 0


# --- bad inputs ---


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon_per_report": 0.0}, "epsilon_per_report must be greater than 0"),
        ({"epsilon_per_report": math.nan}, "epsilon_per_report must be finite"),
        ({"n_reports": 0}, "n_reports must be at least 1"),
        ({"n_users": 0}, "n_users must be at least 1"),
        ({"n_rounds": 1.5}, "n_rounds must be an integer"),
        ({"delta": 0.0}, "delta must be greater than 0"),
        ({"delta": 1.0}, "delta must be less than 1"),
        ({"neighboring": "add_remove"}, "neighboring must be"),
        ({"honest_fraction": 1.1}, "honest_fraction must be at most 1.0"),
        ({"honest_fraction": 1e-6}, "honest_fraction times n_users must be at least 1 user"),
    ],
)
def test_bad_parameters_are_refused_by_name(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        shuffled_epsilon(**(DEFAULT | changed))


# --- extremes: a figure that is at least the true cost, and at most the cost without a shuffler -----------------------


@pytest.mark.parametrize("neighboring", ["replace", "zero_out"])
@pytest.mark.parametrize(
    ("epsilon", "n_reports", "n_users", "n_rounds"),
    [
        (1e-320, 2, 100, 2), (1e-300, 2, 10**12, 2), (1e-17, 2, 10**6, 2), (1e300, 2, 100, 2), (1.7e308, 1, 100, 1),
        (1.0, 1, 100, 2**62), (1.0, 2**62, 100, 2**62), (1.0, 1, 100, 10**12), (1.0, 2, 2**62, 1),
    ],
)  # fmt: skip
def test_extremes_end_in_a_figure(epsilon, n_reports, n_users, n_rounds, neighboring):
    result = shuffled_epsilon(epsilon, n_reports, n_users, n_rounds, 1e-6, neighboring=neighboring)
    assert 0 <= result <= epsilon * n_reports * n_rounds * (1 + 1e-9)
    # This number of users hides little of these reports.
    if n_users == 100 and epsilon >= 1.0:
        assert result >= epsilon * n_reports * n_rounds / 1e6


def test_more_users_than_tables_hold_hide_no_less_than_fewer():
    fewer, more = (shuffled_epsilon(1.0, 10**6, n, 10**4, 1e-6) for n in (10**11, 2**62))
    assert more <= fewer * (1 + 1e-6)
    assert more > 0


def test_uses_that_fit_on_no_grid_are_refused_by_an_infinite_epsilon():
    for accountant in (shuffled_loss(1.0, 100), zero_out_loss(1.0, 2, 100)):
        for total in _loss.compose([(accountant, 10**12)]):
            assert total.epsilon(0.5) == math.inf
            assert total.delta(1.0) >= 1


def test_extremes_of_the_lower_bound():
    # The bound is rounded down to the largest exponent.
    assert shuffled_epsilon_lower_bound(1e300, 2, 100, 1e-6) == pytest.approx(700, rel=1e-5)
    assert shuffled_epsilon_lower_bound(1e-320, 2, 100, 1e-6) == 0
    for n_reports, n_users in ((2**62, 100), (2**33, 1), (10**6, 100), (1, 2**62)):
        with pytest.raises(ValueError, match=f"n_reports and n_users must .* got {n_reports} reports .* {n_users} us"):
            shuffled_epsilon_lower_bound(1.0, n_reports, n_users, 1e-6)
