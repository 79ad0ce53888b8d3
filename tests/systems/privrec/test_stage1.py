"""PrivRec's first stage: rounds against a twin, costs, refusals, resumption, and learning from order."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from scipy.stats import binomtest
from support.privrec_case import (
    assert_hostile_messages_are_refused,
    assert_same_on_threads_and_shards,
    power_cut,
    saved_and_fine_tuned,
)
from support.significance import ALPHA
from support.stage1_case import FEW, KEY, SMALL, fit, item_rows, model_of, people, rounds

from fastfedrec import DivergenceError, Interactions, Key, PrivRec, datasets
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import generate_sequences
from fastfedrec.systems.grid_noise import GridNoise
from fastfedrec.systems.privrec.rounds import PrivRecRounds
from fastfedrec.systems.privrec.stage1 import OPTIONS, PretrainingRounds, resolve_options

REAL = Path(__file__).resolve().parents[4] / "shared/data"
KINDS = ("published", "dp", "public")


def dense_updates(system, data, state, number):
    """Return each client's update before clipping, computed one call at a time."""
    for row in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
        examples = draw_contrastive_examples(
            data, [row], length=6, key=KEY, purpose="privrec.stage1.masks", round=number
        )
        yield system.network.train_clients(
            state.parameters, examples, learning_rate=OPTIONS["learning_rate"], n_epochs=OPTIONS["local_epochs"],
            key=KEY, purpose="privrec.stage1.order", round=number,
        ).total()  # fmt: skip


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_rounds_without_noise_equal_the_twin():
    data = people()
    system = rounds(data)
    state = system.initial_state()
    start = GRUEncoder(60, n_factors=16).initial_parameters(KEY, purpose="privrec.stage1.start")
    np.testing.assert_array_equal(state.parameters, start)
    for number in range(3):
        updates = dense_updates(system, data, state, number)
        expected = naive.server_step(state.parameters, updates, cohort_size=7, server_learning_rate=2.0)
        state = system.apply(state, system.local_round(state, data, KEY, number))
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-6, atol=1e-7)
    assert not np.allclose(state.parameters, start)


def test_a_noisy_round_equals_the_twin():
    data = people()
    noise = GridNoise.calibrated("gaussian", 0.01, 0.3)
    system = rounds(data, noise=noise, clip_norm=0.01)
    state = system.initial_state()
    drawn = noise.mechanism.sample(system.network.n_parameters, key=KEY, purpose="privrec.stage1.noise", round=0)
    expected = naive.server_step(
        state.parameters, dense_updates(system, data, state, 0), cohort_size=7, server_learning_rate=2.0,
        clip_norm=0.01, noise=drawn * noise.step,
    )  # fmt: skip
    parameters = system.apply(state, system.local_round(state, data, KEY, 0)).parameters
    # There are seven clients, each rounded toward zero by less than a step, times the server's rate.
    np.testing.assert_allclose(parameters, expected, atol=16 * noise.step, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_starts_from_the_learnt_encoder(kind):
    start = {"n_rounds": 0, "popularity_epsilon": 1e6}
    model = fit(kind, parameters=start)
    plain = fit("none", parameters=start)
    sequences = people(seed=2, n_users=20) if kind == "public" else people()
    noise = {"noise": GridNoise.calibrated("gaussian", 0.01, 2.0), "clip_norm": 0.01} if kind == "dp" else {}
    system = rounds(sequences, **noise)
    state = system.initial_state()
    for number in range(3):
        state = system.apply(state, system.local_round(state, sequences, KEY, number))
    learnt = system.network.embeddings(state.parameters)
    # Unit 0 is the channel of popularity.
    np.testing.assert_allclose(item_rows(model)[:, 1:], learnt[:, 1:], atol=1e-6)
    assert not np.allclose(item_rows(plain)[:, 1:], learnt[:, 1:], atol=1e-3)
    n_dense = model._network.n_dense
    np.testing.assert_array_equal(model.parameters_[:n_dense], plain.parameters_[:n_dense])


def test_public_items_are_matched_by_their_ids():
    data = people()
    # The public data have every second item, in reverse order.
    public = people(seed=2).select_items(np.arange(60)[::-2])
    parameters = {"n_rounds": 0, "popularity_epsilon": 1e6}
    model = fit("public", parameters=parameters, public=public)
    plain = fit("none", parameters=parameters)
    changed = (item_rows(model)[:, 1:] != item_rows(plain)[:, 1:]).any(axis=1)
    assert data.item_ids[changed].tolist() == sorted(public.item_ids.tolist())
    assert changed.sum() == 30


# ---- invariants: runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shards_and_threads_do_not_change_the_model(kind):
    assert_same_on_threads_and_shards(functools.partial(fit, kind), private=kind == "dp")


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("broken", [PretrainingRounds, PrivRecRounds])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch, key, broken):
    with power_cut(broken, 1) as released:
        fit("dp", key=key, checkpoint=tmp_path)
    # The open round is the recorded one, and no client is sampled again.
    sampled, sampled_later = [], []
    train, apply = PretrainingRounds._client_data, broken.apply
    monkeypatch.setattr(PretrainingRounds, "_client_data", lambda *args: sampled.append(1) or train(*args))
    monkeypatch.setattr(broken, "apply", lambda *args: sampled_later.append(apply(*args)) or sampled_later[-1])
    resumed = fit("dp", key=None, checkpoint=tmp_path)
    assert len(sampled) == (1 if broken is PretrainingRounds else 0)
    np.testing.assert_array_equal([state.parameters for state in sampled_later[:2]], released)
    assert sum(resumed.ledger_.events.values()) == len(resumed.communication_.rounds) == 5
    if key is not None:
        whole = fit("dp", key=key)
        np.testing.assert_array_equal(resumed.parameters_, whole.parameters_)
        assert resumed.ledger_.to_dict() == whole.ledger_.to_dict()
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        fit("dp", data=people(seed=5), key=None, checkpoint=tmp_path)


