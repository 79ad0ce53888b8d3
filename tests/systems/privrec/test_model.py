"""PrivRec: rounds against a twin, the noise and its ledger, and personalisation."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from support.privrec_case import (
    FEATURES,
    KEY,
    SMALL,
    assert_hostile_messages_are_refused,
    assert_noise_is_on_every_number,
    rounds,
    saved_and_fine_tuned,
    small_data,
    small_log,
)
from support.significance import mean_is

from fastfedrec import DivergenceError, Interactions, Key, PrivRec
from fastfedrec.accounting import CentralRelease, Gaussian, Unprotected
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.engines import LocalEngine
from fastfedrec.evaluation.new_users import evaluate_personalized, personalization_split
from fastfedrec.mechanisms import FixedSizeSampling
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.rounds.system import Update
from fastfedrec.systems.grid_noise import GridNoise

pytestmark = pytest.mark.ignores_values


def dense_updates(system, data, state, round_number):
    """Return each client's update before clipping, computed one call at a time."""
    network = system.network
    events = Events.from_interactions(data.binarize(3))
    client_updates = []
    for row in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
        examples = draw_examples(data, events, [row], 4, key=KEY, purpose="privrec.negatives", round=round_number)
        updates = network.train_clients(
            state.parameters, examples, learning_rate=0.1, n_epochs=2, key=KEY, purpose="privrec.order",
            round=round_number,
        )  # fmt: skip
        client_updates.append(updates.total())
    return client_updates


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_a_run_without_noise_equals_the_twin():
    data = small_data()
    system = rounds(data)
    state = system.initial_state()
    parameters = state.parameters.astype(np.float64)
    for number in range(3):
        expected = FixedSizeSampling(5).sample(30, key=KEY, round=number)
        np.testing.assert_array_equal(state.cohort, data.global_user_ids[expected])
        parameters = naive.server_step(
            state.parameters, dense_updates(system, data, state, number), cohort_size=5, server_learning_rate=0.5
        )
        state = system.apply(state, system.local_round(state, data, KEY, number))
        np.testing.assert_allclose(state.parameters, parameters, rtol=1e-6, atol=1e-7)
    model = PrivRec(FEATURES, server_learning_rate=0.5, threshold=3.0, negatives=4, **SMALL).fit(data, key=KEY)
    np.testing.assert_array_equal(model.parameters_, state.parameters)


def test_a_noisy_round_equals_the_twin():
    data = small_data()
    noise = GridNoise.calibrated("gaussian", 0.01, 0.3)
    system = rounds(data, noise=noise, clip_norm=0.01)
    state = system.initial_state()
    update = system.local_round(state, data, KEY, 0)
    drawn = noise.mechanism.sample(system.network.n_parameters, key=KEY, purpose="privrec.noise", round=0)
    expected = naive.server_step(
        state.parameters, dense_updates(system, data, state, 0), cohort_size=5, server_learning_rate=0.5,
        clip_norm=0.01, noise=drawn * noise.step,
    )  # fmt: skip
    # There are five clients, each rounded toward zero by less than a step.
    np.testing.assert_allclose(system.apply(state, update).parameters, expected, atol=6 * noise.step, rtol=1e-6)


def test_scores_are_the_networks():
    data = small_data()
    model = PrivRec(FEATURES, threshold=3.0, **SMALL).fit(data, key=KEY)
    features = Features.from_interactions(data, user=["age"], item=["genres"])
    network = TwoTower(features, n_factors=16, hidden=(16,))
    expected = network.score(model.parameters_, [4, 2])
    np.testing.assert_array_equal(model.score_items(data.user_ids[[4, 2]]), expected)
    devices = model.personalize(data.select_users([4, 2]), key=KEY)
    assert not np.array_equal(devices.score_items(data.user_ids[[4, 2]]), expected)
    np.testing.assert_array_equal(
        model.personalize(data.select_users([2]), key=KEY).score_items(data.user_ids[[2]])[0],
        devices.score_items(data.user_ids[[2]])[0],
    )
    still = model.personalize(data.select_users([4, 2]), key=KEY, local_epochs=0)
    np.testing.assert_array_equal(still.score_items(data.user_ids[[4, 2]]), expected)


