"""The privacy loss of shuffled largest responses, compared with enumerations and integrals."""

import functools
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive.mechanisms.channels.largest_response import distribution_of_reports

from fastfedrec.accounting import Ledger, PLDAccountant, ShuffledReports, calibrate_n_reports, gaussian_mu
from fastfedrec.accounting import blanket as module
from fastfedrec.accounting._loss import compose
from fastfedrec.accounting.blanket import largest_response_loss

# Rows of two entries with all orders of size, ties and zeros.
KINDS = [(2, 1), (-1, 2), (-2, -1), (1, 1), (0, 1), (0, 0)]

TARGETS = (0.0, 0.3, 1.0)


def shuffled(epsilon, n_candidates, n_reports, n_users, **fields):
    event = ShuffledReports("largest response", epsilon, n_reports, n_users, n_candidates=n_candidates, **fields)
    return PLDAccountant().compose(event)


def blanket_share(epsilon, n_candidates):
    return 2 * n_candidates / (math.expm1(epsilon) + 2 * n_candidates)


@functools.cache
def chances_of(row, n_candidates, share):
    return {report: float(p) for report, p in distribution_of_reports(row, n_candidates, share).items()}


@functools.cache
def histogram(rows, n_reports, n_candidates, share):
    """Return the distribution of the counts of each possible report among the shuffled reports of these users."""
    total = Counter({(): 1.0})
    for row in rows:
        chances = chances_of(row, n_candidates, share)
        for _ in range(n_reports):
            grown = Counter()
            for (seen, p), (report, q) in itertools.product(total.items(), chances.items()):
                grown[tuple(sorted([*seen, report]))] += p * q
            total = grown
    return total


def hockey_stick(p, q, target):
    return sum(max(0.0, p[y] - math.exp(target) * q[y]) for y in p.keys() | q.keys())


def pair_delta(epsilon, n_candidates, n_users, target, neighboring, n=400):
    """Return delta of one report among up to 3 users, by midpoints of the rank of an entry among all."""
    share, max_ratio = blanket_share(epsilon, n_candidates), 2 * n_candidates
    sizes = ((np.arange(n) + 0.5) / n) ** (n_candidates - 1) * max_ratio
    right = np.concatenate([share + (1 - share) * sizes, np.full(n, share)])
    wrong = right[::-1] if neighboring == "replace" else np.ones(2 * n)
    pairs = [(right, wrong)] if neighboring == "replace" else [(right, wrong), (wrong, right)]
    worst = 0.0
    for ahead, behind in pairs:
        term = ahead - math.exp(target) * behind
        sums, delta = np.zeros(1), 0.0
        for clones in range(n_users):
            sums = np.add.outer(sums, term).ravel()
            weight = math.comb(n_users - 1, clones) * share**clones * (1 - share) ** (n_users - 1 - clones)
            delta += weight * np.maximum(sums, 0).mean() / (clones + 1)
        worst = max(worst, delta)
    return worst


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
@pytest.mark.parametrize(("n_users", "points"), [(1, 4000), (2, 600), (3, 60)])
@pytest.mark.parametrize(("epsilon", "n_candidates"), [(0.5, 2), (2.5, 3), (2.5, 8)])
def test_one_report_is_the_pair_integrated(epsilon, n_candidates, n_users, points, neighboring):
    total, less = (shuffled(e, n_candidates, 1, n_users, neighboring=neighboring) for e in (epsilon, 0.9 * epsilon))
    for target in (0.0, 0.1, 0.3):
        exact = pair_delta(epsilon, n_candidates, n_users, target, neighboring, points)
        result = total.get_delta(target)
        assert exact * (1 - 5 / points) <= result <= exact * (1 + 5 / points) + 2e-3
        assert less.get_delta(target) < exact * (1 - 5 / points)


