"""Rounds of the mean instead of DPGram's planned rounds: all plans cost the same and have independent noise."""

import dataclasses
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase as Stage
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import of_sets
from support.decision_case import prefer
from support.feature_case import grouped
from support.noise_case import RecordingEngine, is_accounted_for, unrelated

from fastfedrec import DPGram, DPSubspace, Key
from fastfedrec.accounting import Ledger, gaussian_mu, seen_event
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems import _alternatives, _measured_release, measurement
from fastfedrec.systems import projection_rounds as subspace_rounds
from fastfedrec.systems._alternatives import exit_number, precision_of
from fastfedrec.systems._central import sum_distances
from fastfedrec.systems._noisy_sum import SQRT_2
from fastfedrec.systems._substitute import pooled, substitute
from fastfedrec.systems.gram import dp_gram_rounds as rounds
from fastfedrec.systems.measurement import NoisyMean

KEY = Key.from_seed(5)
ROWS = of_sets([{0, 1}, {2}] * 30, 40)
EXIT = 5  # number of the round after the first measurement
#: A run: the name of its plan, and the names of the substitutes of planned rounds.
PLANS = {
    "columns": ("pairs", []),
    "popularity": ("pairs, mean", ["SubstituteShareSum"]),
    "mean": ("pairs, mean", ["SubstituteShareSum"]),
    "more mean": ("mean, pairs", ["RepeatedShareSum"]),
    "more mean, popularity": ("mean, pairs, mean", ["RepeatedShareSum", "SubstituteShareSum"]),
    "mean alone": ("mean", ["RepeatedShareSum"]),
}


def costs(phases):
    """Return the squared budget of some phases, from the exact width of their noise."""
    return sum(Fraction(system._unit) ** 2 / Fraction(system.noise.stddev) ** 2 for system, *_ in phases)


def replaced(phases):
    """Return the squared mu of some phases for a replaced user, as their events state it."""
    events = [system.round_event(1) for system, *_ in phases]
    return sum((Fraction(event.replace_sensitivity or 2) / Fraction(event.noise_multiplier)) ** 2 for event in events)


def alternatives(phases, model=None):
    """Return a model's plans by name."""
    return (model or DPGram())._alternatives(phases)


def run_with(taken, *, epsilon=3.0, kind=DPGram, **options):
    """Return a fit that takes one of the plans, and the recorded rounds."""
    engine, model = RecordingEngine(), kind(epsilon)
    with pytest.MonkeyPatch.context() as patch:
        start = PLANS[taken][0].removesuffix("s, mean") + "s" * PLANS[taken][0].endswith("s, mean")
        prefer(patch, personal="popularity" not in taken, needs_mean=taken == "mean", start=start)
        model.fit(ROWS, key=KEY, engine=engine, **options)
    return model, engine.rounds


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_releases_are_pooled_by_their_precision():
    sums = np.array([[4.0, 0.0], [8.0, 1.0]])
    np.testing.assert_allclose(pooled(sums, [1.0, 1.0]), [6.0, 0.5])
    np.testing.assert_allclose(pooled(sums, [1.0, 3**-0.5]), [7.0, 0.75])


@pytest.mark.parametrize("taken", PLANS)
def test_popularity_is_the_mean_of_all_its_releases(taken):
    model, recorded = run_with(taken)
    releases = [one for one in recorded if isinstance(one.system, rounds.ShareSum)]
    assert [type(one.system).__name__ for one in releases] == ["ShareSum", *PLANS[taken][1]]
    for one in releases:
        np.testing.assert_array_equal(one.update.arrays["item_shares"], releases[0].update.arrays["item_shares"])
    squares = [one.event.noise_multiplier**-2 for one in releases]
    mean = sum(s * one.after.noisy for s, one in zip(squares, releases, strict=True)) / sum(squares)
    np.testing.assert_allclose(model.item_means_, mean / rounds.UNIT / ROWS.n_users, rtol=1e-9)
    assert model.is_personal_ is ("popularity" not in taken and taken != "mean alone")
    if not model.is_personal_:
        ids, _ = model.recommend(ROWS.user_ids[:5], n=40, filter_seen=False)
        assert (ids == ids[0]).all()