# ---- invariants: the noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_no_client_is_longer_than_the_bound_on_the_grid(kind):
    data = small_data()
    noise = GridNoise.calibrated(kind, 0.01, 1.0)
    system = rounds(data, noise=noise, clip_norm=0.01, cohort_size=1)
    order = 2 if kind == "gaussian" else 1
    for number in range(10):
        state = system.state_of(system.initial_state().parameters, number)
        total = system.local_round(state, data, KEY, number).arrays["total"]
        steps = [Fraction(int(step)) for step in total]
        length = sum(step**2 for step in steps) if order == 2 else sum(map(abs, steps))
        radius = Fraction(0.01) / Fraction(noise.step)
        assert 0 < length <= radius**order
        assert system.inconsistency(state, Update(number, "a", 30, {"total": total})) is None
        assert "its total has norm" in system.inconsistency(state, Update(number, "a", 30, {"total": 9 * total}))


def test_noise_covers_rows_without_a_contribution():
    data = small_data()
    system = rounds(data, noise=GridNoise.calibrated("gaussian", 0.01, 1.0), clip_norm=0.01)
    assert_noise_is_on_every_number(system, data)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_ledger_of_a_private_run(kind):
    model = PrivRec(FEATURES, clip_norm=0.01, target_epsilon=1.5, noise=kind, delta=1e-5, **SMALL)
    model.fit(small_data(), key=KEY)
    (event,) = model.ledger_.events
    assert model.ledger_.events[event] == 3
    assert type(event) is (Gaussian if kind == "gaussian" else CentralRelease)
    assert (event.n_users, event.cohort_size) == (30, 5)
    assert 0 < event.distance < 1e-20
    assert 1.49 < model.ledger_.epsilon("public") <= 1.5
    assert model.ledger_.epsilon("server") == np.inf
    given = PrivRec(FEATURES, clip_norm=0.01, noise_multiplier=model.noise_multiplier_, noise=kind, delta=1e-5, **SMALL)
    np.testing.assert_array_equal(given.fit(small_data(), key=KEY).parameters_, model.parameters_)
    assert any("PrivRec assumes that the list of users" in note for note in model.ledger_.notes)


def test_without_noise_there_is_no_guarantee():
    for clip_norm in (None, 0.1):
        model = PrivRec(FEATURES, clip_norm=clip_norm, **SMALL).fit(small_data(), key=KEY)
        assert {type(event) for event in model.ledger_.events} == {Unprotected}
        assert model.ledger_.epsilon("public") == np.inf


