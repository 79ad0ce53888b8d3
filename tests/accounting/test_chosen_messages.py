"""The cost of messages of a kind that an earlier release chose, against both kinds and an adaptive choice."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting import (
    CentralRelease,
    ChosenMessages,
    Ledger,
    PLDAccountant,
    ShuffledCounts,
    ShuffledReports,
    composed_epsilon,
)

REPORTS = ShuffledReports("reports", 2.5, 40, 5_000, neighboring="zero_out", n_candidates=8)
COUNTS = ShuffledCounts("counts", 0.1, 45, 5_000, neighboring="zero_out")
BOTH = ChosenMessages.of("messages", REPORTS, COUNTS)


def account(*events):
    accountant = PLDAccountant()
    for event in events:
        accountant.compose(event)
    return accountant


def kinds_of(event):
    return event._reports, event._counts


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighboring", ["zero_out", "replace"])
@pytest.mark.parametrize("n_reports", [1, 40, 400])
def test_the_cost_is_the_one_of_the_costlier_kind(n_reports, neighboring):
    event = replace(BOTH, n_reports=n_reports, neighboring=neighboring)
    for delta in (1e-3, 1e-6, 1e-9):
        alone = [account(kind).get_epsilon(delta) for kind in kinds_of(event)]
        assert max(alone) <= account(event).get_epsilon(delta) * (1 + 1e-9) <= max(alone) * 1.01


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 400), st.floats(0.01, 1.0), st.integers(1, 60), st.floats(0.0, 3.0))
def test_no_delta_is_below_the_delta_of_a_kind(n_reports, fake_rate, n_messages, target):
    event = replace(BOTH, n_reports=n_reports, fake_rate=fake_rate, n_messages=n_messages)
    for kind in kinds_of(event):
        assert account(event).get_delta(target) >= account(kind).get_delta(target) * (1 - 1e-9)


@pytest.mark.parametrize("target", [0.2, 1.0, 2.0])
def test_a_release_may_choose_the_kind(target):
    """An earlier release of one bit chooses the kind that is worse at the loss that is left."""
    epsilon_of_choice = 0.5
    choice = CentralRelease("choice", epsilon_of_choice, neighboring="replace")
    event = replace(BOTH, n_reports=220, neighboring="replace")
    right = 1 / (1 + math.exp(-epsilon_of_choice))

    def worst(loss):
        # Delta at a negative epsilon follows from the opposite direction, which has the same losses here.
        deltas = [account(kind).get_delta(abs(loss)) for kind in kinds_of(event)]
        return max(deltas) if loss >= 0 else max(-math.expm1(loss) + math.exp(loss) * delta for delta in deltas)

    adaptive = right * worst(target - epsilon_of_choice) + (1 - right) * worst(target + epsilon_of_choice)
    stated = account(choice, event).get_delta(target)
    assert adaptive <= stated * (1 + 1e-9)
    assert stated <= 1.05 * adaptive


def test_a_kind_alone_would_understate_a_choice():
    """The control: reports cost more at small losses and counts at large ones, so no kind may stand for both."""
    reports, counts = kinds_of(replace(BOTH, n_reports=220))
    assert account(reports).get_delta(0.05) > 1.02 * account(counts).get_delta(0.05)
    assert account(reports).get_delta(1.8) < 0.9 * account(counts).get_delta(1.8)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_views_need_the_shuffler_of_counts():
    ledger = Ledger(1e-6)
    ledger.record(BOTH)
    assert math.isinf(ledger.epsilon("server"))
    assert ledger.epsilon("shuffled_server") == ledger.epsilon("public") == composed_epsilon({BOTH: 1}, "public", 1e-6)
    assert math.isinf(composed_epsilon({replace(BOTH, honest_fraction=0.0): 1}, "public", 1e-6))
    assert math.isinf(ledger.epsilon("public", delta=0))


def test_users_who_drop_out_hide_no_one():
    ledger = Ledger(1e-6)
    ledger.record(BOTH)
    before = ledger.epsilon("public")
    ledger.amend(BOTH, 2_500)
    (amended,) = ledger.events
    assert (amended.n_users, amended.n_honest_users) == (2_500, 2_500)
    assert ledger.epsilon("public") > 1.3 * before
    assert Ledger.from_json(ledger.to_json()).events == ledger.events


def test_without_reports_the_cost_is_the_one_of_counts():
    event = replace(BOTH, n_reports=0)
    assert account(event).get_epsilon(1e-6) == pytest.approx(account(COUNTS).get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize("fake_rate", [1e-9, 1e-4])
def test_messages_that_nothing_hides_have_no_figure(fake_rate):
    assert math.isinf(account(replace(BOTH, fake_rate=fake_rate)).get_epsilon(1e-6))


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_users": 4_000}, "counts.n_users must be the one of the reports, 5000, got 4000"),
        ({"honest_fraction": 0.5}, "counts.honest_fraction must be the one of the reports, 1.0, got 0.5"),
        ({"neighboring": "replace"}, "counts.neighboring must be the one of the reports, 'zero_out', got 'replace'"),
    ],
)
def test_both_kinds_have_the_same_users(change, message):
    with pytest.raises(ValueError, match=message):
        ChosenMessages.of("messages", REPORTS, replace(COUNTS, **change))


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_reports", -1), ("epsilon", 0.0), ("fake_rate", 0.0), ("n_messages", 0), ("trust", "central")],
)
def test_fields_are_checked(field, value):
    with pytest.raises(ValueError, match=field):
        replace(BOTH, **{field: value})