@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
@pytest.mark.parametrize(("n_reports", "n_users"), [(1, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize(("epsilon", "n_candidates"), [(0.7, 2), (2.5, 3)])
def test_no_rows_of_few_users_cost_more_than_is_said(epsilon, n_candidates, n_reports, n_users, neighboring):
    total = shuffled(epsilon, n_candidates, n_reports, n_users, neighboring=neighboring)
    larger_crowd = shuffled(epsilon, n_candidates, n_reports, n_users + 3, neighboring=neighboring)
    deltas, fewer = ([of.get_delta(target) for target in TARGETS] for of in (total, larger_crowd))
    share = Fraction(blanket_share(epsilon, n_candidates))
    reached = 0.0
    for user_row, other, crowd in itertools.product(
        KINDS[:5], KINDS if neighboring == "replace" else KINDS[-1:], KINDS[:3]
    ):
        crowd_rows = (crowd,) * (n_users - 1)
        p, q = (histogram((row, *crowd_rows), n_reports, n_candidates, share) for row in (user_row, other))
        for target, claimed, too_low in zip(TARGETS, deltas, fewer, strict=True):
            result = max(hockey_stick(p, q, target), hockey_stick(q, p, target))
            assert result <= claimed + 1e-12
            reached = max(reached, result - too_low)
    # Control: with more users than there are, the figure is too small.
    assert reached > 0


@pytest.mark.parametrize(
    ("epsilon", "n_candidates", "n_reports", "n_users"), [(2.5, 8, 1290, 50_000), (1.0, 3, 1000, 12_000)]
)
def test_many_reports_come_near_the_normal_law(epsilon, n_candidates, n_reports, n_users):
    share = blanket_share(epsilon, n_candidates)
    # Mean square of the likelihood of a report compared with a clone.
    square = 4 * n_candidates**2 / (2 * n_candidates - 1) / 2
    for neighboring, variance in (("zero_out", square - 1), ("replace", 2 * square)):
        cost = shuffled(epsilon, n_candidates, n_reports, n_users, neighboring=neighboring).get_epsilon(1e-6)
        mu = math.sqrt(n_reports * (1 - share) ** 2 * variance / (n_users * share))
        assert mu <= gaussian_mu(cost, 1e-6) * (1 + 1e-3)
        assert gaussian_mu(cost, 1e-6) == pytest.approx(mu, rel=5e-3)


@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
@pytest.mark.parametrize(("n_reports", "n_users"), [(120, 10_000), (40, 1000)])
def test_one_candidate_is_binary_response_by_another_route(n_reports, n_users, neighboring):
    binary = shuffled(2.5, 1, n_reports, n_users, neighboring=neighboring).get_epsilon(1e-6)
    ours = max(
        total.epsilon(1e-6) for total in compose([(largest_response_loss(2.5, 1, n_users, neighboring), n_reports)])
    )
    # The pair is the same for "replace".  For "zero_out" all reports of a round cost a little less than separate ones.
    assert binary * (1 - 1e-6) <= ours <= binary * (1.003 if neighboring == "replace" else 1.03)


# ---- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=5)
@given(
    st.floats(0.01, 10),
    st.integers(2, 9),
    st.integers(1, 10**5),
    st.integers(1, 2000),
    st.sampled_from(["zero_out", "replace"]),
)
def test_never_more_than_without_a_shuffler_and_data_against_none_never_more_than_replacing(
    epsilon, n_candidates, n_users, n_reports, neighboring
):
    for step in (1e-4, 3e-3):
        for loss in largest_response_loss(epsilon, n_candidates, n_users, neighboring).build(step):
            assert loss.pmf.min() >= 0
            assert loss.pmf.sum() + loss.infinity == pytest.approx(1, abs=1e-9)
    costs = [shuffled(epsilon, n_candidates, n_reports, n_users, neighboring=n) for n in ("zero_out", "replace")]
    one, both = (cost.get_epsilon(1e-5) for cost in costs)
    assert one <= both * (1 + 1e-6)


def test_monotone_in_everything():
    base = shuffled(2.5, 8, 100, 5000).get_epsilon(1e-6)
    assert shuffled(2.55, 8, 100, 5000).get_epsilon(1e-6) > base > shuffled(2.45, 8, 100, 5000).get_epsilon(1e-6)
    assert shuffled(2.5, 8, 102, 5000).get_epsilon(1e-6) > base > shuffled(2.5, 8, 98, 5000).get_epsilon(1e-6)
    assert shuffled(2.5, 8, 100, 4900).get_epsilon(1e-6) > base > shuffled(2.5, 8, 100, 5100).get_epsilon(1e-6)
    assert shuffled(2.5, 8, 100, 10_000, honest_fraction=0.5).get_epsilon(1e-6) == base


@pytest.mark.parametrize(("name", "value"), [("_CELLS", 8), ("_LEVELS", 16), ("_PER_STDDEV", 2), ("_MAX_STDDEV", 100)])
def test_coarse_grids_only_lose_tightness(monkeypatch, name, value):
    fine = shuffled(2.5, 8, 300, 5000).get_epsilon(1e-6)
    module._curves.cache_clear()
    monkeypatch.setattr(module, name, value)
    coarse = shuffled(2.5, 8, 300, 5000).get_epsilon(1e-6)
    module._curves.cache_clear()
    assert fine < coarse < 1.1 * fine


@pytest.mark.parametrize(
    ("epsilon", "n_candidates", "n_users"),
    [(1e-320, 8, 100), (1e-9, 8, 1000), (100.0, 8, 10), (499.0, 2, 10**6), (1e300, 8, 100), (2.5, 2**16, 1000)],
)
def test_extremes_end_in_a_figure(epsilon, n_candidates, n_users):
    for neighboring in ("zero_out", "replace"):
        result = shuffled(epsilon, n_candidates, 3, n_users, neighboring=neighboring).get_epsilon(1e-6)
        assert (
            0 <= result <= 3.0001 * epsilon or result == math.inf
        )  # the other accountants of the ledger have the plain sum
    ledger = Ledger()
    ledger.record(ShuffledReports("largest response", epsilon, 3, n_users, n_candidates=n_candidates))
    assert ledger.epsilon("shuffled_server") <= 3 * epsilon * (1 + 1e-9)


def test_more_reports_are_allowed_and_each_view_keeps_the_candidates():
    event = ShuffledReports("largest response", 2.5, 1, 50_000, neighboring="zero_out", n_candidates=8)
    assert 1285 <= calibrate_n_reports(event, epsilon=1.0, delta=1e-6) <= 1290
    ledger = Ledger()
    ledger.record(ShuffledReports("largest response", 2.5, 100, 5000, neighboring="zero_out", n_candidates=8))
    assert ledger.epsilon("shuffled_server") == shuffled(2.5, 8, 100, 5000).get_epsilon(1e-6)
    assert ledger.epsilon("server") == 250.0
    assert Ledger.from_json(ledger.to_json()).events == ledger.events


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 8, 10), "epsilon must be greater than 0"),
        ((1.0, 0, 10), "n_candidates must be at least 1"),
        ((1.0, 8, 0), "n_users must be at least 1"),
        ((1.0, 8, 10, "add_remove"), "neighboring must be one of"),
    ],
)
def test_bad_parameters_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        largest_response_loss(*arguments)
    if len(arguments) == 3 and arguments[1] == 0:
        with pytest.raises(ValueError, match="n_candidates must be at least 1"):
            ShuffledReports("largest response", 1.0, 1, 10, n_candidates=0)
