"""What did not finish does not look finished: a fit that ends well changes a model at once, any other not at all.

What it had spent is never forgotten.
"""

import copy
import inspect
import pickle
import shutil
import sys
import threading
from contextlib import suppress
from types import MappingProxyType

import numpy as np
import pytest
from support.models import MODELS, rated

import fastfedrec
from fastfedrec import (
    FMFLDP,
    DPGram,
    Key,
    Popularity,
    PrivRec,
    load,
)
from fastfedrec.accounting import Ledger
from fastfedrec.engines import LocalEngine
from fastfedrec.rounds.system import DivergenceError
from fastfedrec.systems.recommender import Recommender

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)
OURS = str(next(iter(fastfedrec.__path__)))
ON_ENGINES = [model for model in MODELS if "engine" in inspect.signature(model.fit).parameters]


def new(model, **parameters):
    return type(model)(**(model.get_params() | parameters))


def name_of(model):
    return type(model).__name__ if hasattr(model, "fit") else None


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1, user_ids=[f"user {u}" for u in range(40)], item_ids=[f"item {i}" for i in range(50)])


def others(n_users, n_items):
    """Other people, with other items."""
    ids = {"user_ids": [f"B{u}" for u in range(n_users)], "item_ids": [f"thing {i}" for i in range(n_items)]}
    return rated(n_users, n_items, 5, **ids)


SHAPES = {"the same shape": others(40, 50), "another shape": others(45, 40)}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def other(request):
    return request.param


class StopHereError(Exception):
    """What an engine, a callback or a user raises."""


class Dying(LocalEngine):
    """Raises in the round of this number, counted over all phases, after the ledger was told of it."""

    def __init__(self, n_rounds, error=StopHereError):
        super().__init__()
        self.left, self.error = n_rounds, error

    def _collect(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise self.error("stop here")
        super()._collect(*arguments)


class Interrupt:
    """Counts the lines of the package, or of some functions of it, and interrupts the process before one of them."""

    def __init__(self, line=None, functions=None):
        self.line, self.n_lines, self.functions = line, 0, functions

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if not code.co_filename.startswith(OURS) or (self.functions and code.co_qualname not in self.functions):
            return None
        if event == "line":
            self.n_lines += 1
            if self.n_lines == self.line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def __enter__(self):
        self._outer = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self._outer)


def kept_of(model):
    """Everything of a model but what was spent in vain."""
    return {name: value for name, value in vars(model).items() if name not in ("ledger_", "_unfinished_")}


def assert_is_unfitted(model, data):
    calls = {
        "score": lambda: model.score(data.user_ids[:1], data.item_ids[:1]),
        "predict": lambda: model.predict(data.user_ids[:1], data.item_ids[:1]),
        "recommend": lambda: model.recommend(data.user_ids[:1], 1),
        "save": lambda: model.save("never written"),
        "with_users": lambda: model.with_users(data),
        "serve": lambda: model.serve(data),
        "factors": lambda: model.factors(data.user_ids[:1], data.item_ids[:1]),
        "personalize": lambda: model.personalize(data),
        "score_items": lambda: model.score_items(data.user_ids[:1]),
        "evaluate": lambda: model.evaluate(data),
    }
    for name, call in calls.items():
        if hasattr(model, name):
            with pytest.raises(RuntimeError, match="is not fitted yet; call fit"):
                call()
    assert [name for name in vars(model) if name.endswith("_") and name != "_unfinished_"] == []


# ---- oracle: what a naive account of the rounds says ----------------------------------------------------------------


@pytest.mark.parametrize("model", ON_ENGINES, ids=name_of)
def test_what_was_spent_is_what_was_recorded_until_then(model, data):
    whole, began, counter = Ledger(), Ledger(), Dying(1000)
    new(model).fit(data, key=KEY, ledger=whole, engine=counter)
    if counter.left == 1000:
        pytest.skip("it has no rounds")
    with pytest.raises(StopHereError) as raised:
        new(model).fit(data, key=KEY, engine=Dying(999 - counter.left), ledger=began)  # in the last round
    spent = raised.value.ledger
    assert spent.events == began.events == whole.events
    assert spent.is_simulation


