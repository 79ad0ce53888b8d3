"""Baselines of private prototypes: central and individual factorisation."""

import numpy as np
import pytest
from support.data import of_dense

from fastfedrec import Key
from fastfedrec.compute.nmf import fit_nmf, solve_rows_nonnegative
from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF

KEY = Key.from_seed(3)


def rated(n_users=50, n_items=20):
    rng = np.random.default_rng(1)
    mask = rng.random((n_users, n_items)) < 0.5
    return of_dense(mask * rng.integers(1, 6, mask.shape).astype(np.float64))


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_an_individual_model_is_the_factorisation_of_its_entity():
    data, entities = rated(), np.arange(50) % 3
    model = IndividualNMF(4, regularization=0.5).fit(data, entities=entities, key=KEY)
    assert model.item_factors_.shape == (3, 20, 4)
    for entity in range(3):
        part = data.select_users(np.flatnonzero(entities == entity))
        part = part._replace(values=part.values_or_ones())
        items = fit_nmf(part, 4, regularization=0.5, key=KEY).item_factors
        users = solve_rows_nonnegative(part, items, regularization=0.5)
        np.testing.assert_array_equal(model.item_factors_[entity], items)
        ids = np.repeat(part.user_ids, 20), np.tile(part.item_ids, part.n_users)
        np.testing.assert_allclose(model.score(*ids).reshape(-1, 20), users @ items.T)


@pytest.mark.parametrize("kind", [CentralNMF, IndividualNMF])
def test_values_that_overflow_are_refused_by_fit(kind):
    data = rated()
    values = data.values_or_ones()
    for largest in (1e100, 1e101, 1e300):
        values[7] = largest
        if largest > 1e100:
            with pytest.raises(
                ValueError, match=r"values of interactions must be at most 1e\+100, got 1e\+(101|300); re"
            ):
                kind(4).fit(data._replace(values=values), key=KEY)
        else:
            model = kind(4).fit(data._replace(values=values), key=KEY)
            assert np.isfinite(model.recommend(n=3, filter_seen=False)[1]).all()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_a_single_entity_has_the_central_model():
    data = rated()
    central, individual = CentralNMF(4).fit(data, key=KEY), IndividualNMF(4).fit(data, key=KEY)
    np.testing.assert_array_equal(central.user_factors_, individual.user_factors_)
    spread = CentralNMF(4).fit(data, entities=np.arange(50) % 3, key=KEY)
    np.testing.assert_array_equal(central.item_factors_, spread.item_factors_)


def test_predictions_stay_in_the_range_without_a_guarantee():
    data = rated()
    model = CentralNMF(4, value_range=(2.0, 3.0)).fit(data, key=KEY)
    predicted = model.predict(np.repeat(data.user_ids, 20), np.tile(data.item_ids, 50))
    assert predicted.min() == 2.0
    assert predicted.max() == 3.0
    assert model.ledger_.epsilon("public") == np.inf


def test_an_entity_without_entries_is_left_empty():
    data = rated(6).keep_interactions(np.repeat(np.arange(6) < 4, rated(6).interactions_per_user()))
    model = IndividualNMF(2).fit(data, entities=["a", "a", "b", "b", "c", "c"], key=KEY)
    assert not model.item_factors_[2].any()


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_entities_need_one_label_per_user():
    with pytest.raises(ValueError, match=r"entities must have one label per user \(50\), got 1"):
        IndividualNMF().fit(rated(), entities=["a"])


# ---- threads --------------------------------------------------------------------------------------------------------


def test_threads_do_not_change_the_model():
    one, four = (IndividualNMF(3).fit(rated(), entities=np.arange(50) % 2, key=KEY, n_threads=n) for n in (1, 4))
    np.testing.assert_array_equal(one.user_factors_, four.user_factors_)
    np.testing.assert_array_equal(one.item_factors_, four.item_factors_)
