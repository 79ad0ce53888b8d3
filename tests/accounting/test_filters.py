"""Budgets of ledgers: filters that hold if releases choose the events."""

import math
import re
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from support.events import EVENTS

from fastfedrec.accounting import (
    ZCDP,
    AdvancedAccountant,
    Budget,
    BudgetError,
    CentralRelease,
    ChosenMessages,
    Gaussian,
    GaussianShares,
    Ledger,
    LocalReports,
    RDPAccountant,
    ShuffledCounts,
    ShuffledReports,
    Unprotected,
    UnsupportedEventError,
    composed_epsilon,
    gaussian_mu,
    seen_event,
)
from fastfedrec.accounting._ledger_format import KINDS
from fastfedrec.accounting.filters import BUDGET_FILTERS
from fastfedrec.accounting.gaussian import gaussian_delta, pure_mu

DELTA = 1e-6
REPLACED = {"neighboring": "replace", "sampling": "none"}


def pure(epsilon, **fields):
    return CentralRelease("counts", epsilon, neighboring="replace", **fields)


def noise(mu):
    return Gaussian(1 / mu, **REPLACED)


def budgeted(budget=4.0, **options):
    return Ledger(DELTA, budget=budget, **options)


def run(ledger, choose):
    """Record the events that an adversary chooses until it stops or one is refused; return the accepted events."""
    accepted = []
    while (event := choose(accepted)) is not None:
        try:
            ledger.record(event)
        except BudgetError:
            break
        accepted.append(event)
    return accepted


# ---- oracle: exact enumeration of adaptive adversaries ---------------------------------------------------------------


def worst_loss(choose, depth):
    """Return the largest log ratio over all outcomes of randomized responses that `choose` picks by their outcomes.

    `choose(outcomes, losses)` returns an epsilon or None to stop.  Losses are exact: each response has the loss
    epsilon or -epsilon.
    """
    worst = 0.0

    def visit(outcomes, spent, loss):
        nonlocal worst
        worst = max(worst, loss)
        if len(outcomes) == depth:
            return
        epsilon = choose(outcomes, spent)
        if epsilon is None:
            return
        for outcome in (1, -1):
            visit([*outcomes, outcome], [*spent, epsilon], loss + outcome * epsilon)

    visit([], [], 0.0)
    return worst


def filtered(rule, ledger_of):
    """Return an adversary of `worst_loss` with events that a ledger must accept."""

    def choose(outcomes, spent):
        ledger = ledger_of()
        for epsilon in spent:
            ledger.record(pure(epsilon))
        epsilon = rule(outcomes)
        try:
            ledger.record(pure(epsilon))
        except BudgetError:
            return None
        return epsilon

    return choose


@pytest.mark.parametrize("rule", [lambda o: 0.7 if sum(o) > 0 else 0.3, lambda o: 0.5, lambda o: 0.2 * (1 + len(o))])
def test_no_adaptive_sequence_of_pure_events_exceeds_the_budget(rule):
    assert worst_loss(filtered(rule, lambda: budgeted(1.5)), 8) <= 1.5 * (1 + 1e-12)


def test_a_filter_that_ignores_an_event_is_caught_by_the_enumeration():
    """Negative control: the first event of a run is not charged."""

    class Forgetful(Ledger):
        def record(self, event, *, simulation=False):
            super().record(event, simulation=simulation)
            if self.events.total() == 1:
                self.events.clear()
                self.budget = replace(self.budget)

    assert worst_loss(filtered(lambda o: 0.5, lambda: Forgetful(DELTA, budget=1.5)), 8) > 1.9


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=30), st.floats(0.5, 5.0))
def test_sums_of_accepted_pure_events_never_exceed(epsilons, budget):
    ledger = budgeted(budget)
    for epsilon in epsilons:
        try:
            ledger.record(pure(epsilon))
        except BudgetError:
            assert not ledger.budget.allows(ledger.events + type(ledger.events)([pure(epsilon)]))
    total = sum(Fraction(event.epsilon) * times for event, times in ledger.events.items())
    mu_squared = sum(Fraction(pure_mu(event.epsilon)) ** 2 * times for event, times in ledger.events.items())
    assert (
        total <= Fraction(budget) * (1 + Fraction(1, 2**40)) or mu_squared <= Fraction(gaussian_mu(budget, DELTA)) ** 2
    )