def test_the_program_of_the_faults_page(data, tmp_path):
    model = FMFLDP(n_rounds=20).fit(data, key=Key.from_seed(1))
    factors = model.item_factors_.copy()
    assert model.ledger_.epsilon(delta=0) == 5000
    with pytest.raises(DivergenceError) as raised:
        model.set_params(learning_rate=1e30).fit(data, key=KEY)
    assert raised.value.ledger.epsilon(delta=0) == 250
    model.save(tmp_path / "m.npz")
    again = load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.item_factors_, factors)
    assert again.ledger_.epsilon(delta=0) == model.ledger_.epsilon(delta=0) == 5250
    assert any("did not finish" in note for note in again.ledger_.notes)
    assert again.learning_rate == "auto"
    assert again.recommend(data.user_ids[:3], 4)[0].tolist() == model.recommend(data.user_ids[:3], 4)[0].tolist()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_every_fit_is_a_transaction():
    """Of a class of the package, whose `fit` is its own, that `fit` wraps another."""
    for name, kind in Recommender._registry.items():
        if kind.__module__.startswith("fastfedrec.") and "fit" in vars(kind):
            assert vars(kind)["fit"].__code__.co_filename.endswith("_transaction.py"), name


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_a_fit_that_is_interrupted_anywhere_leaves_the_model_as_it_was(model, data):
    fitted = new(model).fit(data, key=KEY)
    answers = fitted.recommend(data.user_ids, 3)
    before, cost = kept_of(fitted), fitted.ledger_.events
    for share, other in zip((0.0, 0.4, 0.7, 0.2), (*SHAPES.values(),) * 2, strict=True):
        new(model).fit(other, key=KEY)  # tables and caches are made
        with Interrupt() as lines:
            new(model).fit(other, key=KEY)
        first, line = new(model), 8 + int(share * (lines.n_lines - 8))
        for target in (first, fitted):
            with pytest.raises(KeyboardInterrupt) as raised, Interrupt(line):
                target.fit(other, key=KEY)
            assert isinstance(raised.value.ledger, Ledger)
        cost = cost + raised.value.ledger.events
        assert fitted.ledger_.events == cost
        assert_is_unfitted(first, other)
        after = kept_of(fitted)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)
    for now, then in zip(fitted.recommend(data.user_ids, 3), answers, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("model", ON_ENGINES, ids=name_of)
def test_what_was_spent_stays_on_the_model_and_in_its_file(model, data, other, tmp_path):
    if isinstance(model, PrivRec) and model.n_rounds == 0:
        pytest.skip("it has no rounds")
    first, second = new(model), new(model).fit(data, key=KEY)
    cost = second.ledger_.events
    for target, before in ((first, None), (second, kept_of(second))):
        with pytest.raises(StopHereError) as raised:
            target.fit(other, key=KEY, engine=Dying(0))
        spent = raised.value.ledger
        assert spent.events
        if before is None:
            assert_is_unfitted(target, other)
        else:
            assert target.ledger_.events == cost + spent.events
            target.save(tmp_path / "model")
            assert load(tmp_path / "model").ledger_.events == cost + spent.events
            assert {name: id(value) for name, value in kept_of(target).items()} == {
                name: id(value) for name, value in before.items()
            }
        fresh = new(model).fit(other, key=KEY)
        target.fit(other, key=KEY)
        assert target.ledger_.events == fresh.ledger_.events + spent.events
        assert sum("did not finish" in note for note in target.ledger_.notes) == 1
        np.testing.assert_array_equal(target.recommend(other.user_ids, 3)[1], fresh.recommend(other.user_ids, 3)[1])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, DivergenceError, OSError])
def test_whatever_ends_a_fit_says_what_was_spent(error, data):
    model = FMFLDP(n_rounds=4).fit(data, key=KEY)
    with pytest.raises(error) as raised:
        model.fit(data, key=KEY, engine=Dying(2, error))
    assert raised.value.ledger.epsilon(delta=0) == 750
    assert model.ledger_.epsilon(delta=0) == 1000 + 750


def test_two_failures_are_two_costs_and_each_is_told_of_once(data):
    model, spent = FMFLDP(n_rounds=4), []
    for n in (1, 3):
        with pytest.raises(StopHereError) as raised:
            model.fit(data, key=KEY, engine=Dying(n))
        spent.append(raised.value.ledger.epsilon(delta=0))
    assert spent == [500, 1000]  # of rounds that began
    assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1000 + 1500
    assert model.fit(data, key=KEY, ledger=model.ledger_).ledger_.epsilon(delta=0) == 2000 + 1500
    assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1000 + 1500


