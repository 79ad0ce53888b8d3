"""Costs of incomplete fits are recorded at every line of a fit, and counted once if a run is resumed."""

import copy
import shutil
import threading
from contextlib import suppress
from types import MappingProxyType

import numpy as np
import pytest
from support.data import rated
from support.interruptions import Dying, Interrupt, StopHereError
from support.models import MODELS, new

from fastfedrec import FMFLDP, Key, PrivRec
from fastfedrec.accounting import Ledger

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1, user_ids=[f"user {u}" for u in range(40)], item_ids=[f"item {i}" for i in range(50)])


# ---- every line of a fit ---------------------------------------------------------------------------------------------

#: Lines that run around a fit: an interruption at each of them keeps the cost.
AROUND = (
    "transactional.<locals>.whole", "_fit_and_finish", "_without_account", "_keep_what_was_spent", "Account.close",
    "Recommender._copied_parameters", "Recommender._finish",
)  # fmt: skip


def lines_around(fit):
    """Return the number of those lines that a fit runs, whether or not it completes."""
    with suppress(StopHereError), Interrupt(functions=AROUND) as lines:
        fit()
    return lines.n_lines


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_cost_is_recorded_at_every_line_after_the_first_release(model, data):
    """Check that after an interruption at any line, the next ledger has the recorded cost, if the fit had begun."""
    whole = new(model).fit(data, key=KEY).ledger_
    for line in range(1, lines_around(lambda: new(model).fit(data, key=KEY)) + 1):
        interrupted, ledger = new(model), Ledger(whole.delta)
        with pytest.raises(KeyboardInterrupt), Interrupt(line, AROUND):
            interrupted.fit(data, key=KEY, ledger=ledger)
        assert ledger.events in (whole.events, {})
        # The fit was complete, so its cost is in the model's ledger.
        if "interactions_" in vars(interrupted):
            assert interrupted.ledger_.events == whole.events
            continue
        next_ledger = interrupted.fit(data, key=KEY).ledger_
        assert next_ledger.events == whole.events + ledger.events
        assert next_ledger.is_simulation >= whole.is_simulation


@pytest.mark.parametrize("is_fitted", [False, True])
def test_a_second_interruption_loses_no_cost(data, is_fitted):
    def dying(line=None):
        model, engine = FMFLDP(n_rounds=2), Dying(1)
        if is_fitted:
            model.fit(data, key=KEY)
        with suppress(StopHereError, KeyboardInterrupt), Interrupt(line, AROUND) as lines:
            model.fit(data, key=KEY, engine=engine)
        return model, engine, lines.n_lines

    n_lines = dying()[2]
    assert n_lines > 30
    n_begun = 0
    for line in range(1, n_lines + 1):
        model, engine, _ = dying(line)
        n_begun += engine.left < 0
        assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 500 + 500 * (engine.left < 0)
    assert n_begun > 20


UNCOPIED = {
    "keys": lambda: {"a": 1, "b": 2}.keys(),
    "a mapping's view": lambda: MappingProxyType({"user": ["age"]}),
    "a generator": lambda: (name for name in ["age"]),
    "a lock": threading.Lock,
}


@pytest.mark.parametrize("kind", UNCOPIED)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_values_that_cannot_be_copied_are_refused_before_any_cost(model, data, kind, monkeypatch):
    name = next(iter(model.get_params()), None)
    if name is None:
        pytest.skip("it has no parameters")
    target, ledger = new(model), Ledger()
    value = UNCOPIED[kind]()
    parameters = model.get_params() | {name: value}
    monkeypatch.setattr(type(model), "get_params", lambda self: parameters)
    monkeypatch.setattr(type(model), "_unfitted", lambda self: copy.copy(self))
    with pytest.raises(TypeError, match=f"`{name}` must be a value that can be copied, got .*; pass a list"):
        target.fit(data, key=KEY, ledger=ledger)
    assert not ledger.events
    assert "_unfinished_" not in vars(target)


