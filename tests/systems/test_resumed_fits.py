"""Fits with a checkpoint: interrupted at each kind of moment, and resumed with the same bits and each cost once."""

import itertools
import json

import numpy as np
import pytest
from support.data import rated
from support.interruptions import StopHereError
from support.models import MODELS, SECURE, WITH_ROUNDS, held, new

from fastfedrec import DPFMF, FMFLDP, FedRec, Key, Popularity, PrivateRecommender
from fastfedrec.accounting import Ledger
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.rounds.checkpoint import OtherRunError
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine
from fastfedrec.rounds.stored_fit import StoredFit

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)
#: Moments of a round, in order; each is an interruption before or after a step of the engine.
MOMENTS = ("charged", "answered", "recorded", "applied", "next phase")


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1, user_ids=[f"user {u}" for u in range(40)], item_ids=[f"item {i}" for i in range(50)])


class Stop:
    """Raise at one moment of the first round that a fit does not take from its checkpoint."""

    def __init__(self, monkeypatch):
        self.at("no moment")
        steps = (
            (StoredFit, "charge", None, "charged"),
            (Engine, "_settle", "answered", None),
            (StoredFit, "keep_round", None, "recorded"),
            (Engine, "_log_round", "applied", None),
            (StoredFit, "next_phase", "next phase", None),
        )
        for owner, name, before, after in steps:
            monkeypatch.setattr(owner, name, self.around(getattr(owner, name), before, after))

    def around(self, step, before, after):
        def stopping(*arguments, **options):
            self.is_new |= after == "charged"
            if self.is_new and self.moment == before:
                raise StopHereError
            step(*arguments, **options)
            if self.is_new and self.moment == after:
                raise StopHereError

        return stopping

    def at(self, moment):
        self.moment, self.is_new = moment, False


def content(model):
    """Return arrays, ledger and traffic of a fitted model."""
    model, fitted = held(model), model
    arrays = {name: np.asarray(getattr(model, name)) for name in type(model)._saved}
    traffic = fitted.communication_.rounds
    return arrays, fitted.ledger_.to_dict(), traffic


def assert_same(model, other):
    (arrays, *rest), (other_arrays, *other_rest) = content(model), content(other)
    assert rest == other_rest
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], err_msg=name)


def fit_until(moment, model, data, folder, stop):
    """Return the fitted model, or the ledger of a fit that stopped."""
    stop.at(moment)
    try:
        return new(model).fit(data, key=KEY, n_threads=1, checkpoint=folder), None
    except StopHereError as error:
        return None, error.ledger


def assert_resumed(model, data, folder, stop):
    stop.at("no moment")
    whole, n_stops = new(model).fit(data, key=KEY, n_threads=1), 0
    for moment in itertools.cycle(MOMENTS):
        resumed, spent = fit_until(moment, model, data, folder, stop)
        # A run of one phase has no moment between phases.
        if resumed is not None and moment != "next phase":
            break
        if spent is not None:
            n_stops += 1
            # No cost is lost and none is charged twice, at any moment.
            assert spent.events == Ledger.from_json((folder / "ledger.json").read_text()).events
            assert not spent.events - whole.ledger_.events
    assert n_stops >= 3  # a run of one round is complete once the round is recorded
    assert_same(resumed, whole)
    # The run is complete, so no round is made again.
    refitted, _ = fit_until("charged", model, data, folder, stop)
    assert_same(refitted, whole)


FIRST = {name: model for name, model in WITH_ROUNDS.items() if "," not in name}


@pytest.mark.parametrize("model", FIRST.values(), ids=FIRST)
def test_a_fit_that_stops_at_each_moment_ends_with_the_same_bits(model, data, tmp_path, monkeypatch):
    assert_resumed(model, data, tmp_path, Stop(monkeypatch))


OTHERS = {name: model for name, model in WITH_ROUNDS.items() if "," in name} | SECURE


@pytest.mark.slow
@pytest.mark.parametrize("model", OTHERS.values(), ids=OTHERS)
def test_other_settings_end_with_the_same_bits(model, data, tmp_path, monkeypatch):
    assert_resumed(model, data, tmp_path, Stop(monkeypatch))