def test_what_was_spent_from_a_seed_makes_every_later_ledger_a_simulation(data):
    """The later fit's key is nobody's to guess; the earlier one's is."""
    model = FMFLDP(n_rounds=2)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(1))
    assert model.fit(data, key=Key.from_entropy()).ledger_.is_simulation
    fresh = FMFLDP(n_rounds=2)
    with pytest.raises(StopHereError):
        fresh.fit(data, key=Key.from_entropy(), engine=Dying(1))
    assert not fresh.fit(data, key=Key.from_entropy()).ledger_.is_simulation


@pytest.mark.parametrize("passed", ["itself", "read from its text", "a copy", "the exception's", "none", "another"])
def test_a_ledger_that_has_the_cost_is_not_charged_again(passed, data):
    before = FMFLDP(n_rounds=1).fit(data, key=KEY).ledger_  # 250
    model, ledger = FMFLDP(n_rounds=4), copy.deepcopy(before)
    with pytest.raises(StopHereError) as raised:
        model.fit(data, key=KEY, engine=Dying(1), ledger=ledger)
    assert ledger.epsilon(delta=0) == 250 + 500
    assert raised.value.ledger.epsilon(delta=0) == 500
    ledgers = {
        "itself": (ledger, 750),
        "read from its text": (Ledger.from_json(ledger.to_json()), 750),
        "a copy": (copy.deepcopy(ledger), 750),
        "the exception's": (raised.value.ledger, 500),
        "none": (None, 500),
        "another": (copy.deepcopy(before), 750),
    }
    given, known = ledgers[passed]
    assert model.fit(data, key=KEY, ledger=given).ledger_.epsilon(delta=0) == known + 1000
    assert given is None or model.ledger_ is given


#: Lines that run around a fit: at each of them an interruption keeps the cost.
AROUND = (
    "transactional.<locals>.whole", "_fit_and_finish", "_without_account", "_keep_what_was_spent", "Account.close",
    "Recommender._copied_parameters", "Recommender._finish",
)  # fmt: skip


def lines_around(fit):
    """How many of those lines a fit runs, whether or not it ends well."""
    with suppress(StopHereError), Interrupt(functions=AROUND) as lines:
        fit()
    return lines.n_lines


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_cost_is_kept_at_every_line_after_the_first_release(model, data):
    """Whichever line ends the fit of a new model, the next ledger has what was recorded; or it never began."""
    whole = new(model).fit(data, key=KEY).ledger_
    for line in range(1, lines_around(lambda: new(model).fit(data, key=KEY)) + 1):
        interrupted, ledger = new(model), Ledger(whole.delta)
        with pytest.raises(KeyboardInterrupt), Interrupt(line, AROUND):
            interrupted.fit(data, key=KEY, ledger=ledger)
        assert ledger.events in (whole.events, {})
        if "interactions_" in vars(interrupted):  # the fit was done: it is on the model as that of any fit is
            assert interrupted.ledger_.events == whole.events
            continue
        again = interrupted.fit(data, key=KEY).ledger_
        assert again.events == whole.events + ledger.events
        assert again.is_simulation >= whole.is_simulation


@pytest.mark.parametrize("is_fitted", [False, True])
def test_a_second_interruption_loses_nothing_either(data, is_fitted):
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
        assert model.fit(data, key=KEY).ledger_.epsilon() == 500 + 500 * (engine.left < 0)
    assert n_begun > 20


UNCOPIED = {
    "keys": lambda: {"a": 1, "b": 2}.keys(),
    "a mapping's view": lambda: MappingProxyType({"user": ["age"]}),
    "a generator": lambda: (name for name in ["age"]),
    "a lock": threading.Lock,
}


@pytest.mark.parametrize("kind", UNCOPIED)
@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_what_cannot_be_copied_is_refused_before_anything_is_spent(model, data, kind, monkeypatch):
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
    """The program of the faults' page: counts were released, and no ledger had them."""
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


def test_a_ledger_that_was_not_passed_is_left_alone(data):
    ledger = Ledger()
    model = FMFLDP(n_rounds=2).fit(data, key=KEY, ledger=ledger)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(0))
    assert ledger.epsilon(delta=0) == 500
    assert ledger.notes == []
    assert model.ledger_.epsilon(delta=0) == 750


