"""Plans of equal zero_out cost: for any released choice, the ledger states the largest cost for replacement."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec import DPGram, Key, datasets
from fastfedrec.accounting import Ledger
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._replacement import state_largest_replacement
from fastfedrec.systems._substitute import substitute
from fastfedrec.systems.gram.dp_gram_rounds import UNIT, GramState, PairSum, RepeatedShareSum, ShareSum

KEY = Key.from_seed(1)
STATE = GramState(np.zeros(4, dtype=np.int64))
NOISE = LayeredGaussian(Fraction(UNIT))


def phase(mu, replacement, n_rounds=1, kind=ShareSum):
    system = kind(LayeredGaussian(Fraction(UNIT) / Fraction(mu)), KEY, 0.0)
    system.replace_sensitivity = replacement
    return Phase(system, STATE, n_rounds)


def in_place_of(phases, kind):
    """Return one round of a kind, at the cost of the phases."""
    (substituted,) = substitute(phases, [Phase(kind(NOISE, KEY, 0.0), STATE)], [1.0])
    return substituted


class SignedSum(ShareSum):
    """Sum in which contributions of two users may be opposite."""

    replace_sensitivity = 2.0


def exact_cost(plan):
    """Return the exact square of mu of a plan's rounds for a replaced user."""
    costs = [(phase.n_rounds, phase.system.round_cost) for phase in plan]
    return sum(n * (Fraction(c.replace_sensitivity) / Fraction(c.noise_multiplier)) ** 2 for n, c in costs)


def stated(plan):
    """Return the square of mu of the events that a ledger holds after a run."""
    events = [(phase.n_rounds, phase.system.round_event(5)) for phase in plan]
    return sum(n * (Fraction(e.replace_sensitivity or 2) / Fraction(e.noise_multiplier)) ** 2 for n, e in events)


def check(plans):
    """Check that no event states less than its round's cost, and that all plans' sums equal the largest one."""
    state_largest_replacement(plans)
    largest = max(map(exact_cost, plans))
    for plan in plans:
        for one in plan:
            event, cost = one.system.round_event(5), one.system.round_cost
            assert Fraction(event.noise_multiplier) <= Fraction(cost.noise_multiplier)
            assert (event.replace_sensitivity or 2.0) >= cost.replace_sensitivity
        assert largest <= stated(plan) <= largest * (1 + Fraction(1, 2**45))


SENSITIVITIES = st.sampled_from([math.sqrt(2), 2.0, 1.0, 1.7])


# ---- invariants ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    sensitivities=st.lists(SENSITIVITIES, min_size=6, max_size=6),
    shares=st.tuples(st.floats(0.01, 0.9), st.floats(0.05, 0.9)),
    n_rounds=st.integers(1, 3),
)
def test_every_plan_states_the_largest_cost(sensitivities, shares, n_rounds):
    """Check plans that split after the first and after the second round, as in DPGram with a third release."""
    share, of_rest = shares
    mean = phase(math.sqrt(share), sensitivities[0])
    pairs = phase(math.sqrt((1 - share) * of_rest), sensitivities[1])
    cross = phase(math.sqrt((1 - share) * (1 - of_rest) / n_rounds), sensitivities[2], n_rounds)
    plan = [mean, pairs, cross]
    kinds = (1, RepeatedShareSum), (1, PairSum), (2, RepeatedShareSum)
    later = [in_place_of(plan[at:], kind) for at, kind in kinds]
    for one, sensitivity in zip(later, sensitivities[3:], strict=True):
        one.system.replace_sensitivity = sensitivity
    both = substitute(plan[1:], [Phase(RepeatedShareSum(NOISE, KEY, 0.0), STATE), pairs], [share, 1 - share])
    plans = [plan, [mean, later[0]], [mean, later[1]], [mean, pairs, later[2]], [mean, *both]]
    check(plans)
    first = [[one.system.stated_cost for one in plan] for plan in plans]
    # A second call starts from the rounds' own costs.
    check(plans)
    assert [[one.system.stated_cost for one in plan] for plan in plans] == first


def test_a_cheaper_substitute_states_the_cost_of_the_plan():
    root = math.sqrt(2)
    mean, pairs = phase(0.6, root), phase(0.8, 2.0)
    substituted = in_place_of([pairs], RepeatedShareSum)
    state_largest_replacement([[mean, pairs], [mean, substituted]])
    assert mean.system.round_event(1).replace_sensitivity == root  # both plans contain it
    assert pairs.system.round_event(1).replace_sensitivity is None
    assert substituted.system.round_event(1).replace_sensitivity is None
    assert substituted.system.round_cost.replace_sensitivity == root
    # In between, there is a plan of both kinds.
    cross = phase(0.8 * math.sqrt(0.5), 2.0)
    substituted = in_place_of([pairs := phase(0.8 * math.sqrt(0.5), root), cross], RepeatedShareSum)
    state_largest_replacement([[mean, pairs, cross], [mean, substituted]])
    assert substituted.system.round_event(1).replace_sensitivity == pytest.approx(math.sqrt(3), rel=1e-9)


def test_a_dearer_substitute_makes_the_plan_state_as_much():
    mean, pairs = phase(0.6, 2.0), phase(0.8, math.sqrt(2))
    substituted = in_place_of([pairs], SignedSum)
    assert pairs.system.round_event(1).replace_sensitivity == math.sqrt(2)
    state_largest_replacement([[mean, pairs], [mean, substituted]])
    assert pairs.system.round_event(1).replace_sensitivity == pytest.approx(2, rel=1e-9)
    assert mean.system.round_event(1).replace_sensitivity is None
    # With one plan alone, the round states its own cost.
    state_largest_replacement([[mean, pairs]])
    assert pairs.system.round_event(1).replace_sensitivity == math.sqrt(2)


def test_without_it_a_substitute_states_2():
    pairs = phase(0.8, math.sqrt(2))
    substituted = in_place_of([pairs], RepeatedShareSum)
    assert substituted.system.round_cost.replace_sensitivity == math.sqrt(2)
    assert substituted.system.round_event(1).replace_sensitivity is None


def test_for_any_plan_the_ledger_states_at_least_the_cost_of_every_plan():
    """Check that all plans have the same figure for replaced users, since a release chose the plan."""
    data, model = datasets.generate_implicit(60, 40, key=KEY), DPGram(2.0, n_users=100_000)
    figures = []
    for plan in (plans := model._plans(model._plan(data, KEY))):
        ledger = Ledger(delta=1e-6)
        for one in plan:
            for _ in range(one.n_rounds):
                ledger.record(one.system.round_event(60))
        figures.append(ledger.epsilon("public"))
        assert stated(plan) >= max(map(exact_cost, plans)) * (1 - Fraction(1, 2**38))
    assert len(figures) == 5
    assert max(figures) == pytest.approx(min(figures), rel=1e-6)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_plans_that_differ_for_zero_out_are_refused():
    mean = phase(0.6, math.sqrt(2))
    plans = [[mean, phase(0.8, 2.0)], [mean, phase(0.5, math.sqrt(2))]]
    with pytest.raises(ValueError, match="plans must cost the same for zero_out, got one that costs 0"):
        state_largest_replacement(plans)