# ---- the cost of plans -----------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, phases=[Stage.generate])
@given(
    n_items=st.integers(2, 60), epsilon=st.sampled_from([1e-3, 0.00235, 0.3, 8.0]),
    share=st.sampled_from([0.05, 0.5, 0.95]), score=st.sampled_from(["ease", "knn"]),
)  # fmt: skip
def test_no_plan_costs_more_than_the_budget_or_hardly_less(n_items, epsilon, share, score):
    """Check zero_out by the width of the noise, and replacement by the events' statements; draws are charged."""
    model = DPGram(epsilon, mean_share=share, score=score, n_users=2**22)
    plans = alternatives(model._plan(of_sets([{0}], n_items), KEY))
    plan = plans["pairs"]
    budget = Fraction(gaussian_mu(epsilon, 1e-6)) ** 2 * (1 + Fraction(1, 10**12))  # rounded down by 1e-9
    assert costs(plan) <= budget
    assert list(plans) == ["pairs", "mean, pairs", "mean", "pairs, mean", "mean, pairs, mean"]
    for before, name, n_kept in (
        ("pairs", "mean, pairs", 1), ("pairs", "mean", 1), ("pairs", "pairs, mean", EXIT),
        ("mean, pairs", "mean, pairs, mean", EXIT + 1),
    ):  # fmt: skip
        other = plans[name]
        planned_rounds, substituted, skipped = other[:n_kept], other[n_kept:], plans[before][n_kept:]
        assert all(a is b for a, b in zip(planned_rounds, plans[before], strict=False))
        assert costs(skipped) * (1 - Fraction(1, 2**30)) < costs(substituted) <= costs(skipped)
        assert costs(other) <= budget
        assert replaced(plan) <= replaced(other) * (1 + Fraction(1, 2**38))
        assert replaced(other) <= replaced(plan) * (1 + Fraction(1, 2**38))
        assert sum_distances(other) >= sum_distances(plan) * (1 - 2**-50)
        for system, state, _ in substituted:
            assert system.distance >= system.noise.total_variation_of(system.n_sums(state))
            assert system.is_chosen
            assert system.stated_cost is not None


@pytest.mark.parametrize(("n_rounds", "n_before"), [(1, 3), (2, 3), (3, 4), (5, 6)])
def test_plans_of_dpsubspace_cost_the_same(n_rounds, n_before):
    """Check that the mean replaces the last projections and the measurement after them, if one precedes."""
    model = DPSubspace(2.0, n_columns=3, n_rounds=n_rounds)
    plans = model._alternatives(model._plan(ROWS, KEY))
    plan = plans["pairs"]
    assert len(plan) == 1 + n_rounds + min(n_rounds, 2)
    budget = Fraction(gaussian_mu(2.0, 1e-6)) ** 2
    assert budget * (1 - Fraction(1, 10**6)) < costs(plan) <= budget * (1 + Fraction(1, 10**12))
    assert exit_number(plan) == n_before
    assert (
        list(plans) == ["pairs", "mean, pairs", "mean", "pairs, mean", "mean, pairs, mean"][: 5 if n_rounds > 1 else 3]
    )
    for name, other in plans.items():
        assert costs(plan) * (1 - Fraction(1, 2**30)) < costs(other) <= costs(plan)
        assert replaced(plan) == pytest.approx(float(replaced(other)), rel=2**-38)
        means = [phase.system for phase in other if isinstance(phase.system, subspace_rounds.ShareSum)]
        assert len(means) == 1 + name.split(", ").count("mean")
    if n_rounds > 1:
        other = plans["pairs, mean"]
        assert all(a is b for a, b in zip(other[:-1], plan, strict=False))
        assert type(other[-1].system) is subspace_rounds.SubstituteShareSum