def delta_of_gaussian_choices(ledger_of, rules, n_steps, epsilon):
    """Return P - e^epsilon Q of the best adversary that sees the loss of Gaussian releases on a grid.

    At each step it picks one of the `rules` (values of mu) that the ledger accepts, or stops.
    """
    step = 0.02
    losses = step * np.arange(-500, 1001)
    memory = {}

    def value(spent):
        """Return the largest delta of the rest of the run as a function of the loss so far."""
        if spent not in memory:
            best = np.maximum(-np.expm1(epsilon - losses), 0.0)
            ledger = ledger_of()
            for mu in spent:
                ledger.record(noise(mu))
            for mu in rules if len(spent) < n_steps else ():
                if not ledger.budget.allows(ledger.events + type(ledger.events)([noise(mu)])):
                    continue
                after = value(tuple(sorted((*spent, mu))))
                nodes, weights = np.polynomial.hermite_e.hermegauss(40)
                moved = losses[:, None] + mu**2 / 2 + mu * nodes
                best = np.maximum(best, np.interp(moved, losses, after) @ weights / math.sqrt(2 * math.pi))
            memory[spent] = best
        return memory[spent]

    return float(np.interp(0.0, losses, value(())))


def test_an_adversary_that_sees_every_loss_gains_nothing_under_the_gaussian_filter():
    epsilon, delta = 1.0, 0.05
    ledger_of = lambda: Ledger(delta, budget=epsilon)  # noqa: E731 -- short
    chosen = delta_of_gaussian_choices(ledger_of, (0.2, 0.35, 0.5), 5, epsilon)
    limit = gaussian_mu(epsilon, delta * 15 / 16)
    exact = special.ndtr(limit / 2 - epsilon / limit) - math.exp(epsilon) * special.ndtr(-limit / 2 - epsilon / limit)
    assert chosen <= exact * 1.02  # the grid's interpolation of a convex function is above it
    assert exact <= delta * 15 / 16 * (1 + 1e-9)


def test_an_adversary_gains_if_the_figure_of_the_recorded_events_is_the_limit():
    """Negative control: stopping by the loss, with more runs than any fixed plan within the budget."""
    epsilon, delta = 1.0, 0.05

    class Odometer(Ledger):
        """A ledger that forgets the costs of all events but the last three."""

        def record(self, event, *, simulation=False):
            super().record(event, simulation=simulation)
            while self.events.total() > 1:
                self.events[next(iter(self.events))] -= 1
                self.events = +self.events

    chosen = delta_of_gaussian_choices(lambda: Odometer(delta, budget=epsilon), (0.2, 0.35, 0.5), 5, epsilon)
    assert chosen > delta


def test_the_mu_of_a_pure_release_dominates_its_trade_off():
    """The trade-off of Gaussian noise lies nowhere above the one of randomized response."""
    errors = np.linspace(1e-6, 1 - 1e-6, 2001)
    for epsilon in (1e-3, 0.05, 0.0625, 0.3, 1.0, 3.0, 8.0):
        mu = pure_mu(epsilon)
        of_noise = special.ndtr(special.ndtri(1 - errors) - mu)
        of_response = np.maximum(1 - math.exp(epsilon) * errors, math.exp(-epsilon) * (1 - errors))
        assert (of_noise <= of_response + 1e-12).all()
        if epsilon > 0.0625:  # control: a smaller mu is above at the corner
            smaller = special.ndtr(special.ndtri(1 - 1 / (1 + math.exp(epsilon))) - 0.99 * mu)
            assert smaller > 1 / (1 + math.exp(epsilon))


def test_the_limits_of_both_filters_are_those_of_closed_forms():
    gaussian, renyi = (BUDGET_FILTERS[name](2.0, 1e-5) for name in ("gaussian", "renyi"))
    assert float(gaussian.limit) == pytest.approx(gaussian_mu(2.0, 1e-5) ** 2, rel=1e-12)
    rho = float(renyi.limit) / renyi.order
    plain = Ledger(1e-5)
    plain.events[ZCDP("m", rho, **REPLACED)] = 1
    assert plain.epsilon("public") <= 2.0  # the best order of all is no worse
    assert plain.epsilon("public") >= 1.99  # and the fixed order is almost the best for zCDP
    cost = RDPAccountant().compose(ZCDP("m", rho, **REPLACED)).get_epsilon(1e-5)
    assert cost == pytest.approx(2.0, rel=1e-2)


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUDGET_FILTERS)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([pure(0.3), pure(0.9), noise(0.1), noise(0.25), noise(0.4)]), max_size=25))
def test_accepted_events_cost_at_most_the_budget_as_a_fixed_plan_as_well(name, events):
    ledger = budgeted(2.0, budget_filter=name)
    run(ledger, lambda accepted: events[len(accepted)] if len(accepted) < len(events) else None)
    assert ledger.epsilon("public") <= 2.0 * (1 + 1e-9)
    assert ledger.budget.spent(ledger.events) <= 2.0 * (1 + 1e-9)


