"""PrivRec with clients that differentiate through their own steps: rounds against a twin, and their cost."""

from dataclasses import replace

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from support.privrec_case import saved_and_fine_tuned

from fastfedrec import Interactions, Key, PrivRec, datasets
from fastfedrec.accounting import Unprotected
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.meta_learning import METHODS, split_examples
from fastfedrec.data.log import InteractionLog
from fastfedrec.engines import LocalEngine
from fastfedrec.systems.privrec._settings import PrivRecSettings

KEY = Key.from_seed(3)
SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 2, "cohort_size": 5, "local_epochs": 2, "learning_rate": 0.1}
PRIVATE = {"clip_norm": 0.01, "noise_multiplier": 2.0, "delta": 1e-5}


def small_data(n_users=30, n_items=40):
    data = datasets.generate_implicit(n_users, n_items, key=KEY)
    return data.with_features(user_features={"age": np.arange(n_users) % 3})


def fit(meta, data=None, **options):
    return PrivRec({"user": ["age"]}, meta=meta, **(SMALL | options)).fit(
        small_data() if data is None else data, key=KEY
    )


def rounds_of(model):
    return model._system(PrivRecSettings.resolve(model.get_params(), model.interactions_.n_users), KEY, 1)


# ---- oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", METHODS)
def test_rounds_equal_the_twin(meta):
    data = small_data()
    model = fit(meta, data, server_learning_rate=0.5)
    system = rounds_of(model)
    state = system.initial_state()
    for number in range(2):
        sent = []
        for row in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
            events = Events.from_interactions(data)
            examples = draw_examples(data, events, [row], 4, key=KEY, purpose="privrec.negatives", round=number)
            split = split_examples(examples, key=KEY, purpose="privrec.support", round=number)
            updates = system.network.train_clients(
                state.parameters, *split, n_epochs=2, key=KEY, purpose="privrec.order", round=number
            )
            sent.append(updates.total())
        expected = naive.server_step(state.parameters, sent, cohort_size=5, server_learning_rate=0.5)
        state = system.apply(state, system.local_round(state, data, KEY, number))
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(model.parameters_, system.network_part(state.parameters))
    assert (model.learning_rates_ is None) == (meta != "meta-sgd")
    if model.learning_rates_ is not None:
        np.testing.assert_array_equal(model.learning_rates_, system.rates_part(state.parameters))
        assert np.unique(model.learning_rates_).size > 100
        # Learning rates start at 0.1.
        assert 0.05 < np.median(model.learning_rates_) < 0.2


def test_each_method_is_a_different_model():
    parameters = [fit(meta).parameters_ for meta in ("reptile", *METHODS)]
    assert all((a != b).any() for k, a in enumerate(parameters) for b in parameters[:k])
    np.testing.assert_array_equal(
        parameters[0], PrivRec({"user": ["age"]}, **SMALL).fit(small_data(), key=KEY).parameters_
    )


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", METHODS)
def test_the_ledger_equals_reptiles(meta):
    """Check that one bound has one noise; for Meta-SGD only the charged number of draws differs."""
    model, reptile = fit(meta, **PRIVATE), fit("reptile", **PRIVATE)
    ((event, count),) = model.ledger_.events.items()
    ((other, times),) = reptile.ledger_.events.items()
    assert count == times == 2
    n_times = 2 if meta == "meta-sgd" else 1
    assert event.distance == pytest.approx(n_times * other.distance, rel=1e-12)
    assert replace(event, mechanism=other.mechanism, distance=other.distance) == other
    assert ("learning rates" in event.mechanism) == (meta == "meta-sgd")
    assert model.communication_.rounds[0].upload == n_times * reptile.communication_.rounds[0].upload
    without = fit(meta).ledger_
    assert {type(event) for event in without.events} == {Unprotected}


@pytest.mark.parametrize("meta", METHODS)
def test_shards_threads_and_a_resumed_run_do_not_change_the_model(meta, tmp_path):
    data = small_data()
    whole = fit(meta, data, **PRIVATE)
    for run in ({"engine": LocalEngine(4)}, {"n_threads": 2}, {"checkpoint": tmp_path / "a"}):
        model = PrivRec({"user": ["age"]}, meta=meta, **(SMALL | PRIVATE)).fit(data, key=KEY, **run)
        np.testing.assert_array_equal(model.parameters_, whole.parameters_)
    model = PrivRec({"user": ["age"]}, meta=meta, **(SMALL | PRIVATE)).fit(data, checkpoint=tmp_path / "a")
    np.testing.assert_array_equal(model.parameters_, whole.parameters_)
    with pytest.raises(ValueError, match="parameter meta"):
        PrivRec({"user": ["age"]}, **(SMALL | PRIVATE)).fit(data, checkpoint=tmp_path / "a")


@pytest.mark.parametrize("meta", METHODS)
def test_a_saved_model_fine_tunes_the_same(meta, tmp_path):
    model = fit(meta)
    new = small_data().select_users([7, 1])
    loaded, scores = saved_and_fine_tuned(model, new, tmp_path / "model")
    if meta == "meta-sgd":
        np.testing.assert_array_equal(model.learning_rates_, loaded.learning_rates_)
        loaded.learning_rates_ = np.full_like(loaded.learning_rates_, 0.1)
        assert (loaded.personalize(new, key=KEY).score_items(new.user_ids) != scores).mean() > 0.99


@pytest.mark.parametrize("meta", METHODS)
def test_logs_and_clients_with_one_positive(meta):
    words = KEY.words("test.log", size=600).reshape(3, -1)
    log = InteractionLog.from_arrays(words[0] % 20, words[1] % 35, {"hour": (words[2] % 4).astype(np.int64)})
    model = PrivRec({"context": {"hour": [0, 1, 2, 3]}}, meta=meta, **SMALL).fit(log, key=KEY)
    assert np.isfinite(model.parameters_).all()
    one = Interactions.from_arrays([0, 1, 2], [1, 0, 2])
    model = PrivRec(meta=meta, **(SMALL | {"cohort_size": "all"})).fit(one, key=KEY)
    start = rounds_of(model).network_part(rounds_of(model).initial_state().parameters)
    # No user has a query set.
    np.testing.assert_array_equal(model.parameters_, start)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_other_algorithms_than_reptile_refuse_a_contrastive_weight():
    options = {"stage1": "published", "stage1_options": {"contrastive_weight": 0.5}}
    with pytest.raises(ValueError, match=r"meta must be 'reptile' with stage1_options\['contrastive_weight'\]"):
        fit("maml", **options)
