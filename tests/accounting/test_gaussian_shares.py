"""The cost of Gaussian noise in shares: the noise of the nodes that count for an adversary, and of no others."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.accounting import shares as naive

from fastfedrec.accounting import (
    Gaussian,
    GaussianShares,
    Ledger,
    PLDAccountant,
    RDPAccountant,
    UnsupportedEventError,
    ZCDPAccountant,
)
from fastfedrec.accounting.views import seen_event

ZERO_OUT = {"neighboring": "zero_out", "sampling": "none"}


def shares(noise_multiplier=0.25, **changed):
    fields = {"n_nodes": 1000, "n_answers": 950, "honest_fraction": 0.7, "adding_fraction": 1.0} | ZERO_OUT | changed
    return GaussianShares(noise_multiplier, **fields)


def epsilon_of(event, view):
    ledger = Ledger()
    ledger.record(event)
    return ledger.epsilon(view)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [None, math.sqrt(2)])
@pytest.mark.parametrize(("view", "fraction"), [("server", 0.7), ("shuffled_server", 0.7), ("public", 1.0)])
def test_the_cost_is_that_of_the_shares_that_count(view, fraction, replacement):
    n_counted = naive.n_counted(1000, 950, fraction)
    squared_mu = (replacement or 2) ** 2 / (n_counted * 0.25**2)
    exact = float(naive.epsilon(squared_mu, 1e-6))
    stated = epsilon_of(shares(replace_sensitivity=replacement), view)
    assert exact <= stated <= exact * (1 + 1e-9)
    # A control: one share more or less is another cost.
    for other in (n_counted - 1, n_counted + 1):
        assert float(naive.epsilon(squared_mu * n_counted / other, 1e-6)) != pytest.approx(stated, rel=1e-5)


def test_skellam_noise_of_the_same_variance_costs_no_less_by_its_theorem():
    event = shares(replace_sensitivity=1.0)
    for stddev, most in ((2.0**20, 1.1), (2.0**3, 1.5)):
        variance, l2 = 650 * stddev**2, stddev / 0.25
        skellam = float(naive.skellam_epsilon([(variance, 1000 * l2, l2)], 1e-6))
        assert epsilon_of(event, "server") < skellam < most * epsilon_of(event, "server")


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(
    n_nodes=st.integers(1, 10**6),
    fraction=st.floats(0.1, 1.0),
    multiplier=st.floats(1e-3, 1e3),
    data=st.data(),
)
def test_fewer_answers_or_honest_nodes_never_cost_less(n_nodes, fraction, multiplier, data):
    n_answers = data.draw(st.integers(0, n_nodes))
    event = shares(n_nodes=n_nodes, n_answers=n_nodes, honest_fraction=fraction, noise_multiplier=multiplier)
    fewer = event._answered_by(n_answers)
    counted = naive.n_counted(n_nodes, n_answers, fraction)
    if not counted:
        assert seen_event(fewer, "server") is None
        return
    assert seen_event(fewer, "server")._squared_mu() == 4 / (counted * Fraction(multiplier) ** 2)
    assert seen_event(fewer, "server")._squared_mu() >= seen_event(event, "server")._squared_mu()
    assert seen_event(fewer, "server")._squared_mu() >= seen_event(fewer, "public")._squared_mu()


def test_every_accountant_gives_the_cost_of_one_gaussian_release():
    event, plain = shares(n_answers=700, honest_fraction=0.7, noise_multiplier=0.25), Gaussian(5.0, **ZERO_OUT)
    assert event._n_shares(0.7) == 400
    for accountant in (PLDAccountant, RDPAccountant, ZCDPAccountant):
        assert accountant().compose(event).get_epsilon(1e-6) == pytest.approx(
            accountant().compose(plain).get_epsilon(1e-6), rel=1e-12
        )


def test_the_ledger_counts_the_answers():
    ledger = Ledger()
    ledger.record(shares())
    ledger.amend(shares(), 960)  # more answers than planned change nothing
    assert dict(ledger.events) == {shares(): 1}
    ledger.amend(shares(), 900)
    exact = float(naive.epsilon(4 / (600 * 0.25**2), 1e-6))
    assert ledger.epsilon("server") == pytest.approx(exact, rel=1e-9)
    assert Ledger.from_json(ledger.to_json()).events == ledger.events
    assert "900 of 1,000 nodes, 0.7 honest" in ledger.summary()
    ledger.amend(shares(n_answers=900), 300)
    assert ledger.epsilon("server") == math.inf
    assert ledger.epsilon("public") == pytest.approx(float(naive.epsilon(4 / (300 * 0.25**2), 1e-6)), rel=1e-9)
    ledger.amend(shares(n_answers=300), 0)
    assert ledger.epsilon("public") == math.inf
    assert "too few nodes answered for a share to count" in ledger.summary()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be greater than 0"),
        ({"replace_sensitivity": 2.5}, "`replace_sensitivity` must be from 1 to 2, got 2.5"),
        ({"n_answers": 1001}, "n_answers must be .*1000"),
        ({"honest_fraction": 1.5}, "honest_fraction must be at most 1"),
        ({"adding_fraction": 0.5}, "adding_fraction must be .*0.7"),
        ({"trust": "central"}, "trust must be"),
        ({"sampling": "poisson", "sampling_probability": 0.5}, "sampling must be"),
    ],
)
def test_bad_fields(changed, message):
    with pytest.raises(ValueError, match=message):
        shares(**changed)


def test_noise_without_a_share_that_counts_has_no_cost():
    with pytest.raises(UnsupportedEventError, match="no share of the noise counts"):
        PLDAccountant().compose(shares(n_answers=200))
