"""Ledgers as events of dp_accounting and back: both packages state the same cost."""

import contextlib
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import EVENTS

from fastfedrec.accounting import (
    ZCDP,
    CentralRelease,
    DiscreteGaussianRelease,
    Gaussian,
    Laplace,
    Ledger,
    LocalReports,
    ShuffledReports,
    SkellamRelease,
    SkellamShares,
    Unprotected,
    UnsupportedEventError,
)

dp = pytest.importorskip("dp_accounting", reason="compares with the package dp_accounting")

REPLACE_ONE = dp.NeighboringRelation.REPLACE_ONE
DELTA = 1e-5
# Losses of the peer are multiples of this, so a finer grid takes more time.
INTERVAL = 1e-3
RELATIONS = {
    "add_remove": dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero_out": dp.NeighboringRelation.REPLACE_SPECIAL,
    "replace": REPLACE_ONE,
}


def ledger_of(events):
    ledger = Ledger(delta=DELTA)
    for event, times in events:
        for _ in range(times):
            ledger.record(event)
    return ledger


def pld_epsilon(event, relation):
    return dp.pld.PLDAccountant(relation, INTERVAL).compose(event).get_epsilon(DELTA)


def random_ledger(rng):
    """Return a ledger of releases of a trusted entity, each with a counterpart."""
    events = []
    for _ in range(rng.integers(1, 4)):
        relation = str(rng.choice(["add_remove", "zero_out", "replace"]))
        shared = {"neighboring": relation, "trust": "entity", "count": int(rng.integers(1, 4))}
        noise = float(rng.uniform(2, 12))
        kind = rng.integers(4)
        if kind == 0:
            sensitivity = None if relation == "replace" else float(rng.choice([1.0, math.sqrt(2), 2.0]))
            event = Gaussian(noise, sampling="none", replace_sensitivity=sensitivity, **shared)
        elif kind == 1:
            contribution = 0.5 if relation == "replace" else None
            rate = float(rng.uniform(0.05, 0.5))
            event = Gaussian(noise, sampling="poisson", sampling_probability=rate, contribution=contribution, **shared)
        elif kind == 2:
            event = CentralRelease("pure", float(rng.uniform(0.05, 0.5)), **shared)
        else:
            event = LocalReports("response", float(rng.uniform(0.05, 0.5)), int(rng.integers(0, 4)), 100)
        events.append((event, int(rng.integers(1, 4))))
    return ledger_of(events)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_both_packages_state_the_same_cost(seed):
    ledger = random_ledger(np.random.default_rng(seed))
    event, relation = ledger.to_dp_accounting("server")
    ours, theirs = ledger.epsilon("server"), pld_epsilon(event, relation)
    assert relation is REPLACE_ONE
    # The peer rounds the loss of each use up to its grid.
    n_uses = sum(getattr(one, "count", 1) * getattr(one, "n_reports", 1) * n for one, n in ledger.events.items())
    assert ours <= theirs + 1e-4 * ours
    assert theirs <= ours * 1.001 + n_uses * INTERVAL


@pytest.mark.parametrize("neighboring", ["add_remove", "zero_out", "replace"])
def test_the_naive_mapping_is_wrong_by_two(neighboring):
    """The same noise multiplier, with the relation of the same name, differs in each relation from the ledger."""
    ledger = ledger_of([(Gaussian(2.0, neighboring=neighboring, sampling="none"), 4)])
    ours = ledger.epsilon("public")
    event, relation = ledger.to_dp_accounting("public")
    assert pld_epsilon(event, relation) == pytest.approx(ours, rel=1e-3)
    naive = pld_epsilon(dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 4), RELATIONS[neighboring])
    assert not 0.6 < naive / ours < 1.7


@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(2), 2.0])
def test_the_replace_sensitivity_counts(sensitivity):
    plain = Gaussian(3.0, neighboring="add_remove", sampling="none")
    stated = replace(plain, replace_sensitivity=sensitivity)
    event, relation = ledger_of([(stated, 1)]).to_dp_accounting("public")
    assert event.event.noise_multiplier == pytest.approx(3.0 * 2 / sensitivity, rel=1e-15)
    costs = [ledger_of([(one, 1)]).epsilon("public") for one in (stated, plain)]
    assert pld_epsilon(event, relation) == pytest.approx(costs[0], rel=1e-3)
    assert (costs[0] < 0.99 * costs[1]) == (sensitivity < 2)


def test_zcdp_agrees_with_the_renyi_accountant():
    ledger = ledger_of([(ZCDP("noise", 0.01, neighboring="add_remove", sampling="none"), 3)])
    event, relation = ledger.to_dp_accounting("public")
    orders = np.geomspace(1.01, 200, 2000)
    theirs = dp.rdp.RdpAccountant(orders, relation).compose(event).get_epsilon(DELTA)
    assert theirs == pytest.approx(ledger.epsilon("public"), rel=2e-3)
    halved = dp.rdp.RdpAccountant(orders, relation).compose(dp.SelfComposedDpEvent(dp.ZCDpEvent(0.01), 3))
    assert halved.get_epsilon(DELTA) < 0.6 * theirs