def test_every_fit_on_an_engine_takes_a_checkpoint(tmp_path):
    """Check that the parameter exists exactly where there are rounds, and that a model without rounds explains it."""
    assert len(FIRST) > 10
    with pytest.raises(TypeError, match=r"fit\(\) has no parameter 'checkpoint'"):
        Popularity().fit(rated(40, 50, 1), checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for model in MODELS.values():
        assert ("checkpoint : path-like" in type(model).fit.__doc__) == ("engine :" in type(model).fit.__doc__)


# ---- draws and messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, None], ids=["seed", "entropy"])
def test_a_recorded_round_is_released_again_and_asks_no_client(data, tmp_path, monkeypatch, key):
    """Check that the resumed fit adds the same noise to the recorded sum, and that no client sends it again."""
    system = type(DPFMF(8.0)._plan(data, KEY)[0].system)
    apply, local_round = system.apply, system.local_round
    released, asked = [], []
    monkeypatch.setattr(system, "apply", lambda *arguments: released.append(apply(*arguments)) or released[-1])
    monkeypatch.setattr(system, "local_round", lambda *a, **o: asked.append(a[4]) or local_round(*a, **o))
    stop = Stop(monkeypatch)
    stop.at("applied")
    with pytest.raises(StopHereError):
        DPFMF(8.0, n_factors=3, n_rounds=2).fit(data, key=key, checkpoint=tmp_path)
    stop.at("no moment")
    DPFMF(8.0, n_factors=3, n_rounds=2).fit(data, checkpoint=tmp_path)
    assert asked == [0, 1]
    first, repeated, _ = (state.item_factors for state in released)
    np.testing.assert_array_equal(first, repeated)


def test_a_diverged_run_is_resumed_from_the_same_round(data, tmp_path, monkeypatch):
    """Check that the devices of the last two rounds are stored: after divergence the model has the earlier ones."""
    model = FedRec(n_factors=3, n_rounds=30, learning_rate=400.0)
    with pytest.warns(RuntimeWarning, match="diverged"):
        whole = new(model).fit(data, key=KEY)
    assert 0 < whole.n_rounds_ < 30
    with pytest.warns(RuntimeWarning, match="diverged"):
        stored = new(model).fit(data, key=KEY, checkpoint=tmp_path)
    with pytest.warns(RuntimeWarning, match="diverged"):
        resumed = new(model).fit(data, checkpoint=tmp_path)
    assert whole.n_rounds_ == stored.n_rounds_ == resumed.n_rounds_
    assert_same(stored, whole)
    assert_same(resumed, whole)


# ---- folders of other runs -------------------------------------------------------------------------------------------


@pytest.fixture
def stored(data, tmp_path):
    new(MODELS["PrivatePrototypes"]).fit(data, entities=np.arange(40) % 2, key=KEY, checkpoint=tmp_path / "entities")
    FMFLDP(n_rounds=2).fit(data, key=KEY, checkpoint=tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"data": rated(40, 50, 2)}, "rows"),
        ({"model": FMFLDP(n_rounds=3)}, "parameter n_rounds"),
        ({"model": DPFMF(8.0, n_factors=3)}, "system"),
        ({"engine": LocalEngine(2)}, "shards"),
    ],
)
def test_a_folder_serves_no_other_run(stored, data, changes, part):
    model, given = changes.get("model", FMFLDP(n_rounds=2)), changes.get("data", data)
    files = {path.name: path.read_bytes() for path in (stored / "run").iterdir() if path.name != "lock"}
    with pytest.raises(ValueError, match=f"made with other .*{part}") as caught:
        model.fit(given, checkpoint=stored / "run", engine=changes.get("engine"))
    assert caught.type is OtherRunError
    assert {path.name: path.read_bytes() for path in (stored / "run").iterdir() if path.name != "lock"} == files


