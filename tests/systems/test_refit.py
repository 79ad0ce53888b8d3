"""Another fit of a fitted model: its items, its ledger and its cost."""

import copy

import numpy as np
import pytest
from scipy import sparse

from fastfedrec import EASE, DPPopularity, Interactions, Key, Popularity, PrivateRecommender, load
from fastfedrec.accounting import BudgetError, Ledger

ROWS = Interactions.from_arrays(*zip(*[(u, (7 * u + 3 * k) % 40) for u in range(300) for k in range(8)], strict=True))


# ---- oracle: a refit is a fit with the earlier ledger -------------------------------------------------------------


def test_a_refit_is_a_fit_that_keeps_parameters_items_and_ledger():
    first = DPPopularity(0.5).fit(ROWS, key=Key.from_seed(1))
    ledger = copy.deepcopy(first.ledger_)
    again = DPPopularity(0.5).fit(ROWS, key=Key.from_seed(2), ledger=ledger)
    refitted = first.refit(ROWS, key=Key.from_seed(2))
    assert refitted is first
    assert np.array_equal(first.item_counts_, again.item_counts_)
    assert first.ledger_.events == again.ledger_.events
    assert first.ledger_.epsilon("public") == 2.0  # 0.5 twice, for replacing a user


def test_the_cost_of_each_refit_is_noted():
    model = DPPopularity(0.5).fit(ROWS)
    model.refit(ROWS).refit(ROWS)
    cost = "costs epsilon 1.0000 (central) at delta 1e-06, without the other runs."
    assert [note for note in model.ledger_.notes if note.startswith("Run")] == [
        f"Run 1 of this ledger {cost}",
        f"Run 2 of this ledger, of DPPopularity, {cost}",
        f"Run 3 of this ledger, of DPPopularity, {cost}",
    ]
    assert {note.kind for note in model.ledger_.notes if note.startswith("Run")} == {"guarantee"}


def test_runs_of_one_ledger_are_numbered_on_its_page(tmp_path):
    ledger = Ledger()
    DPPopularity(0.5).fit(ROWS, ledger=ledger)
    assert not any(note.startswith("Run") for note in ledger.notes)  # a ledger of one run is unchanged
    DPPopularity(0.25).fit(ROWS, ledger=ledger)
    Popularity().fit(ROWS, ledger=ledger)
    ledger.report(tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "- Run 1 of this ledger costs epsilon 1.0000 (central)" in page
    assert "- Run 2 of this ledger, of DPPopularity, costs epsilon 0.5000 (central)" in page
    assert "- Run 3 of this ledger, of Popularity, has no guarantee, without the other runs." in page


# ---- invariants ----------------------------------------------------------------------------------------------------


def test_a_matrix_has_the_items_of_the_earlier_fit_and_interactions_may_have_more():
    model = DPPopularity(0.5).fit(ROWS)
    model.refit(sparse.csr_array(np.eye(40)))
    assert np.array_equal(model.interactions_.item_ids, ROWS.item_ids)
    more = Interactions.from_arrays([900], [7], item_ids=[*ROWS.item_ids.tolist(), 1000])
    model.refit(more)
    assert model.interactions_.item_ids[-1] == 1000


def test_a_refused_refit_leaves_the_model_as_it_was(tmp_path):
    ledger = Ledger(1e-6, budget=1.5)
    model = DPPopularity(0.5).fit(ROWS, ledger=ledger)
    counts, document = model.item_counts_.copy(), ledger.to_json()
    with pytest.raises(BudgetError):
        model.refit(ROWS)
    assert np.array_equal(model.item_counts_, counts)
    assert ledger.to_json() == document
    assert model.recommend(ROWS.user_ids[:2], n=3)[0].shape == (2, 3)
    # The budget is in the saved model as well.
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    with pytest.raises(BudgetError):
        loaded.refit(ROWS)


def test_a_private_recommender_and_a_baseline_are_refitted():
    ledger = Ledger(1e-6, budget=4.0)
    model = PrivateRecommender(epsilon=ledger.remaining(n_uses=2)).fit(ROWS, ledger=ledger).refit(ROWS)
    assert model.ledger_ is ledger
    with pytest.raises(BudgetError):
        model.refit(ROWS)
    assert "of EASE, has no guarantee" in EASE().fit(ROWS).refit(ROWS).ledger_.notes[-1]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_a_refit_needs_the_ledger_of_the_earlier_fit():
    model = DPPopularity(0.5).fit(ROWS)
    with pytest.raises(ValueError, match="`ledger` must hold the costs of the model's earlier fit"):
        model.refit(ROWS, ledger=Ledger())
    with pytest.raises(TypeError, match="ledger"):
        model.refit(ROWS, ledger="users.json")


def test_a_refit_needs_a_fit_and_all_items():
    with pytest.raises(RuntimeError, match="not fitted"):
        DPPopularity(0.5).refit(ROWS)
    model = DPPopularity(0.5).fit(ROWS)
    with pytest.raises(ValueError, match="must have all items of the earlier fit, got none with id 39"):
        model.refit(ROWS.select_items(np.arange(39)))