def test_the_order_belongs_to_the_run(tmp_path, monkeypatch):
    """Check that equal items at other times are other data, on which a run that failed at its start is not resumed."""
    data = people()
    with monkeypatch.context() as patch:
        patch.setattr(PretrainingRounds, "apply", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("dp", data=data, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data"):
        fit("dp", data=data._replace(timestamps=data.timestamps[::-1].copy()), checkpoint=tmp_path)


def test_fine_tuning_and_saving(tmp_path):
    model = fit("dp")
    new = people().select_users([7, 1])
    loaded, scores = saved_and_fine_tuned(model, new, tmp_path / "model")
    assert loaded.stage1_options == FEW
    assert not np.array_equal(scores, model.score_items(new.user_ids))
    json.dumps(loaded.ledger_.to_dict(), allow_nan=False)


def test_a_diverged_client_sends_zeros_and_too_much_noise_is_named():
    data = people()
    noise = GridNoise.calibrated("gaussian", 0.01, 1.0)
    system = rounds(data, noise=noise, clip_norm=0.01, learning_rate=1e30, local_epochs=5)
    assert not system.local_round(system.initial_state(), data, KEY, 0).arrays["total"].any()
    with pytest.raises(
        DivergenceError, match=r"stage one diverged in round 0: .* training needs about 0\.0015 or less"
    ):
        fit("dp", parameters={"stage1_options": FEW | {"clip_norm": 100.0}})


@pytest.mark.parametrize("private", [False, True])
def test_hostile_messages(private):
    data = people()
    noise = {"noise": GridNoise.calibrated("gaussian", 0.01, 1.0), "clip_norm": 0.01} if private else {}
    assert_hostile_messages_are_refused(rounds(data, **noise), data, private=private)


def test_users_without_a_sequence_send_zeros():
    data = Interactions.from_arrays([0, 1, 1, 1, 2], [0, 0, 1, 2, 1], [5, 5, 5, 1, 1], timestamps=range(5))
    model = PrivRec(
        **(SMALL | {"cohort_size": "all"}),
        threshold=3.0,
        stage1="published",
        stage1_options={"server_learning_rate": 1.0},
    )
    # With positives alone, only user 1 has a sequence.
    with_low = model.fit(data, key=KEY).parameters_
    other_order = data._replace(timestamps=np.array([9, 0, 1, 7, 3]))
    np.testing.assert_array_equal(model.fit(other_order, key=KEY).parameters_, with_low)
    turned = data._replace(timestamps=np.array([0, 2, 1, 3, 4]))
    assert not np.array_equal(model.fit(turned, key=KEY).parameters_, with_low)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def without_times(which):
    data = people()
    times = data.timestamps.copy()
    times[3] = MISSING_TIMESTAMP
    return {
        "none": data._replace(timestamps=None),
        "some": data._replace(timestamps=times),
        "log": InteractionLog.from_arrays([0, 0, 1, 1], [0, 1, 0, 1]),
    }[which]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("none", "interactions must have timestamps, which define the order of a user's items"),
        ("some", "interactions must have all timestamps, got 1 of 560 missing"),
        ("log", "learns from each user's items in order, and an InteractionLog has no timestamps"),
    ],
)
@pytest.mark.parametrize("kind", ["dp", "published"])
def test_data_without_order_are_refused_before_anything_is_drawn(kind, which, message):
    if kind == "dp" and which == "some":
        pytest.skip("one user's missing time must not stop a private run: the next test")
    key = Key.from_entropy()
    model = model_of(kind, cohort_size=1)
    with pytest.raises(ValueError, match=message):
        model.fit(without_times(which), key=key)
    assert not hasattr(model, "ledger_")
    # The key has not been used.
    key.claim("another fit")


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_in_a_private_run_an_item_without_a_time_is_the_earliest(weight):
    stage1 = FEW | {"cohort_size": 40, "contrastive_weight": weight}
    data = without_times("some")
    first, missing = data.timestamps[: data.indptr[1]], data.timestamps == MISSING_TIMESTAMP
    timed = [data._replace(timestamps=np.where(missing, time, data.timestamps)) for time in (-9, first.max() + 1)]
    models = [model_of("dp", cohort_size=40, stage1_options=stage1).fit(some, key=KEY) for some in (data, *timed)]
    assert models[0].ledger_.to_dict() == models[1].ledger_.to_dict()
    np.testing.assert_array_equal(models[0].parameters_, models[1].parameters_)
    # The order does matter.
    assert not np.array_equal(models[0].parameters_, models[2].parameters_)


