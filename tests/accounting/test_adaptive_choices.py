"""Theorems that hold if releases choose events: docs/explanation/accounting/accounting.md, "Adaptive choices"."""

import importlib
import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from fastfedrec import DPGram, DPSubspace, Interactions, Key
from fastfedrec.accounting import Gaussian, Laplace, Ledger, LocalReports, PLDAccountant, gaussian_mu
from fastfedrec.core.names import SYSTEMS

DELTA = 1e-6
# The mu of two Gaussian releases, and the epsilon of Laplace noise.
FIRST, NOISE, OTHER = 1 / 16, 1 / 4.3806, 0.77001
REPLACED = {"neighboring": "replace", "sampling": "none"}


def delta_of_gaussian(epsilon, mu):
    """Return delta at any epsilon, also below 0."""
    return special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu))


def delta_of_laplace(epsilon, total):
    interior = 1 - np.exp((np.clip(epsilon, -total, total) - total) / 2)
    return np.where(epsilon <= -total, 1 - np.exp(epsilon), interior)


def after_first(epsilon, *deltas):
    """Return the delta of one Gaussian release and the worst of some others, chosen by the loss of the first."""

    def integrand(loss):
        worst = max(float(delta(epsilon - loss)) for delta in deltas)
        return worst * stats.norm.pdf(loss, FIRST**2 / 2, FIRST)

    points = FIRST**2 / 2 + FIRST * np.arange(-10, 11)
    return sum(integrate.quad(integrand, *ends, epsabs=1e-14)[0] for ends in itertools.pairwise(points))


# ---- oracle: choices that accountants of fixed events do not cover ---------------------------------------------------


def test_a_choice_between_events_of_equal_cost_costs_twice_the_delta():
    plans = [[Gaussian(1 / NOISE, **REPLACED)], [Laplace(1 / OTHER, **REPLACED)]]
    for (second,) in plans:
        account = PLDAccountant().compose(Gaussian(1 / FIRST, **REPLACED)).compose(second)
        assert account.get_epsilon(DELTA) == pytest.approx(1.0, abs=2e-4)
    noise, other = (lambda e: delta_of_gaussian(e, NOISE)), (lambda e: delta_of_laplace(e, OTHER))
    fixed = after_first(1.0, noise), after_first(1.0, other)
    assert fixed == pytest.approx((9.98e-7, 9.95e-7), rel=2e-3)
    # The choice doubles delta.
    assert after_first(1.0, noise, other) == pytest.approx(1.987e-6, rel=2e-3)
    assert after_first(1.018, noise, other) == pytest.approx(DELTA, rel=0.03)


def test_a_choice_under_a_fixed_total_of_gaussian_sums_costs_nothing():
    """Negative control: the squares of mu have one sum for every plan."""
    half = NOISE / math.sqrt(2)
    square = half**2 + half**2
    fixed = after_first(1.0, lambda e: delta_of_gaussian(e, NOISE))
    chosen = after_first(1.0, lambda e: delta_of_gaussian(e, NOISE), lambda e: delta_of_gaussian(e, math.sqrt(square)))
    assert chosen == pytest.approx(fixed, rel=1e-9)


def stopped(mu, n_runs, bound):
    """Return the sum of P - e^epsilon Q over runs that stop once the loss is above the bound of the runs so far."""
    step = mu / 100
    losses = step * np.arange(-2000, 8000)
    kernel = step * stats.norm.pdf(step * np.arange(-1000, 1001), mu**2 / 2, mu)
    alive, total = np.zeros(len(losses)), 0.0
    alive[2000] = 1.0
    for number in range(1, n_runs + 1):
        alive = np.convolve(alive, kernel, mode="same")
        epsilon = bound(number)
        over = losses > epsilon
        total += float((alive[over] * -np.expm1(epsilon - losses[over])).sum())
        alive[over] = 0.0
    return total


def figure_of_runs(mu, number):
    ledger = Ledger(DELTA)
    ledger.events[Gaussian(1 / mu, **REPLACED)] = number
    return ledger.epsilon("public")