def test_other_arguments_of_fit_are_other_runs(stored, data):
    model = new(MODELS["PrivatePrototypes"])
    halves = np.arange(40) % 2
    for arguments in ({}, {"entities": np.arange(40) % 3}, {"entities": halves, "users": np.arange(40) // 2}):
        with pytest.raises(OtherRunError, match=r"made with other .*(entities|owners)"):
            model.fit(data, checkpoint=stored / "entities", **arguments)
    model.fit(data, entities=halves.tolist(), checkpoint=stored / "entities")


def test_another_key_is_refused(stored, data):
    with pytest.raises(ValueError, match=r"key must be None: the run in .* has its own; pass checkpoint= another"):
        FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(9), checkpoint=stored / "run")


@pytest.mark.parametrize("change", [lambda text: text[:100], lambda text: text.replace('"times": 2', '"times": 1')])
def test_a_changed_ledger_is_named(stored, data, change):
    path = stored / "run" / "ledger.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(DamagedFileError, match=r"ledger.json' is damaged: .*; put the folder back"):
        FMFLDP(n_rounds=2).fit(data, checkpoint=stored / "run")


def test_devices_of_other_users_are_named(data, tmp_path, monkeypatch):
    FedRec(n_factors=3, n_rounds=2).fit(data, key=KEY, checkpoint=tmp_path)
    (tmp_path / "devices-0-1").write_bytes((tmp_path / "devices-0-1").read_bytes()[:-20])
    with pytest.raises(DamagedFileError, match="devices-0-1' is damaged"):
        FedRec(n_factors=3, n_rounds=2).fit(data, checkpoint=tmp_path)


def test_data_of_each_round_are_not_stored(data, tmp_path):
    with pytest.raises(ValueError, match=r"diagnostics must be omitted with a checkpoint, got True: .*; fit without"):
        FMFLDP().fit(data, diagnostics=True, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=r"record_views must be omitted with a checkpoint, got \[1\]"):
        FedRec().fit(data, record_views=[1], checkpoint=tmp_path / "run")


def test_a_recommender_names_a_system_without_rounds(data, tmp_path):
    with pytest.raises(ValueError, match=r"checkpoint must be None: "):
        PrivateRecommender(1e-3, trust="local").fit(data, key=KEY, checkpoint=tmp_path / "run")
    assert not (tmp_path / "run" / "key.json").exists()


# ---- costs of earlier fits -------------------------------------------------------------------------------------------


def test_costs_before_the_run_stay_with_a_run_that_another_process_resumes(data, tmp_path, monkeypatch):
    """Check that a fit without a checkpoint that failed before the run is in the ledger of the resumed run."""
    model, stop = FMFLDP(n_rounds=2), Stop(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_settle", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as failed:
            model.fit(data, key=KEY)
    stop.at("recorded")
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, checkpoint=tmp_path)
    stop.at("no moment")
    whole = new(model).fit(data, key=KEY).ledger_
    there = new(model).fit(data, checkpoint=tmp_path)  # as in a new process
    here = model.fit(data, checkpoint=tmp_path)
    assert there.ledger_.events == here.ledger_.events == whole.events + failed.value.ledger.events
    assert there.ledger_.to_dict() == here.ledger_.to_dict()


def test_a_resumed_fit_that_fails_at_once_keeps_the_cost_of_the_run(data, tmp_path, monkeypatch):
    """Check a resumption that stops before its first round, in a process that knows no earlier fit."""
    stop = Stop(monkeypatch)
    _, spent = fit_until("applied", FMFLDP(n_rounds=3), data, tmp_path, stop)
    stop.at("no moment")
    model = FMFLDP(n_rounds=3)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "run", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError) as failed:
            model.fit(data, checkpoint=tmp_path)
    assert failed.value.ledger.events == spent.events
    # The resumed run has this cost once, and another fit has it in addition.
    assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1000  # 250 for each of 3 + 1 rounds


def test_the_ledger_of_an_abandoned_run_is_a_file(data, tmp_path, monkeypatch):
    stop = Stop(monkeypatch)
    stop.at("charged")
    with pytest.raises(StopHereError):
        FMFLDP(n_rounds=3).fit(data, key=KEY, checkpoint=tmp_path)
    document = json.loads((tmp_path / "ledger.json").read_text())
    # The round's messages may have left their users, so it counts.
    assert [event["times"] for event in document["events"]] == [1]
