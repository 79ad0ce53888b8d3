"""PrivRec's first stage: rounds against a twin, what each kind costs, refusals, resumption, and learning from order."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from naive.systems.privrec import model as naive
from scipy.stats import binomtest
from support.noise_case import relations
from support.significance import ALPHA

from fastfedrec import DivergenceError, Interactions, Key, PrivRec, datasets, load
from fastfedrec.accounting import CentralRelease, Gaussian, Unprotected
from fastfedrec.compute.networks.gru import GRUEncoder
from fastfedrec.compute.networks.sequences import draw_contrastive_examples
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets import generate_sequences
from fastfedrec.engines import LocalEngine
from fastfedrec.rounds.receiver import RoundReceiver
from fastfedrec.systems.privrec.grid_noise import GridNoise
from fastfedrec.systems.privrec.rounds import PrivRecRounds
from fastfedrec.systems.privrec.stage1 import OPTIONS, PretrainingRounds, Stage1Settings, resolve_options

REAL = Path(__file__).resolve().parents[4] / "shared/data"
KEY = Key.from_seed(3)
SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 2, "cohort_size": 5, "local_epochs": 1, "learning_rate": 0.1}
FEW = {"n_rounds": 3, "cohort_size": 7, "length": 6, "server_learning_rate": 2.0}
TARGET = {"clip_norm": 0.01, "target_epsilon": 1.5, "delta": 1e-5}
PRIVATE = {"clip_norm": 0.01, "noise_multiplier": 2.0, "delta": 1e-5}
BUDGET = TARGET | {"noise_multiplier": None}
KINDS = ("published", "dp", "public")
NUMBERS = OPTIONS | FEW | {"noise_multiplier": None}


def people(seed=1, n_users=40):
    return generate_sequences(n_users, 60, key=Key.from_seed(seed), n_topics=3, length=14)


def model_of(kind, **parameters):
    return PrivRec(**(SMALL | {"stage1": kind, "stage1_options": FEW} | (PRIVATE if kind == "dp" else {}) | parameters))


def fit(kind, data=None, key=KEY, parameters=None, **options):
    public = {"public": people(seed=2, n_users=20)} if kind == "public" else {}
    data = people() if data is None else data
    return model_of(kind, **(parameters or {})).fit(data, key=key, **(public | options))


def rounds(data, *, noise=None, clip_norm=None, checkpoint=None, **changes):
    settings = Stage1Settings(**(NUMBERS | {"clip_norm": clip_norm} | changes))
    encoder = GRUEncoder(data.n_items, n_factors=16)
    return PretrainingRounds(encoder, data.global_user_ids, settings, noise, KEY, 1, checkpoint)


def dense_updates(system, data, state, number):
    """Every client's own update, before any clipping, one a call."""
    for row in np.flatnonzero(np.isin(data.global_user_ids, state.cohort)):
        examples = draw_contrastive_examples(
            data, [row], length=6, key=KEY, purpose="privrec.stage1.masks", round=number
        )
        yield system.network.train_clients(
            state.parameters, examples, learning_rate=OPTIONS["learning_rate"], n_epochs=OPTIONS["local_epochs"],
            key=KEY, purpose="privrec.stage1.order", round=number,
        ).total()  # fmt: skip