@pytest.mark.parametrize(("mu", "expected"), [(0.1, 5.3e-6), (0.5, 5.9e-6)])
def test_stopping_by_what_was_released_costs_more_than_the_figure_of_the_runs_that_happened(mu, expected):
    assert stopped(mu, 10, lambda number: figure_of_runs(mu, number)) == pytest.approx(expected, rel=0.05)
    # The figure of the ten planned runs holds if the runs stop earlier.
    assert stopped(mu, 10, lambda _: figure_of_runs(mu, 10)) <= DELTA


def test_a_ledger_states_which_figures_need_fixed_events():
    reports = LocalReports("m", 0.05, 1000, 10)
    ledger = Ledger(DELTA)
    ledger.record(reports)
    assert "only if no release had an effect on the events" in ledger.summary()
    pure = Ledger(DELTA)
    # A delta hardly lowers this figure.
    pure.record(LocalReports("m", 1.0, 1, 10))
    assert "only if no release had an effect on the events" not in pure.summary()
    assert "only if no release had an effect on the events" not in Ledger().summary()


# ---- the library's own choices --------------------------------------------------------------------------------------

KEY = Key.from_seed(3)
ROWS = Interactions.from_arrays(*zip(*[(u, (7 * u + 3 * k) % 40) for u in range(1000) for k in range(12)], strict=True))
FEATURES = {"kind": ["a", "b"] * 20}
CHOOSING = [DPGram(3.0), DPGram(0.3, ridge=1.0, score="knn"), DPGram(3.0, item_features=FEATURES), DPSubspace(3.0)]


def choosing_classes():
    """Return the systems with alternative plans: all with a `_plans` that differs from the base class."""
    base = next(kind for kind in DPGram.__mro__ if kind.__name__ == "CentralModel")
    for path in SYSTEMS.values():
        importlib.import_module(f"fastfedrec.{path.rpartition('.')[0]}")

    def below(kind):
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    names = {path.rpartition(".")[2] for path in SYSTEMS.values()}
    return {kind for kind in below(base) if kind.__name__ in names and kind._plans is not base._plans}


def test_every_system_that_chooses_is_here():
    assert choosing_classes() == {type(model) for model in CHOOSING}


@pytest.mark.parametrize("model", CHOOSING, ids=repr)
def test_all_plans_of_a_system_are_of_an_allowed_kind_and_cost_the_same(model):
    """All plans are Gaussian sums with a fixed total, for zero_out and for a replaced user."""
    plans = model._plans(model._plan(ROWS, KEY))
    assert len(plans) > 1
    events = [Counter() for _ in plans]
    for counts, plan in zip(events, plans, strict=True):
        for system, _, n_rounds in plan:
            counts[replace(system.round_event(ROWS.n_users), mechanism="any")] += n_rounds
    assert {type(event) for plan in events for event in plan} == {Gaussian}
    spent = sum(times / event.noise_multiplier**2 for event, times in events[0].items())
    assert spent <= gaussian_mu(model.epsilon, model.delta) ** 2 * (1 + 1e-12)
    for of_one in (lambda event: 1.0, lambda event: event.replace_sensitivity or 2.0):
        squares = [
            sum(times * (of_one(event) / event.noise_multiplier) ** 2 for event, times in plan.items())
            for plan in events
        ]
        assert max(squares) <= min(squares) * (1 + 1e-9)
        # The largest cost is the first, so the plan's figure holds for every choice.
        assert squares[0] >= max(squares) * (1 - 1e-12)


def test_a_plan_whose_substitute_states_a_smaller_sensitivity_would_cost_less_than_another():
    """Control: if the mean stated its own sqrt(2), the figure would depend on the choice."""
    plans = DPGram(3.0)._alternatives(DPGram(3.0)._plan(ROWS, KEY))
    plan, other = plans["pairs"], plans["pairs, mean"]

    def square(phases, minimum):
        events = [phase.system.round_event(1) for phase in phases]
        return sum((min(minimum, event.replace_sensitivity or 2.0) / event.noise_multiplier) ** 2 for event in events)

    assert square(other, 2.0) == pytest.approx(square(plan, 2.0), rel=1e-9)
    last_cost = other[-1].system.round_cost
    assert last_cost.replace_sensitivity == math.sqrt(2)
    cheaper = square(other[:-1], 2.0) + (last_cost.replace_sensitivity / last_cost.noise_multiplier) ** 2
    assert cheaper < 0.9 * square(plan, 2.0)