def test_features_that_cannot_be_copied_are_refused_before_counts_are_released(data):
    """Check the program on the page of faults: counts were released, and no ledger had their cost."""
    ages = {0: "a", 1: "b"}
    aged = data.with_features(user_features={"age": np.arange(40) % 2})
    settings = {"n_rounds": 0, "popularity_epsilon": 2.0, "n_factors": 16, "hidden": (16,)}
    for features in ({"user": {"age": ages.keys()}}, MappingProxyType({"user": ["age"]})):
        model, ledger = PrivRec(features=features, **settings), Ledger()
        with pytest.raises(TypeError, match="`features` must be a value that can be copied") as raised:
            model.fit(aged, key=KEY, ledger=ledger)
        assert not ledger.events
        assert not raised.value.ledger.events
        model.set_params(features={"user": ["age"]}).fit(aged, key=KEY)
        assert model.ledger_.epsilon("public") == 2.0


# ---- runs that are resumed ------------------------------------------------------------------------------------------


def test_a_run_that_is_resumed_is_charged_once(data, tmp_path):
    given = {
        "n_rounds": 3,
        "cohort_size": 4,
        "n_factors": 16,
        "hidden": (16,),
        "clip_norm": 0.1,
        "noise_multiplier": 1.0,
    }
    whole = PrivRec(**given).fit(data, key=KEY)

    def stop(_, number):
        if number == 1:
            raise StopHereError

    def failed(folder):
        model = PrivRec(**given)
        with pytest.raises(StopHereError) as raised:
            model.fit(data, key=KEY, checkpoint=tmp_path / folder, callback=stop)
        assert sum(raised.value.ledger.events.values()) == 2
        return model, raised.value.ledger.events

    model, _ = failed("resumed")
    model.fit(data, checkpoint=tmp_path / "resumed")
    np.testing.assert_array_equal(model.parameters_, whole.parameters_)
    assert model.ledger_.events == whole.ledger_.events
    assert model.fit(data, key=KEY).ledger_.events == whole.ledger_.events

    model, spent = failed("given up")
    assert model.fit(data, key=KEY).ledger_.events == whole.ledger_.events + spent
    model, spent = failed("another")
    model.fit(data, key=KEY, checkpoint=tmp_path / "a new one")
    assert model.ledger_.events == whole.ledger_.events + spent


PRIVREC = {"n_rounds": 4, "cohort_size": 4, "n_factors": 16, "hidden": (16,), "clip_norm": 0.1, "noise_multiplier": 1.0}
STAGED = {"stage1": "dp", "stage1_options": {"n_rounds": 1, "cohort_size": 4, "length": 3, "clip_norm": 0.1}}


def stopped(model, data, folder, n_rounds, key=KEY):
    """Fit until some rounds are done, and return their cost."""

    def stop(_, number):
        if number == n_rounds - 1:
            raise StopHereError

    with pytest.raises(StopHereError) as raised:
        model.fit(data, key=key, checkpoint=folder, callback=stop)
    return raised.value.ledger.events


@pytest.mark.parametrize("key", [KEY, None], ids=["seed", "entropy"])
def test_a_run_in_the_same_folder_is_another_run(data, tmp_path, key):
    """Check that a run in a new folder at the same path is another run: both costs are counted."""
    model, folder = PrivRec(**PRIVREC), tmp_path / "run"
    spent = stopped(model, data, folder, 3, key)
    shutil.rmtree(folder)
    stopped(PrivRec(**PRIVREC), data, folder, 2, key)
    model.fit(data, checkpoint=folder)
    assert sum(model.ledger_.events.values()) == 4 + 3
    assert model.ledger_.events == PrivRec(**PRIVREC).fit(data, key=KEY).ledger_.events + spent