def item_rows(model):
    """The network's embeddings of the items' ids."""
    table = model.parameters_[model._network.n_dense :].reshape(-1, model.n_factors)
    first = model.features_.user.n_values + model.features_.context.n_values
    return table[first : first + model.interactions_.n_items]


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
    found = system.apply(state, system.local_round(state, data, KEY, 0)).parameters
    # Seven clients, each cut toward zero by less than a step, times the server's rate.
    np.testing.assert_allclose(found, expected, atol=16 * noise.step, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_starts_from_what_was_learnt(kind):
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
    public = people(seed=2).select_items(np.arange(60)[::-2])  # every other item, in another order
    parameters = {"n_rounds": 0, "popularity_epsilon": 1e6}
    model = fit("public", parameters=parameters, public=public)
    plain = fit("none", parameters=parameters)
    changed = (item_rows(model)[:, 1:] != item_rows(plain)[:, 1:]).any(axis=1)
    assert data.item_ids[changed].tolist() == sorted(public.item_ids.tolist())
    assert changed.sum() == 30


# ---- invariants: privacy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_one_user_moves_the_sum_by_no_more_than_the_bound(kind):
    """Leaving a user of the cohort out, or giving it another's data."""
    data = people()
    noise = GridNoise.calibrated(kind, 0.01, 1.0)
    system = rounds(data, noise=noise, clip_norm=0.01)
    state = system.initial_state()
    whole = system.local_round(state, data, KEY, 0).arrays["total"]
    order, radius = noise.clip_order, Fraction(0.01) / Fraction(noise.step)

    def length(steps):
        return sum(abs(int(step)) ** order for step in steps)

    for user in state.cohort.tolist():
        others = data.select_users(np.flatnonzero(data.global_user_ids != user))
        moved = whole - system.local_round(state, others, KEY, 0).arrays["total"]
        assert 0 < length(moved) <= radius**order
        foreign = people(seed=4).select_users([user])
        replaced = whole - moved + system.local_round(state, foreign, KEY, 0).arrays["total"]
        assert 0 < length(whole - replaced) <= (2 * radius) ** order
    unbounded = rounds(data).local_round(state, data, KEY, 0).arrays["total"]
    assert np.linalg.norm(unbounded, order) > 7 * 0.01  # the bound is what holds it: negative control


def test_noise_reaches_items_that_nobody_has():
    data = people()
    system = rounds(data, noise=GridNoise.calibrated("gaussian", 0.01, 1.0), clip_norm=0.01, cohort_size=1, negatives=1)
    state = system.initial_state()
    update = system.local_round(state, data, KEY, 0)
    untouched = update.arrays["total"] == 0
    assert untouched.mean() > 0.01
    assert (system.apply(state, update).parameters != state.parameters)[untouched].mean() > 0.99


def test_the_stages_draw_cohorts_of_their_own():
    system, sequences = rounds(people()), people()
    ours = [set(system.state_of(np.zeros(0), number).cohort.tolist()) for number in range(20)]
    network = fit("none")
    later = network._system(replace(_settings(network), cohort_size=7), KEY, 1, None)
    theirs = [set(later.state_of(np.zeros(0), number).cohort.tolist()) for number in range(20)]
    assert len(sequences.global_user_ids) == 40
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) == 0


def test_no_round_of_either_stage_has_noise_in_common():
    """Stage one counts its rounds from 0 as stage two does, under the same key."""
    noise = GridNoise.calibrated("gaussian", 0.01, 1.0)
    network = fit("none")
    settings = replace(_settings(network), cohort_size=7, clip_norm=0.01, noise_multiplier=1.0)
    series = {}
    for stage, system in (("one", rounds(people(), noise=noise, clip_norm=0.01)),
                          ("two", network._system(settings, KEY, 1, None))):  # fmt: skip
        state = system.initial_state()
        for number in range(2):
            moved = system.apply(state, system.zero_update(state, number)).parameters
            series[stage, number] = [moved.astype(np.float64) - state.parameters]
    assert list(relations(series)) == []


def _settings(model):
    from fastfedrec.systems.privrec._settings import PrivRecSettings

    return PrivRecSettings.resolve(model.get_params(), 40)


def test_the_ledger_of_a_run_without_stage_one_has_nothing_of_it():
    ledger = fit("none", parameters=PRIVATE).ledger_
    assert [event.mechanism for event in ledger.events] == ["rounded Gaussian on the sum of clipped updates"]
    assert not any("stage one" in note for note in ledger.notes)