def test_a_substitute_has_the_width_of_the_budget_of_replaced_rounds():
    model = DPGram(1.0)
    plans = alternatives(model._plan(ROWS, KEY))
    remaining_precision = sum(system.width**-2 for system, *_ in plans["pairs"][EXIT:])
    assert plans["pairs, mean"][-1].system.width == pytest.approx(remaining_precision**-0.5, rel=1e-9)


def test_a_second_mean_takes_its_share_from_all_later_rounds_alike():
    plans = alternatives(DPGram(1.0)._plan(ROWS, KEY))
    (_, second_mean, *later), (_, *planned) = plans["mean, pairs"], plans["pairs"]
    assert [type(one.system) for one in later] == [type(one.system) for one in planned]
    ratios = [(one.system.width / two.system.width) ** 2 for one, two in zip(later, planned, strict=True)]
    assert ratios == pytest.approx([1 / (1 - _alternatives._MORE_MEAN_SHARE)] * len(planned), rel=1e-9)
    planned_precision = precision_of(planned)
    assert second_mean.system.width**-2 == pytest.approx(_alternatives._MORE_MEAN_SHARE * planned_precision, rel=1e-9)
    assert precision_of(plans["mean"][1:]) == pytest.approx(planned_precision, rel=1e-9)


@pytest.mark.parametrize("taken", PLANS)
def test_the_ledger_of_every_run_states_the_cost_of_its_releases(taken):
    model, recorded = run_with(taken)
    assert is_accounted_for(model.ledger_, recorded)
    spent = sum(event.noise_multiplier**-2 for event in model.ledger_.events.elements())
    assert 0.999 * gaussian_mu(3.0, 1e-6) < math.sqrt(spent) <= gaussian_mu(3.0, 1e-6) * (1 + 1e-12)
    sensitivities = [one.event.replace_sensitivity for one in recorded]
    # The first mean and pairs have sqrt(2), columns and measurements 2; later means take the costs of replaced rounds.
    for one, sensitivity in zip(recorded, sensitivities, strict=True):
        if type(one.system) in (rounds.ShareSum, rounds.PairSum):
            assert sensitivity == SQRT_2
        else:
            assert (sensitivity or 2) > 1.2 * SQRT_2
    full = run_with("columns")[0].ledger_.epsilon("public")
    assert model.ledger_.epsilon("public") == pytest.approx(full, rel=1e-6)


def test_two_sensitivities_of_one_user_add_up_as_squares():
    """Check the control: if all rounds had 2, or all sqrt(2), the figure for a replaced user would differ."""
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
    # The plan has two rounds of columns, and a measurement.
    two_rounds = [plan[2]._replace(n_rounds=2), plan[-1]]
    second_share = Phase(rounds.RepeatedShareSum(plan[0].system.noise, KEY, 0.0), plan[0].state)
    substituted = substitute(two_rounds, [second_share], [1.0])[0].system
    expected = substitute([plan[2], plan[3], plan[-1]], [second_share], [1.0])[0].system
    assert substituted.width == pytest.approx(expected.width, rel=1e-12)
    assert substituted.distance == pytest.approx(expected.distance, rel=1e-12)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DPGram, DPSubspace])
def test_no_two_rounds_draw_from_one_stream(kind):
    """Check a run's columns, pairs and three means, and the same round under another key."""
    model = kind(4.0)
    plan = model._plan(of_sets([{0}], 200), KEY)
    plans = model._alternatives(plan)
    phases, noise = [*plans["mean, pairs"], plans["mean, pairs, mean"][-1]], {}
    for system, state, _ in phases:
        after = system.apply(state, system.zero_update(state, 0))
        noise[system._purpose] = after.noisy.ravel() / float(system.noise.stddev)
    assert len(noise) == len(phases)
    for (a, one), (b, other) in itertools.combinations(noise.items(), 2):
        assert unrelated([one], [other]), (a, b)
    first = noise[plan[0].system._purpose]
    assert not unrelated([first], [first + noise[phases[-1].system._purpose] / 100])  # control


