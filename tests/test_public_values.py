"""Tests of public values: the ledger states which came from the data, and given ones do not depend on data."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from support.claims_case import KEY, N_ITEMS, NETWORK, ledger_text, ratings

import fastfedrec
from fastfedrec import (
    DPALS,
    DPPopularity,
    Interactions,
    PrivRec,
    choose_items,
    load,
)
from fastfedrec.data.log import InteractionLog
from fastfedrec.systems.recommender import Recommender

# ---- the list of items ----------------------------------------------------------------------------------------------


def fitted_on(data):
    """Every system and baseline that can be made without an argument, fitted; by class."""
    options = {
        "PrivRec": {"n_rounds": 1, "cohort_size": 2, **NETWORK},
        "DPALS": {"n_factors": 2},
        "DPFMF": {"n_factors": 2, "n_rounds": 2},
        "FMFLDP": {"n_rounds": 2},
        "ShuffledSketchGram": {"epsilon": 40.0},
    }
    for name in fastfedrec.__all__:
        kind = getattr(fastfedrec, name)
        if isinstance(kind, type) and issubclass(kind, Recommender):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield kind(**options.get(name, {})).fit(data, key=KEY)


@pytest.mark.parametrize(
    ("make", "note"),
    [
        (lambda data: data, "The list of items was taken from the data."),
        (lambda data: data.top_items(5), "The list of items was chosen by exact counts."),
        (
            lambda data: choose_items(data, 3, 50.0, delta=0.1, key=KEY),
            "The list of items was chosen privately (choose_items).",
        ),
        (lambda data: Interactions.from_scipy(scipy.sparse.csr_array(data.to_scipy())), None),
    ],
)
def test_every_ledger_states_the_source_of_the_list_of_items(make, note, tmp_path):
    users, items = np.nonzero(ratings())
    data = make(Interactions.from_arrays(users, items, ratings()[users, items]))
    models = list(fitted_on(data))
    assert len(models) > 15
    for model in models:
        item_notes = [text for text in model.ledger_.notes if text.startswith("The list of items was")]
        assert [text.split(". ")[0] + "." for text in item_notes] == ([note] if note else []), type(model).__name__
        assert not note or not any(
            "items is public" in text or "items are public" in text for text in model.ledger_.notes
        )
        model.save(tmp_path / "m")
        assert load(tmp_path / "m").ledger_.notes == model.ledger_.notes


def test_a_ledger_after_a_failed_fit_states_the_source_too():
    users, items = np.nonzero(ratings())
    ledger = fastfedrec.accounting.Ledger()
    with pytest.raises(ValueError, match="n_factors must be at most"):
        DPALS(n_factors=200).fit(Interactions.from_arrays(users, items), key=KEY, ledger=ledger)
    assert not ledger.notes  # no work was done
    DPPopularity().fit(Interactions.from_arrays(users, items), key=KEY, ledger=ledger)
    assert any(note.startswith("The list of items was taken from the data") for note in ledger.notes)


# ---- values of features and contexts ------------------------------------------------------------------------------


def log_of(hours, rows=None):
    users, items = np.nonzero(ratings())
    data = InteractionLog.from_arrays(users, items, {"hour": hours[: len(users)]})
    return data.with_features(user_features={"city": ["a", "b"] * 20 if rows is None else rows})


HOURS = np.arange(1000) % 4
PUBLIC = {"user": {"city": ["a", "b", "c"]}, "context": {"hour": range(6)}}


def privrec(features, **options):
    options = {"n_rounds": 1, "cohort_size": "all", "clip_norm": 0.1, "noise_multiplier": 1.0, **NETWORK} | options
    return PrivRec(features, **options)


@pytest.mark.parametrize("options", [{}, {"n_rounds": 0, "popularity_epsilon": 1.0, "noise_multiplier": None}])
@pytest.mark.parametrize("value", [5, 77, -1])
def test_one_context_value_of_one_entry_does_not_change_the_release(value, options):
    changed = HOURS.copy()
    changed[17] = value
    models = [privrec(PUBLIC, **options).fit(log_of(hours), key=KEY) for hours in (HOURS, changed)]
    assert models[0].parameters_.shape == models[1].parameters_.shape
    assert ledger_text(models[0]) == ledger_text(models[1])
    assert "the values that were given for features, are public" in models[0].ledger_.summary()
    assert models[1].features_.n_embeddings == 3 + 6 + N_ITEMS


def test_a_user_of_an_unlisted_city_is_one_without_a_city():
    cities = ["a", "b"] * 20
    models = [privrec(PUBLIC).fit(log_of(HOURS, [city, *cities[1:]]), key=KEY) for city in ("a", "nowhere")]
    assert models[0].parameters_.shape == models[1].parameters_.shape
    with pytest.raises(KeyError, match="'nowhere' is unknown"):  # a model without a guarantee refuses it
        privrec(PUBLIC, clip_norm=None, noise_multiplier=None).fit(log_of(HOURS, ["nowhere", *cities[1:]]), key=KEY)


def test_values_from_the_data_are_noted_as_not_covered():
    changed = HOURS.copy()
    changed[17] = 5
    models = [privrec({"context": ["hour"]}).fit(log_of(hours), key=KEY) for hours in (HOURS, changed)]
    assert models[0].parameters_.shape != models[1].parameters_.shape
    for model in models:
        note = next(text for text in model.ledger_.notes if text.startswith("The values of"))
        assert note.startswith("The values of context 'hour' were taken from the data.")
        assert note.kind == "not covered"
    both = privrec({"user": {"city": None}, "context": {"hour": range(6)}}).fit(log_of(HOURS), key=KEY)
    assert any(text.startswith("The values of user 'city' were taken from the data") for text in both.ledger_.notes)