@pytest.mark.parametrize("use", ["gaussian", "pure"])
@pytest.mark.parametrize("name", BUDGET_FILTERS)
@pytest.mark.parametrize("n_uses", [1, 4, 52])
def test_the_remaining_uses_fit_and_slightly_larger_ones_do_not(name, use, n_uses):
    def next_use(epsilon):
        return pure(epsilon) if use == "pure" else noise(gaussian_mu(epsilon, DELTA) * (1 - 1e-12))

    for before in ([], [pure(0.5)], [noise(0.4)], [noise(0.3), pure(0.2)]):
        ledger = budgeted(3.0, budget_filter=name)
        for event in before:
            ledger.record(event)
        epsilon = ledger.remaining(n_uses=n_uses, use=use)
        assert 0 < epsilon <= 3.0
        for _ in range(n_uses):
            ledger.record(next_use(epsilon))
        if epsilon < 3.0:
            with pytest.raises(BudgetError):
                ledger.check_budget({next_use(epsilon * 1e-3 + 1e-4): n_uses})


def test_ten_tenths_fit():
    ledger = budgeted(1.0)
    assert len(run(ledger, lambda accepted: pure(0.1))) == 10
    assert ledger.remaining() == ledger.remaining(use="pure") == 0.0


@pytest.mark.parametrize("view", ["public", "shuffled_server", "server"])
def test_the_budget_is_for_the_chosen_view(view):
    reports = LocalReports("m", 1.0, 3, 10_000, separable=True)
    ledger = budgeted(4.0, budget_view=view)
    ledger.record(reports)
    with pytest.raises(BudgetError, match=f"against '{view}'"):
        ledger.record(reports)
    assert ledger.events.total() == 1
    if view != "public":
        with pytest.raises(BudgetError, match=f"guarantee against '{view}'"):  # the server sees the data
            budgeted(4.0, budget_view=view).record(pure(0.1))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{type(event).__name__}-{event.mechanism}"[:40])
@pytest.mark.parametrize("name", BUDGET_FILTERS)
def test_a_filter_counts_an_event_with_at_least_its_cost_or_refuses_it(name, event):
    if type(event).__name__ not in KINDS:
        pytest.skip("a ledger takes elementary events")
    # Own deltas and distances have tests of their own.
    names = {field.name for field in fields(event)} & {"delta", "distance"}
    event = replace(event, **dict.fromkeys(names, 0.0))
    ledger = Ledger(1e-3, budget=1e6, budget_filter=name)
    try:
        seen = seen_event(event, "public")
    except UnsupportedEventError:
        with pytest.raises(UnsupportedEventError):
            ledger.record(event)
        return
    accountant = AdvancedAccountant() if name == "gaussian" else RDPAccountant()
    is_plain_noise = isinstance(seen, Gaussian | GaussianShares) and seen.sampling == "none"
    # Shuffled counts have no finite divergence, so no filter has room for them.
    is_hopeless = seen is None or isinstance(seen, ShuffledCounts | ChosenMessages)
    if not is_plain_noise and (is_hopeless or not takes(accountant, seen)):
        with pytest.raises(BudgetError):
            ledger.record(event)
        return
    ledger.record(event)
    assert ledger.budget.spent(ledger.events) >= composed_epsilon({event: 1}, "public", 1e-3) * (1 - 1e-9)


def takes(accountant, event):
    try:
        accountant.compose(event)
    except UnsupportedEventError:
        return False
    return True


# ---- privacy: refused before it happens ------------------------------------------------------------------------------


def test_a_refused_event_changes_nothing_and_the_error_names_it():
    ledger = budgeted(1.0)
    ledger.record(pure(0.6))
    before = ledger.to_json()
    with pytest.raises(
        BudgetError,
        match=r"budget of epsilon 1 .* would be exceeded: 0.6 is spent, and .counts. \(CentralRelease\) costs more",
    ) as caught:
        ledger.record(pure(0.6))
    assert ledger.to_json() == before
    assert (caught.value.event, caught.value.spent) == (pure(0.6), 0.6)
    assert caught.value.remaining == ledger.remaining()
    assert isinstance(caught.value, ValueError)
    assert "Shuffled reports" not in str(caught.value)