def test_what_was_spent_goes_with_copies_and_pickles(data):
    model = FMFLDP(n_rounds=4)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(1))
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1500


def test_nothing_was_spent_where_an_argument_is_refused(data):
    model, ledger = DPGram(8.0), Ledger()
    with pytest.raises(ValueError, match="n_threads") as raised:
        model.fit(data, n_threads=-1, ledger=ledger)
    assert not raised.value.ledger.events
    assert not ledger.events
    assert ledger.notes == []
    assert "_unfinished_" not in vars(model)


def test_callbacks_see_a_model_that_is_ready_and_may_end_the_fit(data, other):
    seen = []

    def look(model, number):
        seen.append((number, model.ledger_.epsilon(delta=0), model.recommend(other.user_ids[:2], 3)[0].shape))
        if number == 1:
            raise StopHereError

    for model, fitted in ((FMFLDP(n_rounds=4), False), (FMFLDP(n_rounds=4).fit(data, key=KEY), True)):
        seen.clear()
        with pytest.raises(StopHereError) as raised:
            model.fit(other, key=KEY, callback=look)
        assert seen == [(0, 250, (2, 3)), (1, 500, (2, 3))]
        assert raised.value.ledger.epsilon(delta=0) == 500
        if fitted:
            assert model.recommend(data.user_ids[:2], 3)[0].shape == (2, 3)
            assert model.ledger_.epsilon(delta=0) == 1500
        else:
            assert_is_unfitted(model, other)


def test_history_of_another_fit_does_not_stay(data):
    model = FMFLDP(n_rounds=2).fit(data, key=KEY, diagnostics=True)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(1))
    assert len(model.history_) == 2
    assert not hasattr(model.fit(data, key=KEY), "history_")


def test_what_a_caller_has_set_stays(data):
    model = FMFLDP(n_rounds=1)
    model.remark = "mine"
    assert model.fit(data, key=KEY).remark == "mine"


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

    def failed(where):
        model = PrivRec(**given)
        with pytest.raises(StopHereError) as raised:
            model.fit(data, key=KEY, checkpoint=tmp_path / where, callback=stop)
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


KEPT = {"n_rounds": 4, "cohort_size": 4, "n_factors": 16, "hidden": (16,), "clip_norm": 0.1, "noise_multiplier": 1.0}
STAGED = {"stage1": "dp", "stage1_options": {"n_rounds": 1, "cohort_size": 4, "length": 3, "clip_norm": 0.1}}


def stopped(model, data, folder, n_rounds, key=KEY):
    """Fit until some rounds are done, and return what they cost."""

    def stop(_, number):
        if number == n_rounds - 1:
            raise StopHereError

    with pytest.raises(StopHereError) as raised:
        model.fit(data, key=key, checkpoint=folder, callback=stop)
    return raised.value.ledger.events


@pytest.mark.parametrize("key", [KEY, None], ids=["seed", "entropy"])
def test_a_run_in_the_same_folder_is_another_run(data, tmp_path, key):
    """The first run's folder is gone, and another run in its place is resumed: both have their cost."""
    model, folder = PrivRec(**KEPT), tmp_path / "run"
    spent = stopped(model, data, folder, 3, key)
    shutil.rmtree(folder)
    stopped(PrivRec(**KEPT), data, folder, 2, key)
    model.fit(data, checkpoint=folder)
    assert sum(model.ledger_.events.values()) == 4 + 3
    assert model.ledger_.events == PrivRec(**KEPT).fit(data, key=KEY).ledger_.events + spent


@pytest.mark.parametrize("parameters", [{}, STAGED], ids=["", "with stage one"])
@pytest.mark.parametrize("how", ["moved", "link", "relative", "copied"])
def test_a_run_is_charged_once_wherever_its_folder_is(data, tmp_path, monkeypatch, how, parameters):
    data = data if not parameters else data._replace(timestamps=np.arange(data.n_interactions))
    model, folder, other = PrivRec(**KEPT, **parameters), tmp_path / "run", tmp_path / "other"
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
    assert model.ledger_.events == PrivRec(**KEPT, **parameters).fit(data, key=KEY).ledger_.events