def test_too_much_noise_is_divergence():
    model = PrivRec(FEATURES, clip_norm=40.0, noise_multiplier=1.0, **SMALL)
    with pytest.raises(
        DivergenceError, match=r"round 0: the largest parameter is .*; the noise is 16 in each parameter"
    ):
        model.fit(small_data(), key=KEY)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_sums_longer_than_those_of_a_whole_cohort_are_refused(kind):
    """Check sums with entries within their bounds and a norm above the bound."""
    data = small_data()
    system = rounds(data, noise=GridNoise.calibrated(kind, 0.01, 1.0), clip_norm=0.01)
    state = system.initial_state()
    bound = int(system.rules(state, data.n_users)["total"].high)
    arrays = {"total": np.full(system.network.n_parameters, bound // 2)}
    assert not RoundReceiver(system, state, 0, {"a": data.n_users}).receive(Update(0, "a", data.n_users, arrays))
    arrays = {"total": np.zeros(system.network.n_parameters, dtype=np.int64)}
    arrays["total"][0] = bound // 2
    assert RoundReceiver(system, state, 0, {"a": data.n_users}).receive(Update(0, "a", data.n_users, arrays))


def test_a_diverged_client_sends_zeros():
    data = small_data()
    system = rounds(data, noise=GridNoise.calibrated("gaussian", 0.01, 1.0), clip_norm=0.01)
    system.local = replace(system.local, learning_rate=1e30)
    assert not system.local_round(system.initial_state(), data, KEY, 0).arrays["total"].any()


def test_an_entropy_key_draws_the_noise_of_a_round_once():
    data = small_data()
    system = rounds(data, noise=GridNoise.calibrated("gaussian", 0.01, 1.0), clip_norm=0.01)
    system.key = Key.from_entropy()
    state = system.initial_state()
    update = system.local_round(state, data, system.key, 0)
    system.apply(state, update)
    with pytest.raises(ValueError, match="has already made the message of 'server' in round 0"):
        system.apply(state, update)


# ---- invariants: data ------------------------------------------------------------------------------------------------


def test_clients_with_no_item_or_one_item():
    data = Interactions.from_arrays([0, 1, 1, 2, 2, 2, 2], [1, 0, 2, 0, 1, 2, 3], [5, 1, 2, 4, 4, 5, 5])
    model = PrivRec(threshold=3.0, **(SMALL | {"cohort_size": "all"})).fit(data, key=KEY)
    assert np.isfinite(model.parameters_).all()
    scores = model.personalize(data, key=KEY).score_items([0, 1, 2])
    # Without positives, there is no fine-tuning.
    np.testing.assert_array_equal(scores[1], model.score_items([1])[0])
    assert (scores[0] != model.score_items([0])[0]).all()


def test_a_log_with_contexts():
    log = small_log()
    split = personalization_split(log, test_fraction=0.3, key=KEY)
    model = PrivRec({"context": {"hour": [0, 1, 2, 3]}}, **SMALL).fit(split.train, key=KEY)
    ids = log.interactions.user_ids[split.test_users]
    with pytest.raises(ValueError, match=r"contexts must be given, with the columns \['hour'\]"):
        model.personalize(split.personal, key=KEY).score_items(ids)
    with pytest.raises(ValueError, match="scores items in a context"):
        model.recommend(model.interactions_.user_ids[:1])
    devices = model.personalize(split.personal, key=KEY)
    two = devices.score_items(ids[[0, 0]], contexts={"hour": [0, 3]})
    assert not np.array_equal(two[0], two[1])
    assert 0 <= evaluate_personalized(devices, split, metrics=["hr@5"])["all"]["hr@5"] <= 1
    with pytest.raises(KeyError):
        devices.score_items(ids[:1], contexts={"hour": [9]})


def test_without_a_context_a_user_without_items_gets_popular_items():
    model = PrivRec({"context": {"hour": [0, 1, 2, 3]}}, **SMALL).fit(small_log(), key=KEY)
    items = model.interactions_.item_ids
    some = model.interactions_.select_users([0])
    rows = Interactions.from_arrays(
        np.repeat("ann", some.n_interactions), items[some.indices], user_ids=["ann", "bob"], item_ids=items
    )
    served = model.with_users(rows)
    # The answer equals that for an unknown user, in an hour absent from the data.
    features = served.features_.encode(rows, contexts={"hour": [9]}, ignore_unknown=True)
    network = TwoTower(features, n_factors=model.n_factors, hidden=model.hidden)
    expected = network.score(model.parameters_, [1], contexts=[0])[0]
    np.testing.assert_array_equal(served.score(np.repeat("bob", len(items)), items), expected)
    best = items[np.argsort(-expected, kind="stable")[:10]]
    np.testing.assert_array_equal(served.recommend(["bob"])[0][0], best)
    np.testing.assert_array_equal(served.recommend(["eve"], unknown="popular")[0][0], best)
    for answer in (
        served.recommend,
        lambda ids: served.recommend([*ids, "bob"]),
        lambda ids: served.score(ids, items[:1]),
    ):
        with pytest.raises(ValueError, match="this model scores items in a context; use score_items"):
            answer(["ann"])


def test_a_saved_model_fine_tunes_the_same(tmp_path):
    data = small_data()
    model = PrivRec(FEATURES, clip_norm=0.01, noise_multiplier=2.0, **SMALL).fit(data, key=KEY)
    new = data.select_users([7, 1])
    loaded, _ = saved_and_fine_tuned(model, new, tmp_path / "model")
    for one, other in ((model, loaded), (model.personalize(new, key=KEY), loaded.personalize(new, key=KEY))):
        np.testing.assert_array_equal(one.parameters_, other.parameters_)
    assert loaded.noise_multiplier_ == 2.0
    assert loaded.communication_.to_dict() == model.communication_.to_dict()
    assert loaded.interactions_.n_users == 0
    with pytest.raises(TypeError, match="stay on the users' devices"):
        model.personalize(new, key=KEY).save(tmp_path / "devices")


@pytest.mark.parametrize("private", [False, True])
def test_shards_change_only_rounding(private):
    data = small_data()
    noise = {"clip_norm": 0.01, "noise_multiplier": 0.1} if private else {}
    fits = [PrivRec(FEATURES, **noise, **SMALL).fit(data, key=KEY, engine=LocalEngine(n)) for n in (1, 4)]
    if private:
        np.testing.assert_array_equal(fits[0].parameters_, fits[1].parameters_)
    np.testing.assert_allclose(fits[0].parameters_, fits[1].parameters_, rtol=1e-5, atol=1e-6)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"cohort_size": 31}, ValueError, r"cohort_size must be at most the number of users \(30\), got 31"),
        ({"features": {"user": ["wealth"]}}, KeyError, "wealth"),
        ({"features": {"context": ["hour"]}}, ValueError, "need an InteractionLog"),
        ({"n_factors": 10}, ValueError, "n_factors"),
    ],
)
def test_bad_fits(parameters, error, message):
    with pytest.raises(error, match=message):
        PrivRec(**(SMALL | parameters)).fit(small_data(), key=KEY)