@pytest.mark.parametrize("parameters", [{}, STAGED], ids=["", "with stage one"])
@pytest.mark.parametrize("how", ["moved", "link", "relative", "copied"])
def test_a_run_is_charged_once_wherever_its_folder_is(data, tmp_path, monkeypatch, how, parameters):
    data = data if not parameters else data._replace(timestamps=np.arange(data.n_interactions))
    model, folder, other = PrivRec(**PRIVREC, **parameters), tmp_path / "run", tmp_path / "other"
    stopped(model, data, folder, 3)
    if how == "moved":
        folder.rename(other)
    elif how == "link":
        other.symlink_to(folder)
    elif how == "copied":
        shutil.copytree(folder, other)
    else:
        monkeypatch.chdir(tmp_path)
        other = "run"
    model.fit(data, checkpoint=other)
    assert model.ledger_.events == PrivRec(**PRIVREC, **parameters).fit(data, key=KEY).ledger_.events


def test_only_the_resumed_run_replaces_its_cost(data, tmp_path):
    """Check two interrupted runs in two folders: if one is resumed, the other's cost remains in all ledgers."""
    model = PrivRec(**PRIVREC)
    first, second = (stopped(model, data, tmp_path / name, n) for name, n in (("first", 3), ("second", 2)))
    with pytest.raises(StopHereError) as raised:
        # This run has no checkpoint.
        model.fit(data, key=KEY, engine=Dying(1))
    whole = PrivRec(**PRIVREC).fit(data, key=KEY).ledger_.events
    model.fit(data, checkpoint=tmp_path / "second")
    assert model.ledger_.events == whole + first + raised.value.ledger.events
    model.fit(data, key=KEY)
    assert model.ledger_.events == whole + first + raised.value.ledger.events
    model.fit(data, checkpoint=tmp_path / "first")
    assert model.ledger_.events == whole + raised.value.ledger.events
    assert sum(second.values()) == 2


def test_a_run_resumed_from_an_older_copy_keeps_later_costs(data, tmp_path):
    """Check that a repeated round, which has the same bits, costs once, also if a copy was restored after it."""
    model, folder = PrivRec(**PRIVREC), tmp_path / "run"
    stopped(PrivRec(**PRIVREC), data, folder, 1)
    shutil.copytree(folder, tmp_path / "older")
    assert sum(stopped(model, data, folder, 3, None).values()) == 3
    assert sum(stopped(model, data, tmp_path / "older", 2, None).values()) == 3
    whole = PrivRec(**PRIVREC).fit(data, key=KEY).ledger_.events
    assert sum(model.fit(data, key=KEY).ledger_.events.values()) == sum(whole.values()) + 3
    model.fit(data, checkpoint=tmp_path / "older")
    assert model.ledger_.events == whole


def test_a_run_with_an_interrupted_resumption_keeps_its_cost(data, tmp_path):
    model = PrivRec(**PRIVREC)
    spent = stopped(model, data, tmp_path / "run", 2)
    whole, line = PrivRec(**PRIVREC).fit(data, key=KEY).ledger_.events, 0
    while True:
        line += 1
        shutil.copytree(tmp_path / "run", tmp_path / str(line))
        copied = copy.deepcopy(model)
        with (
            suppress(KeyboardInterrupt),
            Interrupt(line, ("Account.__init__", "Account._open_run", "Account.__init__.<locals>.<genexpr>")) as lines,
        ):
            copied.fit(data, checkpoint=tmp_path / str(line))
        if lines.n_lines < line:
            break
        assert copied.fit(data, key=KEY).ledger_.events == whole + spent
    assert line > 8


def test_a_run_that_is_resumed_and_stopped_once_more_has_all_of_its_rounds_once(data, tmp_path):
    model = PrivRec(**PRIVREC)
    stopped(model, data, tmp_path / "run", 2)
    assert sum(stopped(model, data, tmp_path / "run", 3, None).values()) == 3
    whole = PrivRec(**PRIVREC).fit(data, key=KEY).ledger_.events
    assert sum(model.fit(data, key=KEY).ledger_.events.values()) == sum(whole.values()) + 3


# ---- threads --------------------------------------------------------------------------------------------------------
