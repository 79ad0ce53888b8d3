"""Tests of the recipes of systems: their planned costs and calibrated budgets."""

import itertools

import pytest

from fastfedrec import FMFLDP, DPGram, DPSubspace, Key, datasets
from fastfedrec.accounting import Ledger
from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.private_recommender._rule import SELF_DECIDING
from fastfedrec.systems.private_recommender.recipes import RECIPES, calibrated, plan_run, recipes_of
from fastfedrec.systems.registry import make_system

ALL = (*RECIPES, *recipes_of("aggregator", 0.7, 0.05))
CENTRAL = {recipe.system: recipe for recipe in RECIPES if recipe.trust == "central"}


# ---- oracle: recorded events -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: f"{recipe.trust}-{recipe.system}")
@pytest.mark.parametrize(("n_users", "n_items"), [(400, 60), (3000, 60)])
def test_plans_equal_the_recorded_costs_of_fits(recipe, n_users, n_items):
    chosen = calibrated(recipe, 7.0, 1e-6, n_users, n_items)
    assert chosen is not None
    parameters, planned = chosen
    model = make_system(recipe.system, parameters)
    model.fit(datasets.generate_implicit(n_users, n_items, key=Key.from_seed(1)), key=Key.from_seed(2))
    view = TRUST_VIEWS[recipe.trust]
    assert model.ledger_.events in [ledger.events for ledger in (planned.ledger, *planned.alternatives)]
    assert bool(planned.alternatives) is (recipe.system in SELF_DECIDING)
    assert model.ledger_.epsilon(view) <= planned.epsilon(view, 1e-6) <= 7.0
    assert (planned.communication is None) == (not hasattr(model, "communication_"))
    if planned.communication is not None:
        planned, moved = planned.communication.to_dict(), model.communication_.to_dict()
        assert planned.keys() == moved.keys()
        if recipe.system in SELF_DECIDING:  # a release may change the columns, or select popularity
            # The plan has the traffic of its own last round, and the fit may have run an alternative one.
            directions = ("download", "upload")
            for total in ("per_client", "total"):
                assert sum(moved[f"{way}_{total}"] for way in directions) <= sum(
                    planned[f"{way}_{total}"] for way in directions
                )
            assert moved["n_rounds"] == planned["n_rounds"] or recipe.system in ("DPGram", "DPSubspace")
            assert moved["upload_per_client"] + moved["download_per_client"] > 0
        else:
            assert planned == moved


def test_a_plan_without_pairs_is_popularity():
    for model, (n_items, is_popularity) in itertools.product((DPGram(1.0), DPSubspace(1.0)), ((1, True), (300, False))):
        planned = plan_run(model, 3_000, n_items, 1e-6)  # a pair needs two items
        assert planned.is_popularity is is_popularity
        assert (sum(planned.ledger.events.values()) == 1) is is_popularity


def test_a_system_without_a_known_plan_is_refused():
    for model in (FMFLDP(epsilon=None), make_system("privrec", {})):
        with pytest.raises(TypeError, match="are not known before the fit; fit it"):
            plan_run(model, 1000, 100, 1e-6)


# ---- exact invariants: budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: f"{recipe.trust}-{recipe.system}")
@pytest.mark.parametrize("epsilon", [0.7, 5.0])
def test_settings_keep_their_budget_and_use_it(recipe, epsilon):
    parameters, planned = calibrated(recipe, epsilon, 1e-7, 20_000, 500)
    cost = planned.epsilon(TRUST_VIEWS[recipe.trust], 1e-7)
    assert cost <= epsilon
    is_full = (
        recipe.make(recipe.max_strength, epsilon, 1e-7) == parameters if recipe.max_strength < float("inf") else False
    )
    assert cost > 0.85 * epsilon or is_full  # the number of reports is a small integer
    assert parameters.get("delta", 1e-7) == 1e-7


@pytest.mark.parametrize("epsilon", [2.0, 50.0])
def test_a_setting_covers_every_plan_that_a_release_may_choose(epsilon):
    parameters, planned = calibrated(CENTRAL["DPGram"], epsilon, 1e-6, 900, 80)
    model = DPGram(**parameters)
    phases = model._plan(datasets.generate_implicit(900, 80, key=Key.from_seed(1)), Key.from_seed(2))
    costs = []
    for plan in model._plans(phases):
        ledger = Ledger(1e-6)
        for system, _, n_rounds in plan:
            for _ in range(n_rounds):
                ledger.record(system.round_event(900))
        costs.append(ledger.epsilon("public"))
    assert len(costs) > 1
    assert max(costs) == planned.epsilon("public", 1e-6) <= epsilon
    assert max(costs) > 0.5 * epsilon


def test_no_setting_is_so_cheap():
    gram = next(recipe for recipe in RECIPES if recipe.system == "ShuffledGram")
    assert calibrated(gram, 0.001, 1e-6, 500, 300) is None  # the accountant counts no larger number of fakes