def test_an_accountant_that_reads_the_noise_otherwise_refuses_it():
    """Under this relation the peer's Renyi accountant would state about half the cost of unsampled noise."""
    ledger = ledger_of([(Gaussian(2.0, neighboring="replace", sampling="none"), 1)])
    event, relation = ledger.to_dp_accounting("public")
    unwrapped = dp.rdp.RdpAccountant(neighboring_relation=relation).compose(event.event)
    assert unwrapped.get_epsilon(DELTA) < 0.6 * ledger.epsilon("public")
    with pytest.raises(dp.UnsupportedEventError, match="PoissonSampledDpEvent"):
        dp.rdp.RdpAccountant(neighboring_relation=relation).compose(event)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_a_ledger_comes_back_with_the_same_cost(seed):
    ledger = random_ledger(np.random.default_rng(seed))
    back = Ledger.from_dp_accounting(*ledger.to_dp_accounting("server"))
    assert back.epsilon("public", DELTA) == pytest.approx(ledger.epsilon("server"), rel=1e-9)
    assert back.epsilon("server") == math.inf or not back.events


@pytest.mark.parametrize("neighboring", sorted(RELATIONS))
@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_events_of_the_peer_are_read_with_their_relation(neighboring, rate):
    theirs = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(6.0)), 5)
    ledger = Ledger.from_dp_accounting(theirs, RELATIONS[neighboring])
    ((event, times),) = ledger.events.items()
    assert (event.neighboring, times) == (neighboring, 5)
    # All three are the same mechanism, which costs the same when a user is replaced.
    assert ledger.epsilon("public", DELTA) == pytest.approx(pld_epsilon(theirs, REPLACE_ONE), rel=2e-3)


@given(share=st.floats(0.01, 1.0), n_buckets=st.integers(2, 50))
@settings(max_examples=50)
def test_randomized_response_is_read_with_its_exact_epsilon(share, n_buckets):
    theirs = dp.RandomizedResponseDpEvent(share, n_buckets)
    ledger = Ledger.from_dp_accounting(theirs, REPLACE_ONE)
    ratio = (1 - share + share / n_buckets) / (share / n_buckets)
    assert math.exp(ledger.epsilon("public", 0.0)) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize(
    ("event", "relation", "epsilon"),
    [
        (dp.NoOpDpEvent(), "add_remove", 0.0),
        (dp.ComposedDpEvent([]), "replace", 0.0),
        (dp.NonPrivateDpEvent(), "replace", math.inf),
        (dp.GaussianDpEvent(0.0), "replace", math.inf),
        (dp.PoissonSampledDpEvent(0.0, dp.GaussianDpEvent(0.0)), "replace", 0.0),
        (dp.SelfComposedDpEvent(dp.NonPrivateDpEvent(), 0), "add_remove", 0.0),
        (dp.RandomizedResponseDpEvent(0.0, 2), "replace", math.inf),
        (dp.RandomizedResponseDpEvent(1.0, 2), "replace", 0.0),
        (dp.RandomizedResponseDpEvent(0.0, 1), "replace", 0.0),
        (dp.LaplaceDpEvent(4.0), "replace", 0.5),
        (dp.LaplaceDpEvent(4.0), "add_remove", 0.5),
        (dp.LaplaceDpEvent(0.0), "add_remove", math.inf),
        (dp.dp_event.DiscreteLaplaceDpEvent(0.25, 2), "zero_out", 1.0),
        (dp.dp_event.DiscreteLaplaceDpEvent(0.0, 2), "zero_out", math.inf),
        (dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(dp.LaplaceDpEvent(4.0), 2), 3), "add_remove", 3.0),
    ],
    ids=repr,
)
def test_pure_epsilons_of_replacing_a_user(event, relation, epsilon):
    ledger = Ledger.from_dp_accounting(event, RELATIONS[relation])
    assert ledger.epsilon("public", 0.0) == pytest.approx(epsilon, rel=1e-15)


def test_the_view_decides():
    ledger = ledger_of([(Gaussian(2.0, neighboring="replace", sampling="none"), 1)])
    assert isinstance(ledger.to_dp_accounting()[0], dp.NonPrivateDpEvent)
    assert isinstance(ledger.to_dp_accounting("key_holder")[0], dp.NonPrivateDpEvent)
    assert isinstance(Ledger().to_dp_accounting()[0], dp.NoOpDpEvent)
    assert isinstance(ledger_of([(Unprotected("rows"), 1)]).to_dp_accounting("public")[0], dp.NonPrivateDpEvent)
    # Noise of an entity is no guarantee where only the own device is trusted; the view itself has one.
    of_entity = ledger_of([(Gaussian(5.0, neighboring="replace", sampling="none", trust="entity"), 1)])
    assert isinstance(of_entity.to_dp_accounting("local")[0], dp.NonPrivateDpEvent)
    assert not isinstance(of_entity.to_dp_accounting("server")[0], dp.NonPrivateDpEvent)
    reports = ledger_of([(LocalReports("response", 1.0, 3, 100, separable=True), 2)])
    assert len(reports.to_dp_accounting("server")[0].events) == 6
    with pytest.raises(UnsupportedEventError, match="ShuffledReports"):
        reports.to_dp_accounting("shuffled_server")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