@pytest.mark.parametrize("kind", [DPGram, DPSubspace])
def test_a_node_has_the_rounds_that_a_run_requests(kind):
    """Check that rounds are numbered over all alternatives; a run that omits some states how many."""
    model = kind(3.0)
    phases, plans = model._all_phases(ROWS, KEY), model._plans(model._plan(ROWS, KEY))
    assert len(plans) == 5
    assert len(phases) == len({id(phase.system) for one in plans for phase in one}) == 2 * len(plans[0]) + 3
    for one in plans:
        number = -1
        for system, *_ in one:
            number += 1 + system.n_skipped
            assert (type(phases[number].system), phases[number].system.width) == (type(system), system.width)


@pytest.mark.parametrize("taken", PLANS)
def test_a_run_makes_the_rounds_of_its_plan(taken):
    model, recorded = run_with(taken)
    expected = alternatives(model._plan(ROWS, KEY))[PLANS[taken][0]]
    assert [type(one.system) for one in recorded] == [type(system) for system, *_ in expected]
    assert [one.system.width for one in recorded] == [system.width for system, *_ in expected]
    assert [one.system.n_skipped for one in recorded] == [system.n_skipped for system, *_ in expected]


def test_the_plan_follows_from_the_noise_of_the_mean(monkeypatch):
    """Check that a noisier mean takes more of the budget, and that the choice reads no rows."""
    seen, choose = [], _measured_release.choose_first_plan

    def spy(plans, mean):
        seen.append((mean, choose(plans, mean)))
        return seen[-1][-1]

    monkeypatch.setattr(_measured_release, "choose_first_plan", spy)
    data = grouped(600, 40, 1)[0]
    for epsilon, start in ((0.05, "mean"), (0.3, "mean, pairs"), (8.0, "pairs")):
        model = DPGram(epsilon).fit(data, key=KEY)
        mean, name = seen.pop()
        assert name == start
        plans = alternatives(model._plan(data, KEY))
        possible = [[type(one.system) for one in plans[end]] for end in (name, f"{name}, mean") if end in plans]
        mechanisms = [Counter(kind._field.replace("_", " ") for kind in kinds) for kinds in possible]
        ran = Counter(event.mechanism.removeprefix("Gaussian noise on ") for event in model.ledger_.events.elements())
        assert ran in mechanisms
        assert mean.noise == pytest.approx(plans["pairs"][0].system.width / data.n_users)
        assert mean.precision == pytest.approx(plans["pairs"][0].system.width ** -2)


def test_the_mean_takes_the_minimum_budget_for_little_noise():
    # The square of this mean is 1.
    values, plans = np.full(100, 0.1), alternatives(DPGram(1.0)._plan(ROWS, KEY))
    first, more = (precision_of(plans["mean, pairs"][:n]) for n in (1, 2))
    limit = measurement._MAX_MEAN_NOISE

    def mean_with(ratio, precision):
        """Return a mean with this part of its square as noise, if it has that precision."""
        noise = ratio * precision / first / 100
        return NoisyMean(values * math.sqrt(1 + 100 * noise), math.sqrt(noise), first)

    for ratio, precision, expected in (
        (0.99 * limit, first, "pairs"), (1.01 * limit, first, "mean, pairs"), (0.99 * limit, more, "mean, pairs"),
        (1.01 * limit, more, "mean"),
    ):  # fmt: skip
        assert _alternatives.choose_first_plan(plans, mean_with(ratio, precision)) == expected
    assert _alternatives.choose_first_plan(plans, NoisyMean(np.zeros(100), 1.0, first)) == "mean"
    assert _alternatives.choose_first_plan({"mean": plans["mean"]}, mean_with(0.0, first)) == "mean"