@pytest.mark.parametrize("private", [False, True])
def test_the_ledger_of_the_published_stage_promises_nothing(private):
    model = fit("published", parameters=PRIVATE if private else {})
    first, second = model.ledger_.events
    assert first == Unprotected("the exact mean of the clients' updates of stage one")
    assert model.ledger_.events[first] == 3
    assert type(second) is (Gaussian if private else Unprotected)
    assert model.ledger_.epsilon("public") == np.inf
    assert "trains on the users' own sequences without noise" in model.ledger_.summary()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_ledger_of_a_private_stage_is_within_the_target(noise):
    model = fit("dp", parameters=BUDGET | {"noise": noise})
    first, second = model.ledger_.events
    assert "updates of stage one" in first.mechanism
    assert (first.n_users, first.cohort_size, model.ledger_.events[first]) == (40, 7, 3)
    assert (second.n_users, second.cohort_size, model.ledger_.events[second]) == (40, 5, 2)
    assert 1.49 < model.ledger_.epsilon("public") <= 1.5  # composed: two halves added up would leave some of it
    assert model.ledger_.epsilon("server") == np.inf
    alone = fit("none", parameters=TARGET | {"noise": noise})
    assert model.noise_multiplier_ > alone.noise_multiplier_


def test_the_share_of_stage_one_is_spent_there():
    spent = []
    for share in (0.2, 0.7):
        model = fit("dp", parameters=BUDGET | {"stage1_share": share})
        first, _ = model.ledger_.events
        spent.append(type(model.ledger_)(1e-5))
        for _ in range(3):
            spent[-1].record(first)
        assert 0.99 * share * 1.5 < spent[-1].epsilon("public") <= share * 1.5
        assert 1.49 < model.ledger_.epsilon("public") <= 1.5


def test_a_private_stage_without_rounds_takes_all_that_popularity_leaves():
    model = fit("dp", parameters=BUDGET | {"n_rounds": 0, "popularity_epsilon": 0.5})
    assert [type(event) for event in model.ledger_.events] == [Gaussian, CentralRelease]
    assert model.noise_multiplier_ is None
    assert 1.45 < model.ledger_.epsilon("public") <= 1.5


def test_a_given_noise_multiplier_is_that_of_both_stages():
    model = fit("dp")
    assert [event.noise_multiplier for event in model.ledger_.events] == pytest.approx([2.0, 2.0])
    wider = fit("dp", parameters={"stage1_options": FEW | {"clip_norm": 0.02}})  # more noise to the same multiplier
    assert [event.noise_multiplier for event in wider.ledger_.events] == pytest.approx([2.0, 2.0])
    assert not np.array_equal(wider.parameters_, model.parameters_)


def test_public_sequences_cost_nothing_and_the_ledger_says_on_what_that_rests():
    model = fit("public", parameters=PRIVATE)
    plain = fit("none", parameters=PRIVATE)
    assert model.ledger_.events == plain.ledger_.events
    assert model.communication_.to_dict() == plain.communication_.to_dict()
    (note,) = [note for note in model.ledger_.notes if "stage one" in note]
    assert "public sequences of 20 people" in note
    assert "none of them is a user here" in note
    assert not np.array_equal(item_rows(model), item_rows(plain))


def test_what_stage_one_moves():
    model = fit("dp")
    first, *_, last = model.communication_.rounds
    assert (first.upload, first.n_clients) == (4 * GRUEncoder(60, n_factors=16).n_parameters, 7)
    assert len(model.communication_.rounds) == 5
    assert last.n_clients == 5


