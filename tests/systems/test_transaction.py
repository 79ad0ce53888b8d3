"""A fit changes a model at once if it completes, and not at all otherwise; its cost is recorded in both cases."""

import copy
import pickle

import numpy as np
import pytest
from support.data import rated
from support.interruptions import Dying, Interrupt, StopHereError
from support.models import MODELS, ON_ENGINES, new

from fastfedrec import (
    FMFLDP,
    DPGram,
    Key,
    Popularity,
    PrivRec,
    load,
)
from fastfedrec.accounting import Ledger
from fastfedrec.rounds.system import DivergenceError
from fastfedrec.systems.recommender import Recommender

pytestmark = pytest.mark.ignores_values

KEY = Key.from_seed(2)


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1, user_ids=[f"user {u}" for u in range(40)], item_ids=[f"item {i}" for i in range(50)])


def other_users(n_users, n_items):
    """Return other users, with other items."""
    ids = {"user_ids": [f"B{u}" for u in range(n_users)], "item_ids": [f"thing {i}" for i in range(n_items)]}
    return rated(n_users, n_items, 5, **ids)


SHAPES = {"the same shape": other_users(40, 50), "another shape": other_users(45, 40)}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def other(request):
    return request.param


def state_of(model):
    """Return all of a model's state except the costs of failed fits."""
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


@pytest.mark.parametrize("model", ON_ENGINES.values(), ids=ON_ENGINES)
def test_the_cost_of_a_failed_fit_is_the_recorded_one(model, data):
    whole, began, counter = Ledger(), Ledger(), Dying(1000)
    new(model).fit(data, key=KEY, ledger=whole, engine=counter)
    if counter.left == 1000:
        pytest.skip("it has no rounds")
    with pytest.raises(StopHereError) as raised:
        # The failure is in the last round.
        new(model).fit(data, key=KEY, engine=Dying(999 - counter.left), ledger=began)
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
    loaded = load(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.item_factors_, factors)
    assert loaded.ledger_.epsilon(delta=0) == model.ledger_.epsilon(delta=0) == 5250
    assert any("that failed" in note for note in loaded.ledger_.notes)
    assert loaded.learning_rate == "auto"
    assert loaded.recommend(data.user_ids[:3], 4)[0].tolist() == model.recommend(data.user_ids[:3], 4)[0].tolist()


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_every_fit_is_a_transaction():
    """Check that a class of the package that defines `fit` has it wrapped."""
    for name, kind in Recommender._registry.items():
        if kind.__module__.startswith("fastfedrec.") and "fit" in vars(kind):
            assert vars(kind)["fit"].__code__.co_filename.endswith("_transaction.py"), name


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_fit_that_is_interrupted_anywhere_leaves_the_model_as_it_was(model, data):
    fitted = new(model).fit(data, key=KEY)
    answers = fitted.recommend(data.user_ids, 3)
    before, cost = state_of(fitted), fitted.ledger_.events
    for share, other in zip((0.0, 0.4, 0.7, 0.2), (*SHAPES.values(),) * 2, strict=True):
        # This fit builds tables and caches.
        new(model).fit(other, key=KEY)
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
        after = state_of(fitted)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)
    for now, then in zip(fitted.recommend(data.user_ids, 3), answers, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("model", ON_ENGINES.values(), ids=ON_ENGINES)
def test_costs_remain_on_the_model_and_in_its_file(model, data, other, tmp_path):
    if isinstance(model, PrivRec) and model.n_rounds == 0:
        pytest.skip("it has no rounds")
    first, second = new(model), new(model).fit(data, key=KEY)
    cost = second.ledger_.events
    for target, before in ((first, None), (second, state_of(second))):
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
            assert {name: id(value) for name, value in state_of(target).items()} == {
                name: id(value) for name, value in before.items()
            }
        fresh = new(model).fit(other, key=KEY)
        target.fit(other, key=KEY)
        assert target.ledger_.events == fresh.ledger_.events + spent.events
        assert sum("that failed" in note for note in target.ledger_.notes) == 1
        np.testing.assert_array_equal(target.recommend(other.user_ids, 3)[1], fresh.recommend(other.user_ids, 3)[1])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, DivergenceError, OSError])