def test_bad_contexts_and_new_users():
    with pytest.raises(KeyError, match=r"features\['context'\] names \['day'\]; the log has \['hour'\]"):
        PrivRec({"context": ["day"]}, **SMALL).fit(small_log(), key=KEY)
    data = small_data()
    model = PrivRec(FEATURES, **SMALL).fit(data, key=KEY)
    with pytest.raises(ValueError, match="data must have the items the model was fitted with"):
        model.personalize(data.select_items([0, 1]))
    with pytest.raises(KeyError):
        model.personalize(data.with_features(user_features={"age": np.full(30, 77)}))
    with pytest.raises(RuntimeError, match="not fitted yet"):
        PrivRec().personalize(data)


@pytest.mark.parametrize("private", [False, True])
def test_hostile_messages(private):
    data = small_data()
    noise = {"noise": GridNoise.calibrated("gaussian", 0.01, 1.0), "clip_norm": 0.01} if private else {}
    assert_hostile_messages_are_refused(rounds(data, **noise), data, private=private)


# ---- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [{}, {"clip_norm": 0.01, "noise_multiplier": 0.5}])
def test_threads_do_not_change_the_model(noise):
    data = small_data()
    fits = [PrivRec(FEATURES, **noise, **SMALL).fit(data, key=KEY, n_threads=n) for n in (1, 4)]
    np.testing.assert_array_equal(fits[0].parameters_, fits[1].parameters_)
    scores = [fits[0].personalize(data, key=KEY, n_threads=n).score_items(data.user_ids) for n in (1, 4)]
    np.testing.assert_array_equal(*scores)


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_added_noise_has_the_stated_spread(kind):
    """Check the mean square (Gaussian) or absolute value (Laplace) in stated units; an error of 10% is rejected."""
    noise = GridNoise.calibrated(kind, 0.01, 0.8)
    draws = noise.release(np.zeros(100_000, dtype=np.int64), KEY, "privrec.noise", 0, 1) / (2 * 0.01 * 0.8)
    size = draws**2 if kind == "gaussian" else np.abs(draws)
    deviation = np.sqrt(2) if kind == "gaussian" else 1.0
    assert mean_is(size, 1.0, deviation)
    assert not mean_is(size, 0.9, 0.9 * deviation)
    assert not mean_is(size, 1.1, 1.1 * deviation)