# ---- invariants: runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shards_and_threads_change_nothing(kind):
    one = fit(kind, n_threads=1)
    four = fit(kind, n_threads=4)
    np.testing.assert_array_equal(one.parameters_, four.parameters_)
    sharded = fit(kind, engine=LocalEngine(4))
    if kind == "dp":  # sums of whole numbers
        np.testing.assert_array_equal(one.parameters_, sharded.parameters_)
    np.testing.assert_allclose(one.parameters_, sharded.parameters_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("broken", [PretrainingRounds, PrivRecRounds])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, monkeypatch, key, broken):
    apply, released = broken.apply, []

    def power_cut(self, state, update):
        moved = apply(self, state, update)
        released.append(moved.parameters)
        if update.round == 1:
            raise RuntimeError("power cut")
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(broken, "apply", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            fit("dp", key=key, checkpoint=tmp_path)
    # The open round is the recorded one: nobody is asked again.
    asked, again = [], []
    train = PretrainingRounds._client_data
    monkeypatch.setattr(PretrainingRounds, "_client_data", lambda *args: asked.append(1) or train(*args))
    monkeypatch.setattr(broken, "apply", lambda *args: again.append(apply(*args)) or again[-1])
    resumed = fit("dp", key=None, checkpoint=tmp_path)
    assert len(asked) == (1 if broken is PretrainingRounds else 0)
    np.testing.assert_array_equal(again[0].parameters, released[1])
    assert sum(resumed.ledger_.events.values()) == len(resumed.communication_.rounds) == 5
    if key is not None:
        whole = fit("dp", key=key)
        np.testing.assert_array_equal(resumed.parameters_, whole.parameters_)
        assert resumed.ledger_.to_dict() == whole.ledger_.to_dict()
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        fit("dp", data=people(seed=5), key=None, checkpoint=tmp_path)


def test_the_order_belongs_to_the_run(tmp_path, monkeypatch):
    """The same items at other times are other data, and a run that broke at its start is not resumed on them."""
    data = people()
    with monkeypatch.context() as patch:
        patch.setattr(PretrainingRounds, "apply", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("dp", data=data, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="holds a run on other data"):
        fit("dp", data=data._replace(timestamps=data.timestamps[::-1].copy()), checkpoint=tmp_path)
    assert (tmp_path / "stage1").stat().st_mode & 0o777 == 0o700


def test_fine_tuning_and_saving(tmp_path):
    model = fit("dp")
    model.save(tmp_path / "model", include_users=False)
    again = load(tmp_path / "model")
    assert again.stage1_options == FEW
    new = people().select_users([7, 1])
    found = [m.personalize(new, key=KEY).score_items(new.user_ids) for m in (model, again)]
    np.testing.assert_array_equal(*found)
    assert not np.array_equal(found[0], model.score_items(new.user_ids))
    json.dumps(again.ledger_.to_dict(), allow_nan=False)


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
    system = rounds(data, **noise)
    state = system.initial_state()
    honest = system.local_round(state, data, KEY, 0)
    total = honest.arrays["total"]
    broken = total.astype(np.float64)
    broken[0] = np.nan
    server = RoundReceiver(system, state, 0, {"shard-0": 40})
    for bad in (total[:-1], broken, total.astype(np.float32), np.full_like(total, 10**9) if private else broken):
        assert not server.receive(replace(honest, arrays={"total": bad}))
    assert server.receive(honest)
    np.testing.assert_array_equal(server.close().arrays["total"], total)


def test_users_without_a_sequence_send_zeros():
    data = Interactions.from_arrays([0, 1, 1, 1, 2], [0, 0, 1, 2, 1], [5, 5, 5, 1, 1], timestamps=range(5))
    model = PrivRec(
        **(SMALL | {"cohort_size": "all"}),
        threshold=3.0,
        stage1="published",
        stage1_options={"server_learning_rate": 1.0},
    )
    # With positives alone, only user 1 has an order.
    with_low = model.fit(data, key=KEY).parameters_
    other_order = data._replace(timestamps=np.array([9, 0, 1, 7, 3]))
    np.testing.assert_array_equal(model.fit(other_order, key=KEY).parameters_, with_low)
    turned = data._replace(timestamps=np.array([0, 2, 1, 3, 4]))
    assert not np.array_equal(model.fit(turned, key=KEY).parameters_, with_low)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"stage1": "some"}, ValueError, "stage1 must be one of 'none', 'public', 'dp', 'published'"),
        ({"stage1": "dp"}, ValueError, "stage1='dp' needs noise: give target_epsilon or noise_multiplier"),
        ({"stage1_share": 1.0}, ValueError, "stage1_share must be"),
        ({"stage1_options": 3}, TypeError, "stage1_options must be Mapping"),
        ({"stage1_options": {"rounds": 3}}, ValueError, r"stage1_options may have .*, got \['rounds'\]"),
        ({"stage1_options": {"length": 1}}, ValueError, r"stage1_options\['length'\] must be at least 2"),
        ({"stage1_options": {"learning_rate": 0}}, ValueError, r"stage1_options\['learning_rate'\] must be greater"),
        ({"stage1_options": {"clip_norm": 0}}, ValueError, r"stage1_options\['clip_norm'\] must be"),
        (
            {"n_rounds": 0, "popularity_epsilon": 1.0, "clip_norm": 1.0, "target_epsilon": 2.0, "stage1": "public"},
            ValueError,
            "n_rounds may be 0 only with popularity_epsilon alone, or beside stage1='dp'",
        ),
    ],
)
def test_bad_parameters(arguments, error, message):
    with pytest.raises(error, match=message):
        PrivRec(**arguments)


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
        ("none", "interactions must have timestamps: without them a user's items are a set, not a sequence"),
        ("some", "interactions must have all timestamps, 1 of 560 are missing: no order is known"),
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
    key.claim("another fit")  # it was not used up


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_in_a_private_run_an_item_without_a_time_is_the_earliest(weight):
    stage1 = FEW | {"cohort_size": 40, "contrastive_weight": weight}
    data = without_times("some")
    first, missing = data.timestamps[: data.indptr[1]], data.timestamps == MISSING_TIMESTAMP
    told = [data._replace(timestamps=np.where(missing, time, data.timestamps)) for time in (-9, first.max() + 1)]
    models = [model_of("dp", cohort_size=40, stage1_options=stage1).fit(some, key=KEY) for some in (data, *told)]
    assert models[0].ledger_.to_dict() == models[1].ledger_.to_dict()
    np.testing.assert_array_equal(models[0].parameters_, models[1].parameters_)
    assert not np.array_equal(models[0].parameters_, models[2].parameters_)  # the order does count