UNKNOWN = [
    Laplace(1.5, neighboring="replace", sampling="none"),
    DiscreteGaussianRelease(14.0, 10, neighboring="replace", sampling="none"),
    SkellamRelease(14.0, 1.0, 1, neighboring="replace", sampling="none"),
    SkellamShares(14.0, 1.0, 1, n_nodes=10, n_answers=10, honest_fraction=0.5, neighboring="replace", sampling="none"),
    ShuffledReports("response", 1.0, 3, 100),
    CentralRelease("gap", 0.5, delta=1e-9),
    CentralRelease("choices", 0.5, n_choices=3),
    Gaussian(1.5, neighboring="replace", sampling="without_replacement", n_users=100, cohort_size=5),
    Gaussian(1.5, neighboring="replace", sampling="poisson", sampling_probability=0.25),
    Gaussian(1.5, neighboring="replace", sampling="none", distance=1e-20),
]


@pytest.mark.parametrize("event", UNKNOWN, ids=lambda event: type(event).__name__)
def test_events_without_a_counterpart_are_refused_by_name(event):
    with pytest.raises(UnsupportedEventError, match=rf"dp_accounting has no event .*{type(event).__name__}\("):
        ledger_of([(event, 1)]).to_dp_accounting("public")


def test_every_kind_of_event_is_translated_or_refused():
    translated = set()
    for event in EVENTS:
        with contextlib.suppress(UnsupportedEventError):
            assert isinstance(ledger_of([(event, 1)]).to_dp_accounting("server")[0], dp.DpEvent)
            translated.add(type(event).__name__)
    assert translated >= {"CentralRelease", "Gaussian", "LocalReports", "Unprotected"}


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (dp.UnsupportedDpEvent(), "replace"),
        (dp.SingleEpochTreeAggregationDpEvent(1.0, 3), "zero_out"),
        (dp.SampledWithReplacementDpEvent(10, 5, dp.GaussianDpEvent(1.0)), "replace"),
        (dp.SampledWithoutReplacementDpEvent(10, 5, dp.GaussianDpEvent(1.0)), "add_remove"),
        (dp.SampledWithoutReplacementDpEvent(10, 5, dp.LaplaceDpEvent(1.0)), "replace"),
        (dp.PoissonSampledDpEvent(0.5, dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 2)), "add_remove"),
        (dp.PoissonSampledDpEvent(0.5, dp.LaplaceDpEvent(1.0)), "replace"),
        (dp.PoissonSampledDpEvent(0.5, dp.ZCDpEvent(1.0)), "add_remove"),
        (dp.RandomizedResponseDpEvent(0.5, 2), "add_remove"),
        (dp.ZCDpEvent(1.0, 0.5), "add_remove"),
    ],
    ids=repr,
)
def test_events_of_the_peer_without_a_theorem_are_refused_by_name(event, relation):
    with pytest.raises(UnsupportedEventError, match=rf"no event here has the cost of {type(event).__name__}\("):
        Ledger.from_dp_accounting(dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), event]), RELATIONS[relation])


def test_bad_arguments():
    with pytest.raises(TypeError, match=r"event must be .*pass an event of dp_accounting"):
        Ledger.from_dp_accounting(Gaussian(1.0, neighboring="replace", sampling="none"), REPLACE_ONE)
    with pytest.raises(TypeError, match=r"relation must be .*pass the relation of the accountant"):
        Ledger.from_dp_accounting(dp.NoOpDpEvent(), "replace")
    with pytest.raises(ValueError, match=r"noise_multiplier must be at least 0.0, got -1.0"):
        Ledger.from_dp_accounting(dp.GaussianDpEvent(-1.0), REPLACE_ONE)
    with pytest.raises(ValueError, match="sampling_probability must be"):
        Ledger.from_dp_accounting(dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)), REPLACE_ONE)
    many = ledger_of([(LocalReports("response", 1.0, 100_001, 100), 1)])
    with pytest.raises(UnsupportedEventError, match="the cost of 100,001 pure releases; it takes at most 100,000"):
        many.to_dp_accounting()
    with pytest.raises(ValueError, match="against must be one of"):
        Ledger().to_dp_accounting("everybody")


def test_without_the_package_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for call in (Ledger().to_dp_accounting, lambda: Ledger.from_dp_accounting(None, None)):
        with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[dp-accounting\]'"):
            call()
