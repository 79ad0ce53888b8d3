"""PrivRec's rounds on the joint loss: against a twin, one update and one noise for both parts, and the cost of runs."""

import contextlib
import functools
from fractions import Fraction

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from support.privrec_case import assert_same_on_threads_and_shards, power_cut, saved_and_fine_tuned

from fastfedrec import Interactions, Key, NoAnswerError, PrivRec
from fastfedrec.accounting import Unprotected
from fastfedrec.compute.networks.client_examples import Events, draw_examples
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import generate_sequences
from fastfedrec.engines import LocalEngine
from fastfedrec.systems.privrec._joint import JointRounds
from fastfedrec.systems.privrec._settings import PrivRecSettings

KEY = Key.from_seed(3)
SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 2, "cohort_size": 5, "local_epochs": 1, "learning_rate": 0.1}
FEW = {"n_rounds": 2, "cohort_size": 7, "length": 6, "server_learning_rate": 2.0, "contrastive_weight": 0.5}
PRIVATE = {"clip_norm": 0.01, "noise_multiplier": 2.0, "delta": 1e-5}
TARGET = {"clip_norm": 0.01, "target_epsilon": 1.5, "delta": 1e-5}
KINDS = ("published", "dp", "public")


def people(seed=1, n_users=40):
    return generate_sequences(n_users, 60, key=Key.from_seed(seed), n_topics=3, length=14)


def model_of(kind, options=FEW, **parameters):
    private = PRIVATE if kind == "dp" and "target_epsilon" not in parameters else {}
    return PrivRec(**(SMALL | {"stage1": kind, "stage1_options": options} | private | parameters))


def fit(kind, data=None, parameters=None, key=KEY, options=FEW, **run):
    public = {"public": people(seed=2, n_users=20)} if kind == "public" else {}
    data = people() if data is None else data
    return model_of(kind, options, **(parameters or {})).fit(data, key=key, **(public | run))


def rounds_of(model, key=KEY):
    """Return the rounds of a fitted model."""
    settings = PrivRecSettings.resolve(model.get_params(), 40, 20)
    return model._system(settings, key, 1)


def without_joint_loss(options=FEW):
    return {name: value for name, value in options.items() if name != "contrastive_weight"}


# ---- oracle ----------------------------------------------------------------------------------------------------------


def client_updates(system, data, state, number):
    """Return each client's update, computed one call at a time."""
    joint = system.network
    for row in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
        events = Events.from_interactions(data)
        examples = draw_examples(data, events, [row], 4, key=KEY, purpose="privrec.negatives", round=number)
        masked = draw_contrastive_examples(data, [row], length=6, key=KEY, purpose="privrec.masks", round=number)
        yield joint.train_clients(
            state.parameters, examples, masked, contrastive_weight=0.5, learning_rate=0.1, n_epochs=1, key=KEY,
            purpose="privrec.order", round=number,
        ).total()  # fmt: skip