@pytest.mark.parametrize(
    ("kind", "public", "message"),
    [
        ("public", None, "public must be given with stage1='public'"),
        ("public", 3, "public must be Interactions, got int"),
        ("public", people(), "public must be other people's sequences, got the users' own"),
        ("public", people(seed=2)._replace(timestamps=None), "public must have timestamps"),
        ("public", people(seed=2)._replace(item_ids=np.arange(100, 160)), "public must have items of the data"),
        ("dp", people(seed=2), "public is for stage1='public', and stage1 is 'dp'"),
        ("none", people(seed=2), "public is for stage1='public', and stage1 is 'none'"),
    ],
)
def test_bad_public_data(kind, public, message):
    with pytest.raises((TypeError, ValueError), match=message):
        model_of(kind).fit(people(), key=KEY, public=public)


def test_a_cohort_beyond_the_users():
    with pytest.raises(ValueError, match=r"stage1_options\['cohort_size'\] must be at most the number of users \(40\)"):
        fit("published", parameters={"stage1_options": {"cohort_size": 41}})
    parameters = PrivRec().get_params() | {"stage1_options": None}
    assert resolve_options(parameters, 40)["cohort_size"] == 40  # its own is cut down


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
    """Whether the true item, and the true segment, has the highest score of five; a tie counts as wrong."""
    examples = draw_contrastive_examples(data, np.arange(data.n_users), length=10, key=KEY, purpose="test")
    each = 7
    codes = encoder.encode_sequences(parameters, examples.items, examples.starts).reshape(-1, each, encoder.n_factors)
    items = encoder.encode_items(parameters)[examples.candidates]
    for code, candidates in ((codes[:, 0], items), (codes[:, 1], codes[:, 2:])):
        scores = np.einsum("nw,nkw->nk", code, candidates)
        yield scores[:, 0] > scores[:, 1:].max(axis=1)


@pytest.mark.nightly
@pytest.mark.parametrize("ordered", [True, False])
def test_the_encoder_learns_from_order_and_from_nothing_else(ordered):
    """Among equally popular items, with users all alike, only order tells; shuffled, both tasks stay at chance.

    Chance is a quarter: of the five candidates one stands in the sequence, in place of the true one, and so is wrong.
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