def test_only_the_run_that_is_resumed_is_its_own_cost(data, tmp_path):
    """Of two runs that were interrupted in two folders one is resumed; the other's cost stays, in this and later."""
    model = PrivRec(**KEPT)
    first, second = (stopped(model, data, tmp_path / name, n) for name, n in (("first", 3), ("second", 2)))
    with pytest.raises(StopHereError) as raised:
        model.fit(data, key=KEY, engine=Dying(1))  # kept nowhere
    whole = PrivRec(**KEPT).fit(data, key=KEY).ledger_.events
    model.fit(data, checkpoint=tmp_path / "second")
    assert model.ledger_.events == whole + first + raised.value.ledger.events
    model.fit(data, key=KEY)
    assert model.ledger_.events == whole + first + raised.value.ledger.events
    model.fit(data, checkpoint=tmp_path / "first")
    assert model.ledger_.events == whole + raised.value.ledger.events
    assert sum(second.values()) == 2


def test_a_run_that_is_resumed_from_an_older_copy_keeps_what_was_spent_after_it(data, tmp_path):
    """A round that is done twice has the same bits, so it costs once, also if it was done before the copy came back."""
    model, folder = PrivRec(**KEPT), tmp_path / "run"
    stopped(PrivRec(**KEPT), data, folder, 1)
    shutil.copytree(folder, tmp_path / "older")
    assert sum(stopped(model, data, folder, 3, None).values()) == 3
    assert sum(stopped(model, data, tmp_path / "older", 2, None).values()) == 3
    whole = PrivRec(**KEPT).fit(data, key=KEY).ledger_.events
    assert sum(model.fit(data, key=KEY).ledger_.events.values()) == sum(whole.values()) + 3
    model.fit(data, checkpoint=tmp_path / "older")
    assert model.ledger_.events == whole


def test_a_run_whose_resumption_is_interrupted_keeps_its_cost(data, tmp_path):
    model = PrivRec(**KEPT)
    spent = stopped(model, data, tmp_path / "run", 2)
    whole, line = PrivRec(**KEPT).fit(data, key=KEY).ledger_.events, 0
    while True:
        line += 1
        shutil.copytree(tmp_path / "run", tmp_path / str(line))
        again = copy.deepcopy(model)
        with (
            suppress(KeyboardInterrupt),
            Interrupt(line, ("Account.resume", "Account.resume.<locals>.<genexpr>")) as lines,
        ):
            again.fit(data, checkpoint=tmp_path / str(line))
        if lines.n_lines < line:
            break
        assert again.fit(data, key=KEY).ledger_.events == whole + spent
    assert line > 8


def test_a_run_that_is_resumed_and_stopped_once_more_has_all_of_its_rounds_once(data, tmp_path):
    model = PrivRec(**KEPT)
    stopped(model, data, tmp_path / "run", 2)
    assert sum(stopped(model, data, tmp_path / "run", 3, None).values()) == 3
    whole = PrivRec(**KEPT).fit(data, key=KEY).ledger_.events
    assert sum(model.fit(data, key=KEY).ledger_.events.values()) == sum(whole.values()) + 3


# ---- threads --------------------------------------------------------------------------------------------------------


def test_fits_of_one_model_in_two_threads_leave_the_whole_of_one(data, other):
    from concurrent.futures import ThreadPoolExecutor

    model = Popularity()
    with ThreadPoolExecutor(2) as pool:
        for fit in [pool.submit(model.fit, one, key=KEY) for one in (data, other) * 10]:
            fit.result()
    of = data if model.interactions_.n_users == data.n_users and model.interactions_.user_ids[0] == "user 0" else other
    np.testing.assert_array_equal(model.item_counts_, Popularity().fit(of, key=KEY).item_counts_)


class OwnFit(Popularity):
    """A subclass whose `fit` is around that of its parent."""

    def fit(self, interactions, *arguments, **options):
        return super().fit(interactions, *arguments, **options)


def test_a_subclass_may_call_the_fit_of_its_parent(data):
    model = OwnFit()
    assert model.fit(data, key=KEY) is model
    np.testing.assert_array_equal(model.item_counts_, Popularity().fit(data, key=KEY).item_counts_)


@pytest.mark.parametrize("model", ON_ENGINES, ids=name_of)
def test_what_is_no_engine_is_refused_before_anything_is_spent(model, data):
    ledger = Ledger()
    with pytest.raises(TypeError, match="engine must be Engine, got int"):
        new(model).fit(data, key=KEY, ledger=ledger, engine=5)
    assert not ledger.events
