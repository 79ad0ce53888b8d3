"""Rounds of the mean in place of DPGram's last rounds: every plan costs the same, and has noise of its own."""

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.decision_case import prefer
from support.feature_case import grouped
from support.gram_case import interactions_of
from support.noise_case import RecordingEngine, is_accounted_for, unrelated

from fastfedrec import DPGram, Key
from fastfedrec.accounting import Ledger, gaussian_mu, seen_event
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.systems._central import sum_distances
from fastfedrec.systems._noisy_sum import SQRT_2
from fastfedrec.systems._substitute import pooled, substitute
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.gram.measurement import NoisyMean
from fastfedrec.systems.gram.plan import EXIT

KEY = Key.from_seed(5)
ROWS = interactions_of([{0, 1}, {2}] * 30, 40)
#: What a run releases last: the number of its plan, and of the plan's rounds before the last one.
PLANS = {"columns": (0, 6), "popularity": (1, EXIT), "mean": (1, EXIT)}


def costs(phases):
    """The squared budget of some phases, exactly as wide as their noise is."""
    return sum(Fraction(system._unit) ** 2 / Fraction(system.noise.stddev) ** 2 for system, *_ in phases)


def replaced(phases):
    """Squared mu of some phases for a replaced user, as their events state it."""
    events = [system.round_event(1) for system, *_ in phases]
    return sum((Fraction(event.replace_sensitivity or 2) / Fraction(event.noise_multiplier)) ** 2 for event in events)


def run_with(taken, *, epsilon=3.0, **options):
    """A fit that takes one of the plans ("columns", "popularity" or "mean"), and the recorded rounds."""
    engine, model = RecordingEngine(), DPGram(epsilon)
    with pytest.MonkeyPatch.context() as patch:
        prefer(patch, personal=taken != "popularity", needs_mean=taken == "mean")
        model.fit(ROWS, key=KEY, engine=engine, **options)
    return model, engine.rounds


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_releases_are_pooled_by_their_precision():
    sums = np.array([[4.0, 0.0], [8.0, 1.0]])
    np.testing.assert_allclose(pooled(sums, [1.0, 1.0]), [6.0, 0.5])
    np.testing.assert_allclose(pooled(sums, [1.0, 3**-0.5]), [7.0, 0.75])


@pytest.mark.parametrize("taken", ["popularity", "mean"])
def test_popularity_is_the_mean_of_both_releases(taken):
    model, recorded = run_with(taken)
    first, again = recorded[0], recorded[-1]
    assert type(again.system) is rounds.ShareSumAgain
    assert len(recorded) == 1 + PLANS[taken][1]
    np.testing.assert_array_equal(first.update.arrays["item_shares"], again.update.arrays["item_shares"])
    squares = [one.event.noise_multiplier**-2 for one in (first, again)]
    mean = sum(s * one.after.noisy for s, one in zip(squares, (first, again), strict=True)) / sum(squares)
    np.testing.assert_allclose(model.item_means_, mean / rounds.UNIT / ROWS.n_users, rtol=1e-9)
    assert model.is_personal_ is (taken == "mean")
    if not model.is_personal_:
        ids, _ = model.recommend(ROWS.user_ids[:5], n=40, filter_seen=False)
        assert (ids == ids[0]).all()


# ---- the cost of plans -----------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(
    n_items=st.integers(2, 60), epsilon=st.sampled_from([1e-3, 0.00235, 0.3, 8.0]),
    share=st.sampled_from([0.05, 0.5, 0.95]), score=st.sampled_from(["ease", "knn"]),
)  # fmt: skip
def test_no_plan_costs_more_than_the_budget_or_hardly_less(n_items, epsilon, share, score):
    """For zero_out by the width of the noise, for a replaced user by what events state; draws are paid for."""
    model = DPGram(epsilon, mean_share=share, score=score, n_users=2**22)
    plan, *others = model._plans(model._plan(interactions_of([{0}], n_items), KEY))
    budget = Fraction(gaussian_mu(epsilon, 1e-6)) ** 2 * (1 + Fraction(1, 10**12))  # it is rounded down by 1e-9
    assert costs(plan) <= budget
    assert len(others) == 1
    for other in others:
        kept, (substituted,), skipped = other[:EXIT], other[EXIT:], plan[EXIT:]
        assert all(a is b for a, b in zip(kept, plan, strict=False))
        assert costs(skipped) * (1 - Fraction(1, 2**30)) < costs([substituted]) <= costs(skipped)
        assert costs(other) <= budget
        assert replaced(plan) <= replaced(other) * (1 + Fraction(1, 2**38))
        assert replaced(other) <= replaced(plan) * (1 + Fraction(1, 2**38))
        assert substituted.system.distance >= sum_distances(skipped)
        assert substituted.system.distance >= substituted.system.noise.total_distance(n_items)
        assert substituted.system.round_event(1).replace_sensitivity is None


def test_a_substitute_has_the_width_that_the_rounds_it_replaces_leave():
    model = DPGram(1.0)
    plan, other = model._plans(model._plan(ROWS, KEY))
    left = sum(system.width**-2 for system, *_ in plan[EXIT:])
    assert other[-1].system.width == pytest.approx(left**-0.5, rel=1e-9)


