"""Budgets of ledgers in documents, shards and fits."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from scipy import stats
from support.events import EVENTS

from fastfedrec import DPGram, DPPopularity, Interactions, Key, Popularity, PrivateRecommender
from fastfedrec.accounting import (
    Budget,
    BudgetError,
    CentralRelease,
    Gaussian,
    GaussianShares,
    Ledger,
    LocalReports,
    UnsupportedEventError,
)
from fastfedrec.accounting.filters import BUDGET_FILTERS, BUDGET_VIEWS

DELTA = 1e-6


def budgeted(budget=4.0, **options):
    return Ledger(DELTA, budget=budget, **options)


# ---- documents, copies and shards ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUDGET_FILTERS)
def test_a_budget_survives_documents_and_copies(name):
    ledger = budgeted(1.0, budget_view="shuffled_server", budget_filter=name)
    ledger.record(LocalReports("m", 0.8, 1, 10))
    for other in (
        Ledger.from_json(ledger.to_json()), copy.deepcopy(ledger), copy.copy(ledger),
        pickle.loads(pickle.dumps(ledger)), Ledger.of_shards([ledger, ledger]),
    ):  # fmt: skip
        assert other.budget == ledger.budget == Budget(1.0, DELTA, "shuffled_server", name)
        with pytest.raises(BudgetError):
            other.record(LocalReports("m", 0.8, 1, 10))
    assert Ledger.from_json(ledger.to_json()).digest() == ledger.digest()


def test_the_digest_depends_on_the_budget_and_documents_without_one_are_as_before():
    plain = Ledger(DELTA)
    assert "budget" not in plain.to_dict()
    digests = {
        Ledger(DELTA, budget=b, budget_filter=f).digest() for b, f in itertools.product((1.0, 2.0), BUDGET_FILTERS)
    }
    assert len(digests | {plain.digest()}) == 5
    document = budgeted(1.0).to_dict()
    document["budget"]["epsilon"] = 9.0
    with pytest.raises(ValueError, match="digest"):
        Ledger.from_dict(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -1.0}, "above 0"), ({"view": "key_holder"}, "view"), ({"filter": "odometer"}, "filter"),
        ({"more": 1}, "does not know"),
    ],
)  # fmt: skip
def test_a_document_with_a_bad_budget_is_refused(change, message):
    document = budgeted(1.0).to_dict()
    document["budget"] |= change
    with pytest.raises(ValueError, match=message):
        Ledger.from_dict(document, check_costs=False)


def test_shards_must_have_one_budget():
    with pytest.raises(ValueError, match="`ledgers` must have the same budget"):
        Ledger.of_shards([budgeted(1.0), budgeted(2.0)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.0}, "`?budget"), ({"budget": math.inf}, "`?budget"), ({"budget": "4"}, "`?budget"),
        ({"budget": 1.0, "budget_view": "key_holder"}, "budget_view must be one of"),
        ({"budget": 1.0, "budget_filter": "pld"}, "budget_filter must be one of"),
    ],
)  # fmt: skip
def test_bad_budgets_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Ledger(DELTA, **options)


def test_a_ledger_without_a_budget_has_no_remaining_epsilon():
    with pytest.raises(ValueError, match="make the ledger with a budget"):
        Ledger(DELTA).remaining()
    with pytest.raises(ValueError, match="n_uses"):
        budgeted().remaining(n_uses=0)
    with pytest.raises(ValueError, match="use must be one of"):
        budgeted().remaining(use="sampled")


def test_remaining_takes_views_and_words_for_the_trusted_party():
    ledger = Ledger(DELTA, budget=4.0, budget_view="central")
    ledger.record(LocalReports("local reports", 0.3, n_reports=1, n_users=1000))
    ledger.record(CentralRelease("counts", 0.1, neighboring="replace"))
    assert ledger.remaining() == ledger.remaining("public") == ledger.remaining("central") > 0
    # The release has no guarantee against the server, which sees the data.
    assert ledger.remaining("local") == ledger.remaining("server") == 0
    with pytest.raises(ValueError, match="budget_view must be one of"):
        ledger.remaining("key_holder")
    with pytest.raises(ValueError, match="view must be"):
        ledger.remaining("stranger")


SHARES = GaussianShares(1.0, n_nodes=100, n_answers=95, honest_fraction=0.7, neighboring="replace", sampling="none")
OF_ENTITY = CentralRelease("counts", 0.1, neighboring="replace", trust="entity")


@pytest.mark.parametrize(
    ("event", "trusted"), [(SHARES, {"aggregator", "central"}), (OF_ENTITY, {"central"})], ids=["shares", "entity"]
)
def test_a_budget_for_a_trusted_party_takes_no_guarantee_of_others(event, trusted):
    for word in ("local", "shuffle", "aggregator", "central"):
        ledger = budgeted(budget_view=word)
        assert ledger.budget.view == word
        assert f"view={word!r}" in repr(ledger.budget)
        assert f"(trust: {word})" in ledger.summary()
        again = Ledger.from_json(ledger.to_json())
        assert again.budget == ledger.budget
        if word in trusted:
            again.record(event)
            assert again.remaining() > 0
        else:
            with pytest.raises(BudgetError, match=f"has no guarantee against '{word}'"):
                again.record(event)
            with pytest.raises(BudgetError, match=f"against '{word}'"):
                again.check_budget({event: 2})
            assert not again.events
    by_view = budgeted(budget_view="server")
    by_view.record(event)
    assert {word for word in ("local", "shuffle", "aggregator", "central") if by_view.remaining(word)} == trusted
    assert by_view.remaining() == by_view.remaining("server") > 0


@pytest.mark.parametrize("view", BUDGET_VIEWS)
@pytest.mark.parametrize("name", BUDGET_FILTERS)
def test_a_budget_takes_no_event_without_a_figure_of_the_ledger(name, view):
    n_taken = 0
    for event in EVENTS:
        ledger = Ledger(1e-3, budget=1e6, budget_view=view, budget_filter=name)
        try:
            ledger.record(event)
        except (BudgetError, UnsupportedEventError, TypeError):
            continue
        n_taken += 1
        assert ledger.epsilon(view) < math.inf
    assert n_taken > 1


# ---- fits ------------------------------------------------------------------------------------------------------------

ROWS = Interactions.from_arrays(*zip(*[(u, (7 * u + 3 * k) % 40) for u in range(1000) for k in range(12)], strict=True))


def test_a_fit_whose_plan_does_not_fit_is_refused_before_its_first_round(monkeypatch):
    ledger = budgeted(1.0)
    model = DPGram(1.0)  # its replace cost is above 1
    monkeypatch.setattr(DPGram, "_release", lambda *arguments: pytest.fail("a round began"))
    with pytest.raises(BudgetError) as caught:
        model.fit(ROWS, ledger=ledger)
    assert not ledger.events
    assert not caught.value.ledger.events
    assert not hasattr(model, "ledger_")


def test_every_plan_that_a_release_may_choose_must_fit():
    model, ledger = DPGram(0.5), budgeted(4.0)
    plans = model._plans(model._plan(ROWS, Key.from_seed(1)))
    assert len(plans) > 1
    seen = []
    ledger_check = Ledger.check_budget
    try:
        Ledger.check_budget = lambda self, *p: (seen.extend(p), ledger_check(self, *p))[1]
        model.fit(ROWS, ledger=ledger)
    finally:
        Ledger.check_budget = ledger_check
    fit_plans = seen[: len(plans)]
    assert [sum(plan.values()) for plan in fit_plans] == [sum(n for *_, n in plan) for plan in plans]


def test_weekly_fits_stop_at_the_budget():
    ledger = budgeted(4.0)
    model = PrivateRecommender(epsilon=ledger.remaining(n_uses=4))
    for _ in range(4):
        model.fit(ROWS, ledger=ledger)
    with pytest.raises(BudgetError, match="Refused before anything was released"):
        model.fit(ROWS, ledger=ledger)
    assert 3.9 < ledger.epsilon("public") <= 4.0
    # The model of the fourth week still serves.
    assert model.recommend(ROWS.user_ids[:2], n=3)[0].shape == (2, 3)


def test_a_failed_fit_spends_what_it_released():
    ledger = budgeted(4.0)
    model = DPGram(0.5)
    count = 0

    class Stop(Exception):
        pass

    original = Ledger.record

    def record(self, event, **options):
        nonlocal count
        count += 1
        if count == 3:
            raise Stop
        original(self, event, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "record", record)
        with pytest.raises(Stop):
            model.fit(ROWS, ledger=ledger)
    assert ledger.events.total() == 2
    remaining = ledger.remaining()
    assert remaining < budgeted(4.0).remaining()
    model.fit(ROWS, ledger=ledger)
    assert ledger.remaining() < remaining


@pytest.mark.parametrize("model", [DPPopularity(2.5), Popularity()], ids=repr)
def test_models_without_rounds_are_refused_as_well(model):
    ledger = budgeted(4.0)
    with pytest.raises(BudgetError):
        model.fit(ROWS, ledger=ledger)
    assert not ledger.events


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_stopping_by_losses_stays_within_the_budget_where_an_odometer_does_not():
    """Gaussian runs that stop once the loss is above the budget: exact up to a grid, for 10 runs."""
    mu, epsilon = 0.5, 4.0
    ledger = budgeted(epsilon)
    event = Gaussian(1 / mu, neighboring="replace", sampling="none")
    n_runs = 2
    for _ in range(n_runs):
        ledger.record(event)
    with pytest.raises(BudgetError):
        ledger.record(event)
    step = mu / 100
    losses = step * np.arange(-2000, 8000)
    kernel = step * stats.norm.pdf(step * np.arange(-1000, 1001), mu**2 / 2, mu)

    def stopped(n):
        alive, total = np.zeros(len(losses)), 0.0
        alive[2000] = 1.0
        for _ in range(n):
            alive = np.convolve(alive, kernel, mode="same")
            over = losses > epsilon
            total += float((alive[over] * -np.expm1(epsilon - losses[over])).sum())
            alive[over] = 0.0
        return total

    assert stopped(n_runs) <= DELTA
    assert stopped(n_runs + 3) > DELTA  # control: the runs that were refused