def test_every_failure_of_a_fit_reports_its_cost(error, data):
    model = FMFLDP(n_rounds=4).fit(data, key=KEY)
    with pytest.raises(error) as raised:
        model.fit(data, key=KEY, engine=Dying(2, error))
    assert raised.value.ledger.epsilon(delta=0) == 750
    assert model.ledger_.epsilon(delta=0) == 1000 + 750


def test_two_failures_are_two_costs_and_each_is_reported_once(data):
    model, spent = FMFLDP(n_rounds=4), []
    for n in (1, 3):
        with pytest.raises(StopHereError) as raised:
            model.fit(data, key=KEY, engine=Dying(n))
        spent.append(raised.value.ledger.epsilon(delta=0))
    assert spent == [500, 1000]  # these are the rounds that began
    assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1000 + 1500
    assert model.fit(data, key=KEY, ledger=model.ledger_).ledger_.epsilon(delta=0) == 2000 + 1500
    assert model.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1000 + 1500


def test_costs_from_a_seed_make_every_later_ledger_a_simulation(data):
    """Check that the later fit's key is secret while the earlier one's is public."""
    model = FMFLDP(n_rounds=2)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(1))
    assert model.fit(data, key=Key.from_entropy()).ledger_.is_simulation
    fresh = FMFLDP(n_rounds=2)
    with pytest.raises(StopHereError):
        fresh.fit(data, key=Key.from_entropy(), engine=Dying(1))
    assert not fresh.fit(data, key=Key.from_entropy()).ledger_.is_simulation


@pytest.mark.parametrize("passed", ["itself", "read from its text", "a copy", "the exception's", "none", "another"])
def test_a_ledger_with_the_cost_is_not_charged_twice(passed, data):
    before = FMFLDP(n_rounds=1).fit(data, key=KEY).ledger_  # its cost is 250
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


def test_a_ledger_that_was_not_passed_is_left_alone(data):
    ledger = Ledger()
    model = FMFLDP(n_rounds=2).fit(data, key=KEY, ledger=ledger)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(0))
    assert ledger.epsilon(delta=0) == 500
    assert ledger.notes == []
    assert model.ledger_.epsilon(delta=0) == 750


def test_costs_are_part_of_copies_and_pickles(data):
    model = FMFLDP(n_rounds=4)
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, engine=Dying(1))
    for copied in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.fit(data, key=KEY).ledger_.epsilon(delta=0) == 1500


def test_a_refused_argument_has_no_cost(data):
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


def test_attributes_set_by_the_caller_remain(data):
    model = FMFLDP(n_rounds=1)
    model.remark = "mine"
    assert model.fit(data, key=KEY).remark == "mine"


# ---- threads --------------------------------------------------------------------------------------------------------


def test_fits_of_one_model_in_two_threads_leave_one_complete_fit(data, other):
    from concurrent.futures import ThreadPoolExecutor

    model = Popularity()
    with ThreadPoolExecutor(2) as pool:
        for fit in [pool.submit(model.fit, one, key=KEY) for one in (data, other) * 10]:
            fit.result()
    of = data if model.interactions_.n_users == data.n_users and model.interactions_.user_ids[0] == "user 0" else other
    np.testing.assert_array_equal(model.item_counts_, Popularity().fit(of, key=KEY).item_counts_)


class OwnFit(Popularity):
    """Model with a `fit` that calls `fit` of its parent."""

    def fit(self, interactions, *arguments, **options):
        return super().fit(interactions, *arguments, **options)


def test_a_subclass_may_call_the_fit_of_its_parent(data):
    model = OwnFit()
    assert model.fit(data, key=KEY) is model
    np.testing.assert_array_equal(model.item_counts_, Popularity().fit(data, key=KEY).item_counts_)


@pytest.mark.parametrize("model", ON_ENGINES.values(), ids=ON_ENGINES)
def test_other_engines_are_refused_before_any_cost(model, data):
    ledger = Ledger()
    with pytest.raises(TypeError, match="engine must be Engine, got int"):
        new(model).fit(data, key=KEY, ledger=ledger, engine=5)
    assert not ledger.events