@pytest.mark.parametrize(
    ("event", "remedy"),
    [
        (Unprotected("exact counts"), "in a ledger without a budget$"),
        (
            Gaussian(9.0, neighboring="add_remove", sampling="poisson", sampling_probability=0.1),
            "budget_filter='renyi'",
        ),
        (ZCDP("m", 1e-9, **REPLACED), "budget_filter='renyi'"),
    ],
)
def test_an_event_without_a_theorem_for_the_filter_is_refused(event, remedy):
    ledger = budgeted(100.0)
    reason = "(theorem for budget_filter='gaussian'|guarantee against 'public')"
    with pytest.raises(BudgetError, match=f"has no {reason}.*{remedy}"):
        ledger.record(event)
    assert not ledger.events
    if "renyi" in remedy:
        other = budgeted(100.0, budget_filter="renyi")
        other.record(event)
        assert other.events.total() == 1


def test_an_event_that_entered_without_a_theorem_stops_all_others():
    ledger = budgeted(100.0)
    ledger.events[Unprotected("exact counts")] += 1
    with pytest.raises(BudgetError):
        ledger.record(pure(1e-6))
    assert ledger.budget.spent(ledger.events) == math.inf
    assert "is exceeded" in ledger.summary()


def test_shuffled_reports_count_as_local_ones_and_corrections_are_never_refused():
    ledger = budgeted(4.0, budget_view="shuffled_server")
    event = ShuffledReports("m", 1.0, 4, 100_000)
    ledger.record(event)
    with pytest.raises(BudgetError, match=r"as local ones in a budget, so Ledger\.remaining is too large"):
        ledger.record(ShuffledReports("m", 1.0, 1, 100_000))
    ledger.amend(event, 1)  # one user answered: the report has no crowd
    assert ledger.epsilon("shuffled_server") == 4.0
    assert ledger.budget.spent(ledger.events) == 4.0
    confirmed = budgeted(4.0)
    reports = LocalReports("m", 1.0, 4, 1000)
    confirmed.record(reports)
    confirmed.confirm_shuffled(reports, 500)
    assert confirmed.budget.spent(confirmed.events) == 4.0
    with pytest.raises(BudgetError):
        confirmed.record(reports)


def test_costs_that_happened_elsewhere_are_taken_and_stop_further_events():
    ledger = budgeted(1.0)
    ledger.record(pure(0.5))
    ledger.events[pure(2.0)] += 1  # as an unfinished fit adds its cost
    assert ledger.budget.spent(ledger.events) == 2.5
    with pytest.raises(BudgetError):
        ledger.record(pure(1e-6))


def test_own_deltas_and_distances_have_a_fixed_share():
    far = Gaussian(100.0, neighboring="replace", sampling="none", distance=1e-9)
    ledger = budgeted(2.0)
    share = DELTA / 16 / (1 + math.exp(2.0))
    n_fit = int(share / 1e-9)
    for _ in range(n_fit):
        ledger.record(far)
    with pytest.raises(BudgetError):
        ledger.record(far)
    own = budgeted(2.0)
    own.record(CentralRelease("m", 0.1, neighboring="replace", delta=DELTA / 17))
    with pytest.raises(BudgetError):
        own.record(CentralRelease("m", 0.1, neighboring="replace", delta=DELTA / 17))


@pytest.mark.parametrize("name", BUDGET_FILTERS)
def test_the_filter_leaves_the_share_of_own_deltas(name):
    budget, small = Budget(2.0, DELTA, filter=name), noise(0.01)
    low, high = 0, 10_000  # numbers of releases that fit, and that do not
    assert budget.allows({small: 1}) > budget.allows({small: high})
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if budget.allows({small: middle}) else (low, middle)
    of_noise = DELTA * 15 / 16
    assert gaussian_delta(low * Fraction(0.01) ** 2, 2.0) <= of_noise
    if name == "gaussian":
        assert gaussian_delta(high * Fraction(0.01) ** 2, 2.0) > of_noise * (1 - 1e-9)


def test_the_epsilon_of_the_error_is_allowed():
    """A figure that is rounded up would be refused as well."""
    ledger = budgeted(1.0)
    ledger.record(pure(1 / 3))
    with pytest.raises(BudgetError) as caught:
        ledger.record(pure(0.99))
    stated = float(re.search(r"or a pure one ([\d.]+)\.", str(caught.value)).group(1))
    assert 0.6665 < stated <= 2 / 3
    ledger.record(pure(stated))