@pytest.mark.parametrize("taken", PLANS)
def test_the_ledger_of_every_run_states_the_cost_of_its_releases(taken):
    model, recorded = run_with(taken)
    assert is_accounted_for(model.ledger_, recorded)
    spent = sum(event.noise_multiplier**-2 for event in model.ledger_.events.elements())
    assert 0.999 * gaussian_mu(3.0, 1e-6) < math.sqrt(spent) <= gaussian_mu(3.0, 1e-6) * (1 + 1e-12)
    sensitivities = [one.event.replace_sensitivity for one in recorded]
    # The mean and the pairs before any choice have sqrt(2); columns, measurements and chosen rounds have 2.
    assert sensitivities == [SQRT_2, SQRT_2, *[None] * (len(recorded) - 2)]
    full = run_with("columns")[0].ledger_.epsilon("public")
    assert model.ledger_.epsilon("public") == pytest.approx(full, rel=1e-6)


def test_two_sensitivities_of_one_user_add_up_as_squares():
    """The control: if all rounds had 2, or all sqrt(2), the figure for a replaced user would be another."""
    events = list(run_with("columns")[0].ledger_.events.elements())
    stated, figures = Ledger(1e-6), {}
    for event in events:
        stated.record(event)
    for sensitivity in (None, SQRT_2):
        other = Ledger(1e-6)
        for event in events:
            other.record(dataclasses.replace(event, replace_sensitivity=sensitivity))
        figures[sensitivity] = other.epsilon("public")
    assert figures[SQRT_2] * 1.02 < stated.epsilon("public") < figures[None] / 1.02
    mu = math.sqrt(sum(seen_event(event, "public").noise_multiplier ** -2 for event in events))
    assert mu**2 == pytest.approx(
        sum(((e.replace_sensitivity or 2) / e.noise_multiplier) ** 2 for e in events), rel=1e-6
    )


def test_a_substitute_of_rounds_of_several_numbers_counts_them_all():
    model = DPGram(1.0)
    plan = model._plan(ROWS, KEY)
    twice = [plan[2]._replace(n_rounds=2), plan[-1]]  # two rounds of columns, and a measurement
    found = substitute(twice, rounds.ShareSumAgain, plan[0].state, 1).system
    expected = substitute([plan[2], plan[3], plan[-1]], rounds.ShareSumAgain, plan[0].state, 1).system
    assert found.width == pytest.approx(expected.width, rel=1e-12)
    assert found.distance == pytest.approx(expected.distance, rel=1e-12)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_no_two_rounds_draw_from_one_stream():
    """Of a run's columns, its pairs and its means; and not of the same round under another key."""
    plan = DPGram(4.0)._plan(interactions_of([{0}], 200), KEY)
    phases = [*plan, DPGram(4.0)._plans(plan)[1][-1]]
    noise = {}
    for system, state, _ in phases:
        after = system.apply(state, system.zero_update(state, 0))
        noise[system._purpose] = after.noisy.ravel() / float(system.noise.stddev)
    assert len(noise) == len(phases)
    for (a, one), (b, other) in itertools.combinations(noise.items(), 2):
        assert unrelated([one], [other]), (a, b)
    first = noise[plan[0].system._purpose]
    assert not unrelated([first], [first + noise["dp_gram.item_shares_again"] / 100])  # the control


def test_a_node_finds_the_rounds_that_a_run_asks_for():
    """Rounds are numbered as all that may be asked for are; a run that leaves some out states how many."""
    model = DPGram(3.0)
    phases, plans = model._all_phases(ROWS, KEY), model._plans(model._plan(ROWS, KEY))
    assert len(plans) == len(phases) - len(plans[0]) + 1 == 2
    for plan in plans:
        number = -1
        for system, *_ in plan:
            number += 1 + system.n_skipped
            assert (type(phases[number].system), phases[number].system.width) == (type(system), system.width)


@pytest.mark.parametrize("taken", PLANS)
def test_a_run_makes_the_rounds_of_its_plan(taken):
    model, recorded = run_with(taken)
    number, _ = PLANS[taken]
    expected = model._plans(model._plan(ROWS, KEY))[number]
    assert [type(one.system) for one in recorded] == [type(system) for system, *_ in expected]
    assert [one.system.width for one in recorded] == [system.width for system, *_ in expected]
    assert [one.system.n_skipped for one in recorded] == [system.n_skipped for system, *_ in expected]


@pytest.mark.parametrize("epsilon", [0.02, 4.0])
def test_shards_and_threads_change_nothing(epsilon):
    data = grouped(600, 40, 1)[0]
    here = DPGram(epsilon).fit(data, key=KEY, n_threads=1)
    there = DPGram(epsilon).fit(data, key=KEY, n_threads=4, engine=LocalEngine(3))
    for name in here._saved:
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    assert here.ledger_.to_dict() == there.ledger_.to_dict()


def test_whether_the_last_rounds_give_way_follows_from_the_mean(monkeypatch):
    """A mean with much noise takes the last rounds; one with little leaves them to columns."""
    seen, needs = [], NoisyMean.needs

    def spy(self, left):
        seen.append((self, left, needs(self, left)))
        return seen[-1][-1]

    prefer(monkeypatch, personal=True)
    monkeypatch.setattr(NoisyMean, "needs", spy)
    data = grouped(600, 40, 1)[0]
    for epsilon, is_needed in ((0.05, True), (0.5, True), (8.0, False)):
        model = DPGram(epsilon).fit(data, key=KEY)
        plans = model._plans(model._plan(data, KEY))
        mean, left, found = seen.pop()
        assert not seen
        assert found is is_needed
        expected = Counter(system.round_event(1).mechanism for system, *_ in plans[1 if found else 0])
        assert Counter(event.mechanism for event in model.ledger_.events.elements()) == expected
        assert mean.noise == pytest.approx(plans[0][0].system.width / data.n_users)
        assert mean.precision == pytest.approx(plans[0][0].system.width ** -2)
        assert left == pytest.approx(sum(system.width**-2 for system, *_ in plans[0][EXIT:]))
