"""The smallest figure over accountants, partitions of events and divisions of delta."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Ledger,
    LocalReports,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ShuffledReports,
    UnsupportedEventError,
    ZCDPAccountant,
    _loss,
    _splits,
)
from fastfedrec.accounting._splits import _divided, _PartGroup, _Repeats, smallest_bound
from fastfedrec.accounting.views import cost_of
from fastfedrec.core.numbers import float_up

SHUFFLED = ShuffledReports("b", 2.0, 40, 30_000)
REPORTS = LocalReports("b", 2.0, 40, 30_000, separable=True)
NOISE = ZCDP("prototypes", 0.002, neighboring="replace", sampling="none")
FROM_TABLE = ZCDP("prototypes", 0.002, neighboring="replace", sampling="none", distance=2e-30)
WIDE = DiscreteGaussianRelease(
    40_000.0, 400, neighboring="replace", sampling="none"
)  # above the limits of the PLD accountant


def epsilon_of(kind, event, times, delta):
    return kind().compose(event, times).get_epsilon(delta)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [NOISE, FROM_TABLE, WIDE])
def test_an_event_without_a_privacy_loss_distribution_does_not_undo_shuffling(other):
    shuffled, other_part = epsilon_of(PLDAccountant, SHUFFLED, 10, 5e-7), epsilon_of(ZCDPAccountant, other, 1, 5e-7)
    result = cost_of({REPORTS: 10, other: 1}, "public", 1e-6)
    assert result.accountant == "split"
    assert epsilon_of(PLDAccountant, SHUFFLED, 10, 1e-6) < result.epsilon < shuffled + other_part
    assert result.epsilon < 2


def test_the_smallest_of_some_divisions_counts():
    result = smallest_bound([(SHUFFLED, 10), (NOISE, 1)], 1e-6)
    for share in (0.5, 10 / 11, 1000 / 1001, 1 / 11):
        parts = (
            epsilon_of(PLDAccountant, SHUFFLED, 10, share * 1e-6),
            epsilon_of(ZCDPAccountant, NOISE, 1, (1 - share) * 1e-6),
        )
        assert result.epsilon <= sum(parts) * (1 + 1e-5)
    fine = min(
        epsilon_of(PLDAccountant, SHUFFLED, 10, k * 1e-8) + epsilon_of(ZCDPAccountant, NOISE, 1, (100 - k) * 1e-8)
        for k in range(50, 100)
    )
    assert fine * (1 - 1e-9) <= result.epsilon <= fine * 1.01


def test_distributions_that_hold_all_events_are_computed_once(monkeypatch):
    """Parts take the same time as the whole, and cannot gain."""
    composed = []
    monkeypatch.setattr(
        _loss, "compose", lambda *args, compose=_loss.compose, **named: composed.append(1) or compose(*args, **named)
    )
    release = CentralRelease("c", 0.2173, neighboring="replace")
    events = {SHUFFLED: 3, Gaussian(8.173, neighboring="replace", sampling="none"): 2, release: 4}
    assert cost_of(events, "public", 1e-6).accountant == "PLDAccountant"
    assert len(composed) == 1


def test_choices_of_bounded_range_are_apart_from_shuffled_reports():
    choices = CentralRelease("c", 1.0, neighboring="replace", n_choices=100)
    result = cost_of({SHUFFLED: 10, choices: 10}, "public", 1e-6)
    one_account = PLDAccountant().compose(SHUFFLED, 10).compose(choices, 10).get_epsilon(1e-6)
    parts = epsilon_of(PLDAccountant, SHUFFLED, 10, 5e-7) + epsilon_of(RDPAccountant, choices, 10, 5e-7)
    assert result.epsilon <= min(parts, one_account) * (1 + 1e-9)


@pytest.mark.parametrize("distance", [1e-30, 1e-20])
@pytest.mark.parametrize("times", [1, 7, 1000])
def test_a_distance_is_charged_at_the_epsilon_of_its_own_part(times, distance):
    """The whole costs so much that e^epsilon times the distance is above 1."""
    loud = LocalReports("loud", 5.0, 1000, 100)
    fields = {"neighboring": "replace", "sampling": "none", "distance": distance, "trust": "entity"}
    for event in (ZCDP("z", 0.5, **fields), CentralRelease("c", 1.0, **fields), Gaussian(1.0, **fields)):
        result = cost_of({loud: 1, event: times}, "server", 1e-6)
        assert 4000 < result.epsilon < 5000 + 10 * times
        assert math.isinf(RDPAccountant().compose(event, times).compose(ZCDP("r", 1e4, **fields)).get_epsilon(1e-6))


def test_a_delta_that_one_release_takes_is_left_to_its_part():
    taken = CentralRelease("c", 0.1, delta=0.9995e-6, neighboring="replace")
    result = smallest_bound([(SHUFFLED, 1), (NOISE, 1), (taken, 1)], 1e-6)
    assert result.epsilon < 2


def test_equal_blocks_are_each_counted():
    release = {"neighboring": "replace", "sampling": "none"}
    tight = epsilon_of(PLDAccountant, CentralRelease("c", 1.0, **release), 1000, 1e-6)
    result = _Repeats(CentralRelease("c", 1.0, distance=1e-30, **release), 1000).epsilon(1e-6)
    assert tight < result <= 1000


@pytest.mark.parametrize(
    "event",
    [
        DiscreteGaussianRelease(195.0, 6, neighboring="replace", sampling="none", distance=1e-12),
        ZCDP("z", 4.7e-4, neighboring="replace", sampling="none", distance=1e-12),
        Gaussian(32.5, neighboring="replace", sampling="none", distance=1e-12),
        CentralRelease("c", 0.03, neighboring="replace", distance=1e-12),
    ],
    ids=lambda event: type(event).__name__,
)
def test_uses_that_an_event_states_are_put_into_blocks_too(event):
    counts = (1, 50, 5000)
    figures = [smallest_bound([(replace(event, count=count), 5000 // count)], 1e-5).epsilon for count in counts]
    assert figures == pytest.approx([figures[0]] * 3, rel=1e-6)
    assert math.isfinite(figures[0])
    # Control: without blocks the distances of all uses take more than delta.
    assert epsilon_of(RDPAccountant, event, 5000, 1e-5) == math.inf


class Shares:
    """A part that records the shares of delta that it was given."""

    def __init__(self):
        self.given = []

    def epsilon(self, delta):
        self.given.append(delta)
        return 1.0


def test_parts_of_a_group_share_delta():
    parts = [Shares(), Shares(), Shares()]
    assert _PartGroup(parts).epsilon(1e-6) == pytest.approx(3.0)
    given = [share for part in parts for share in part.given]
    assert 0.999e-6 < math.fsum(given) <= 1e-6


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 1000])
def test_blocks_share_delta_and_hold_all_uses(n_blocks, monkeypatch):
    block, sizes = Shares(), []
    monkeypatch.setattr(_splits, "_part", lambda events: sizes.append(events[0][1]) or block)
    uses = _Repeats(CentralRelease("c", 1.0, distance=1e-30), 1000)
    assert uses._in_blocks(n_blocks, 1e-6) == pytest.approx(n_blocks)
    assert 0.999e-6 < n_blocks * block.given[0] <= 1e-6
    assert 1000 <= n_blocks * sizes[0] < 1000 + n_blocks


def test_blocks_are_tried_until_more_of_them_cost_more(monkeypatch):
    calls = []
    monkeypatch.setattr(_Repeats, "_in_blocks", lambda self, n, delta: calls.append(n) or abs(math.log2(n) - 3.1) + 1)
    assert _Repeats(CentralRelease("c", 1.0), 10**6).epsilon(1e-6) == pytest.approx(1.1)
    assert sorted(calls) == [1, 2, 4, 8, 16, 10**6]


# ---- invariants -----------------------------------------------------------------------------------------------------

EVENTS = st.sampled_from(
    [
        SHUFFLED,
        ShuffledReports("s", 1.0, 3, 500, 0.7, n_candidates=8),
        NOISE,
        FROM_TABLE,
        WIDE,
        LocalReports("l", 0.3, 2, 10),
        CentralRelease("c", 0.2, neighboring="replace", delta=1e-9),
        CentralRelease("t", 0.2, neighboring="replace", distance=1e-12),
        Gaussian(8.0, neighboring="replace", sampling="none"),
        Gaussian(2.0, neighboring="replace", sampling="without_replacement", n_users=900, cohort_size=9),
        DiscreteGaussianRelease(30.0, 3, neighboring="replace", sampling="none"),
    ]
)
LEDGERS = st.dictionaries(EVENTS, st.integers(1, 30), min_size=1, max_size=4)


@given(LEDGERS, EVENTS, st.sampled_from([1e-7, 1e-6, 1e-3]))
@settings(max_examples=10)
def test_the_least_of_all_accountants_and_more_events_cost_more(events, further, delta):
    result = cost_of(events, "public", delta).epsilon
    assert math.isfinite(result)
    for kind in (PLDAccountant, RDPAccountant, ZCDPAccountant, PureAccountant):
        try:
            accountant = kind()
            for event, times in events.items():
                accountant.compose(event, times)
        except UnsupportedEventError:
            continue
        assert result <= accountant.get_epsilon(delta)
    assert cost_of({**events, further: events.get(further, 0) + 1}, "public", delta).epsilon >= result * (1 - 1e-4)
    assert cost_of(events, "public", delta / 2).epsilon >= result * (1 - 1e-4)


@given(st.lists(st.floats(0, 1e-7), min_size=1, max_size=3), st.floats(1e-6, 1e-3))
def test_the_deltas_of_parts_stay_within_delta(lost, delta):
    class Part:
        """Costs the inverse of its share: the sum over n parts is at least n^2 over the sum of their shares."""

        def __init__(self, lost):
            self.stated_delta = lost

        def epsilon(self, delta):
            return float_up(1 / (Fraction(delta) - Fraction(self.stated_delta)))

    available = Fraction(delta) - sum(map(Fraction, lost))
    result = Fraction(_divided([Part(stated) for stated in lost], delta).epsilon)
    assert result * available >= len(lost) ** 2
    # Equal shares are among the divisions.
    assert result * available <= len(lost) ** 2 * (1 + Fraction(1, 10**9))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_an_event_that_no_accountant_takes_is_named():
    sampled = Gaussian(1.0, neighboring="zero_out", sampling="without_replacement", n_users=9, cohort_size=1)
    with pytest.raises(UnsupportedEventError, match=r"PLDAccountant cannot account for .*RDPAccountant cannot account"):
        smallest_bound([(sampled, 1)], 1e-6)


def test_an_infinite_cost_stays_infinite():
    ledger = Ledger(1e-6)
    ledger.record(CentralRelease("c", 1.0, delta=2e-6, neighboring="replace"))
    ledger.record(NOISE)
    assert ledger.epsilon("public") == math.inf