@pytest.mark.parametrize(
    ("kind", "public", "message"),
    [
        ("public", None, "public must be given with stage1='public'"),
        ("public", 3, "public must be Interactions, a SciPy .* got int"),
        ("public", people(), "public must be sequences of other users, got the users' own"),
        ("public", people(seed=2)._replace(timestamps=None), "public must have timestamps"),
        ("public", people(seed=2)._replace(item_ids=np.arange(100, 160)), "public must share items with the data"),
        ("dp", people(seed=2), "public needs stage1='public', got stage1='dp'"),
        ("none", people(seed=2), "public needs stage1='public', got stage1='none'"),
    ],
)
def test_bad_public_data(kind, public, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model_of(kind).fit(people(), key=KEY, public=public)


def test_a_cohort_larger_than_the_number_of_users():
    with pytest.raises(ValueError, match=r"stage1_options\['cohort_size'\] must be at most the number of users \(40\)"):
        fit("published", parameters={"stage1_options": {"cohort_size": 41}})
    parameters = PrivRec().get_params() | {"stage1_options": None}
    # The model's cohort is reduced to the number of users.
    assert resolve_options(parameters, 40)["cohort_size"] == 40


@pytest.mark.nightly
@pytest.mark.skipif(not REAL.exists(), reason="MovieLens is not here")
def test_which_real_data_have_an_order():
    one = {"n_rounds": 1, "cohort_size": 5, "n_factors": 16, "hidden": (16,), "local_epochs": 1}
    options = {"n_rounds": 1, "cohort_size": 5}
    whole = datasets.load_movielens(REAL / "ml-100k.zip")
    PrivRec(**one, stage1="published", stage1_options=options).fit(whole, key=KEY)
    part = datasets.load_movielens(REAL / "ml-1m.zip")
    with pytest.raises(ValueError, match="must have all timestamps"):
        PrivRec(**one, stage1="published", stage1_options=options).fit(part, key=KEY)


# ---- statistics ------------------------------------------------------------------------------------------------------


def accuracy(encoder, parameters, data):
    """Return whether the true item and the true segment have the highest score of five; a tie counts as wrong."""
    examples = draw_contrastive_examples(data, np.arange(data.n_users), length=10, key=KEY, purpose="test")
    n_codes = 7
    codes = encoder.encode_sequences(parameters, examples.items, examples.starts).reshape(
        -1, n_codes, encoder.n_factors
    )
    items = encoder.encode_items(parameters)[examples.candidates]
    for code, candidates in ((codes[:, 0], items), (codes[:, 1], codes[:, 2:])):
        scores = np.einsum("nw,nkw->nk", code, candidates)
        yield scores[:, 0] > scores[:, 1:].max(axis=1)


@pytest.mark.nightly
@pytest.mark.parametrize("ordered", [True, False])
def test_the_encoder_learns_from_order_alone(ordered):
    """Check on equally popular items and alike users that only order is learnt; shuffled data stay at chance.

    Chance is a quarter: one of the five candidates replaces the true item in the sequence, and so is wrong.
    """
    key = Key.from_seed(1)
    data = generate_sequences(2000, 200, key=key, n_topics=5, popularity=0.0)
    if not ordered:
        data = data._replace(timestamps=np.argsort(key.uniform("test.shuffle", size=data.n_interactions)))
    test, train = data.select_users(np.arange(500)), data.select_users(np.arange(500, 2000))
    system = rounds(train, cohort_size=100, length=10, server_learning_rate=30.0)
    state = system.initial_state()
    for number in range(600):
        state = system.apply(state, system.local_round(state, train, KEY, number))
    for right in accuracy(system.network, state.parameters, test):
        assert len(right) == 2000
        by_chance = binomtest(int(right.sum()), len(right), 0.25, alternative="greater").pvalue > ALPHA
        assert bool(by_chance) is not ordered