def test_rounds_equal_the_twin_and_start_from_the_result_of_stage_one():
    data, seen = people(), []

    def keep(system, state, update, apply=JointRounds.apply):
        seen.append(state.parameters)
        return apply(system, state, update)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JointRounds, "apply", keep)
        model = fit("published", parameters={"server_optimizer": "sgd"})
    system = rounds_of(model)
    state = system.state_of(seen[0], 0)
    for number in range(2):
        expected = naive.server_step(
            state.parameters, client_updates(system, data, state, number), cohort_size=5, server_learning_rate=1.0
        )
        state = system.apply(state, system.local_round(state, data, KEY, number))
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(model.parameters_, system.network.network_part(state.parameters))
    # The first round starts from the network of a run without the joint loss, and from stage one's encoder.
    plain, encoders = [], []
    from fastfedrec.systems.privrec import model as privrec

    learn = privrec.learn_items
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privrec, "learn_items", lambda *args: encoders.append(learn(*args)) or encoders[-1])
        patch.setattr(privrec.PrivRecRounds, "apply", lambda _, state, update: plain.append(state.parameters) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("published", options=without_joint_loss())
    np.testing.assert_array_equal(system.network.network_part(seen[0]), plain[0])
    at, end = system.network.network.n_dense, system.network.n_dense
    np.testing.assert_array_equal(seen[0][at:end], encoders[0][: end - at])
    assert np.abs(state.parameters - seen[0])[at:end].max() > 1e-4


def test_without_weight_the_model_is_unchanged():
    plain = fit("dp", options=without_joint_loss())
    zero = fit("dp", options=FEW | {"contrastive_weight": 0.0})
    np.testing.assert_array_equal(zero.parameters_, plain.parameters_)
    assert not np.array_equal(fit("dp").parameters_, plain.parameters_)


# ---- invariants: privacy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_one_users_joint_update_of_both_parts_is_within_the_bound(kind):
    data = people()
    system = rounds_of(fit("dp", parameters={"noise": kind}))
    noise, state = system.noise, system.initial_state()
    whole = system.local_round(state, data, KEY, 0).arrays["total"]
    order, radius = noise.clip_order, Fraction(0.01) / Fraction(noise.step)

    def length(steps):
        return sum(abs(int(step)) ** order for step in steps)

    at, end = system.network.network.n_dense, system.network.n_dense
    for user in state.cohort.tolist():
        other_users = data.select_users(np.flatnonzero(data.global_user_ids != user))
        moved = whole - system.local_round(state, other_users, KEY, 0).arrays["total"]
        assert 0 < length(moved) <= radius**order
        # The encoder's part is not zero.
        assert length(moved[at:end]) > 0
    unbounded = rounds_of(fit("published"))
    free = unbounded.local_round(unbounded.initial_state(), data, KEY, 0).arrays["total"]
    # Negative control: without clipping, the norm exceeds the bound.
    assert np.linalg.norm(free, order) > 5 * 0.01


def test_the_server_accepts_all_messages_of_clients_that_clip():
    engine = LocalEngine(2)
    with contextlib.suppress(NoAnswerError):
        model_of("dp").fit(people(), key=KEY, engine=engine)
    assert engine.rejections == []


def test_noise_is_in_every_parameter_of_both_parts():
    system = rounds_of(fit("dp"))
    state = system.initial_state()
    moved = system.apply(state, system.zero_update(state, 0)).parameters != state.parameters
    assert len(moved) == system.network.n_parameters
    assert moved.mean() > 0.99
    at, end = system.network.network.n_dense, system.network.n_dense
    assert moved[at:end].mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_is_that_of_the_rounds_without_it(kind):
    """Check that one clipped update has one noise; only the larger number of parameters costs more table distance."""
    parameters = TARGET if kind != "published" else {}
    model = fit(kind, parameters=parameters)
    plain = fit(kind, parameters=parameters, options=without_joint_loss())
    described = [
        [(type(event), n, getattr(event, "noise_multiplier", None)) for event, n in m.ledger_.events.items()]
        for m in (model, plain)
    ]
    assert described[0] == described[1]
    assert model.ledger_.notes == plain.ledger_.notes
    if kind == "published":
        assert Unprotected("the exact mean of the clients' updates of stage one") in model.ledger_.events
        assert model.ledger_.epsilon("public") == np.inf
        return
    assert 1.49 < plain.ledger_.epsilon("public") <= model.ledger_.epsilon("public") <= 1.5
    if kind == "dp":
        model = fit(kind, parameters=TARGET | {"stage1_share": 0.2})
        assert 1.49 < model.ledger_.epsilon("public") <= 1.5


def test_traffic_is_counted():
    model, plain = fit("public"), fit("public", options=without_joint_loss())
    last, before = (m.communication_.rounds[-1] for m in (model, plain))
    # These are the encoder's dense weights.
    assert last.upload - before.upload == 4 * 7 * 16 * 17
    assert model.parameters_.shape == plain.parameters_.shape


# ---- invariants: runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shards_and_threads_do_not_change_the_model(kind):
    assert_same_on_threads_and_shards(functools.partial(fit, kind), private=kind == "dp")


def test_a_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    with power_cut(JointRounds, 1):
        fit("dp", checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        fit("dp", key=None, checkpoint=tmp_path, options=FEW | {"contrastive_weight": 0.6})
    resumed, whole = fit("dp", key=None, checkpoint=tmp_path), fit("dp")
    np.testing.assert_array_equal(resumed.parameters_, whole.parameters_)
    assert resumed.ledger_.to_dict() == whole.ledger_.to_dict()


def test_fine_tuning_saving_and_the_popular_start(tmp_path):
    popular = TARGET | {"popularity_epsilon": 0.5}
    model = fit("dp", parameters=popular)
    # Popularity's share is included in the total, not added to it.
    assert 1.4 < model.ledger_.epsilon("public") <= 1.5
    loaded, _ = saved_and_fine_tuned(model, people().select_users([7, 1]), tmp_path / "model")
    assert loaded.stage1_options == FEW


def test_users_without_a_sequence_train_only_the_network():
    data = Interactions.from_arrays([0, 1, 2], [0, 1, 2], timestamps=[1, 2, 3])
    model = PrivRec(**(SMALL | {"cohort_size": "all"}), stage1="published", stage1_options={"contrastive_weight": 9.0})
    plain = PrivRec(**(SMALL | {"cohort_size": "all"}), stage1="published")
    np.testing.assert_allclose(model.fit(data, key=KEY).parameters_, plain.fit(data, key=KEY).parameters_, atol=1e-7)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_users_need_ordered_interactions():
    with pytest.raises(ValueError, match="interactions must have timestamps"):
        fit("public", data=people()._replace(timestamps=None))
    log = InteractionLog.from_arrays([0, 0, 1, 1], [0, 1, 0, 1])
    with pytest.raises(ValueError, match="contrastive_weight learns from each user's items in order"):
        fit("public", data=log)
    fit("public", data=people()._replace(timestamps=None), options=without_joint_loss())
