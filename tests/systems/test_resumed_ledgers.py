"""Fits with a checkpoint and a ledger of several runs: each round of a resumed run is in the ledger exactly once."""

import itertools
from collections import Counter

import pytest
from support.data import rated
from support.interruptions import StopHereError
from support.models import new
from systems.test_resumed_fits import FIRST, KEY, MOMENTS, Stop

from fastfedrec import DPFMF, FMFLDP, Key
from fastfedrec.accounting import BudgetError, Ledger, LocalReports
from fastfedrec.rounds.engine import Engine

pytestmark = pytest.mark.ignores_values

EARLIER = LocalReports("an earlier run", 0.5, n_reports=1, n_users=40)
BETWEEN = LocalReports("another run", 0.25, n_reports=1, n_users=40)


@pytest.fixture(scope="module")
def data():
    return rated(40, 50, 1)


def earlier():
    """Return a ledger with an earlier run on the same users."""
    ledger = Ledger()
    ledger.record(EARLIER)
    return ledger


def copy_of(ledger):
    """Return a ledger as another process reads it."""
    return Ledger.from_json(ledger.to_json())


def fit(model, data, folder, ledger, **options):
    return new(model).fit(data, key=KEY, n_threads=1, checkpoint=folder, ledger=ledger, **options)


def events_of(model, data):
    """Return the events of a run alone."""
    return new(model).fit(data, key=KEY, n_threads=1).ledger_.events


#: Ledgers that the next process gets, from the ledger before the run and the one of the interrupted process.
NEXT = {
    "one object": lambda before, interrupted: interrupted,
    "saved before": lambda before, interrupted: copy_of(before),
    "saved after": lambda before, interrupted: copy_of(interrupted),
}


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", NEXT.values(), ids=NEXT)
@pytest.mark.parametrize("model", [FIRST[name] for name in ("FMFLDP", "DPALS", "PrivRec", "SDCF")], ids=str)
def test_each_round_is_once_in_the_ledger_of_a_run_that_stops_at_each_moment(
    model, data, tmp_path, monkeypatch, choose
):
    alone, before, stop = events_of(model, data), earlier(), Stop(monkeypatch)
    ledger, done, n_stops = before if choose is NEXT["one object"] else copy_of(before), Counter(), 0
    before = copy_of(before)
    for moment in itertools.cycle(MOMENTS):
        stop.at(moment)
        try:
            fit(model, data, tmp_path, ledger)
        except StopHereError as error:
            n_stops, stated = n_stops + 1, error.ledger.events
        else:
            if moment != "next phase":
                break
            stated = alone
        spent = ledger.events - before.events
        assert spent == stated
        assert not done - spent  # no recorded round is missing
        assert not spent - alone  # and none is there twice
        done = spent
        ledger = choose(before, ledger)
    assert n_stops >= 3
    assert ledger.events == before.events + alone
    fit(model, data, tmp_path, ledger)  # the complete run has no further cost
    assert ledger.events == before.events + alone
    runs = [note for note in ledger.notes if note.startswith("Run ")]
    assert len(runs) == len(set(runs)) == 2


def test_another_run_on_the_same_ledger_is_charged(data, tmp_path):
    """The control: the same rounds in another folder have another name."""
    ledger, alone = earlier(), events_of(FMFLDP(n_rounds=2), data)
    for folder in ("a", "b"):
        fit(FMFLDP(n_rounds=2), data, tmp_path / folder, ledger)
    assert ledger.events == Counter({EARLIER: 1}) + alone + alone
    assert len(ledger.runs) == 2
    assert copy_of(ledger).runs == ledger.runs


@pytest.mark.parametrize("choose", NEXT.values(), ids=NEXT)
def test_costs_between_the_processes_stay(data, tmp_path, monkeypatch, choose):
    """Check costs of the same kind as the rounds, which a difference of ledgers would mistake for them."""
    model, stop = FMFLDP(n_rounds=3), Stop(monkeypatch)
    alone, ledger = events_of(model, data), earlier()
    before, (round_event,) = copy_of(ledger), alone
    stop.at("applied")
    with pytest.raises(StopHereError):
        fit(model, data, tmp_path, ledger)
    ledger = choose(before, ledger)
    for event in (BETWEEN, round_event, round_event):
        ledger.record(event)
    stop.at("no moment")
    fit(model, data, tmp_path, ledger)
    assert ledger.events == before.events + alone + Counter({BETWEEN: 1, round_event: 2})


def test_a_ledger_that_a_callback_saved_is_completed(data, tmp_path):
    model, saved = FMFLDP(n_rounds=5), []

    def save(fitted, round_number):
        saved.append(fitted.ledger_.to_json())
        if len(saved) == 4:
            raise StopHereError

    with pytest.raises(StopHereError):
        fit(model, data, tmp_path, earlier(), callback=save)
    for text in saved:
        ledger = Ledger.from_json(text)
        fit(model, data, tmp_path, ledger)
        assert ledger.events == Counter({EARLIER: 1}) + events_of(model, data)


def test_costs_that_a_callback_records_stay(data, tmp_path):
    """Check events of the same kind that are not of the run: each of the two processes makes new ones."""
    model, ledger, n_calls = FMFLDP(n_rounds=3), earlier(), itertools.count(1)
    alone = events_of(model, data)
    (round_event,) = alone

    def spend(fitted, round_number):
        fitted.ledger_.record(round_event)
        if next(n_calls) == 2:
            raise StopHereError

    with pytest.raises(StopHereError):
        fit(model, data, tmp_path, ledger, callback=spend)
    fit(model, data, tmp_path, ledger, callback=spend)
    assert ledger.events == Counter({EARLIER: 1, round_event: 5}) + alone


def test_costs_of_the_first_ledger_are_in_another_one(data, tmp_path, monkeypatch):
    model, stop, alone = FMFLDP(n_rounds=2), Stop(monkeypatch), events_of(FMFLDP(n_rounds=2), data)
    stop.at("applied")
    with pytest.raises(StopHereError):
        fit(model, data, tmp_path, earlier())
    stop.at("no moment")
    ledger = fit(model, data, tmp_path, None).ledger_
    assert ledger.events == Counter({EARLIER: 1}) + alone
    assert any("costs that were in the ledger of a run when it was interrupted" in note for note in ledger.notes)


def test_a_model_with_a_stopped_run_brings_its_cost_to_each_ledger_once(data, tmp_path, monkeypatch):
    model, stop, alone = FMFLDP(n_rounds=3), Stop(monkeypatch), events_of(FMFLDP(n_rounds=3), data)
    stop.at("applied")
    ledger, other = earlier(), earlier()
    with pytest.raises(StopHereError):
        model.fit(data, key=KEY, checkpoint=tmp_path / "run", ledger=ledger)
    stop.at("no moment")
    (event,) = alone
    model.fit(data, key=KEY, checkpoint=tmp_path / "other", ledger=other)  # one round of the first run
    assert other.events == Counter({EARLIER: 1, event: 1}) + alone
    model.fit(data, checkpoint=tmp_path / "run", ledger=other)
    assert other.events == Counter({EARLIER: 1}) + alone + alone
    model.fit(data, checkpoint=tmp_path / "run", ledger=ledger)  # the folder has the cost of the other run
    assert ledger.events == Counter({EARLIER: 1}) + alone + alone
    assert ledger.runs == other.runs


@pytest.mark.parametrize("choose", NEXT.values(), ids=NEXT)
def test_a_budget_counts_the_rounds_of_a_resumed_run_once(data, tmp_path, monkeypatch, choose):
    model, stop = DPFMF(8.0, n_factors=3, n_rounds=3), Stop(monkeypatch)
    cost = new(model).fit(data, key=KEY).ledger_.epsilon("public")
    ledger = Ledger(budget=1.05 * cost)
    before = copy_of(ledger)
    for moment in ("applied", "charged", "recorded"):
        stop.at(moment)
        with pytest.raises(StopHereError):
            fit(model, data, tmp_path, ledger)
        ledger = choose(before, ledger)
    stop.at("no moment")
    fit(model, data, tmp_path, ledger)
    assert ledger.epsilon("public") == pytest.approx(cost)
    with pytest.raises(BudgetError):  # the control: another run does not fit
        fit(model, data, tmp_path / "other", ledger)


def test_rounds_that_were_sent_count_if_others_have_spent_the_budget(data, tmp_path, monkeypatch):
    """Check that a ledger which was saved before a killed run, and then used, gets its cost above the budget."""
    model, stop = DPFMF(8.0, n_factors=3, n_rounds=3), Stop(monkeypatch)
    cost = new(model).fit(data, key=KEY).ledger_.epsilon("public")
    ledger = Ledger(budget=1.05 * cost)
    stop.at("applied")
    with pytest.raises(StopHereError):
        fit(model, data, tmp_path / "run", copy_of(ledger))
    stop.at("no moment")
    fit(model, data, tmp_path / "other", ledger)
    with pytest.raises(BudgetError) as refused:
        fit(model, data, tmp_path / "run", ledger)
    assert refused.value.ledger.events
    assert ledger.epsilon("public") > cost


def test_users_who_drop_out_after_the_resumption_count_in_a_smaller_crowd(data, tmp_path, monkeypatch):
    """Check a round that the first process charged with all users, and the second one with half of them."""
    model, stop, ledger = FMFLDP(n_rounds=2), Stop(monkeypatch), earlier()
    stop.at("charged")
    with pytest.raises(StopHereError):
        fit(model, data, tmp_path, ledger)
    stop.at("no moment")
    amend = Engine._amend
    monkeypatch.setattr(Engine, "_amend", lambda self, account, event, n: amend(self, account, event, n // 2))
    whole = new(model).fit(data, key=KEY).ledger_
    fit(model, data, tmp_path, ledger)
    assert ledger.events == Counter({EARLIER: 1}) + whole.events
    assert {event.n_users for event in whole.events} == {20}


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def document(data, tmp_path):
    ledger = earlier()
    fit(FMFLDP(n_rounds=2), data, tmp_path, ledger)
    return ledger.to_dict()


def test_a_ledger_keeps_the_events_of_runs_on_disk(document):
    ledger = Ledger.from_dict(document)
    assert ledger.to_dict() == document
    ((run, events),) = ledger.runs.items()
    assert len(run) == 32
    assert sum(events.values()) == 2
    other = Ledger.from_dict(document)
    other.runs.clear()
    assert other.digest() != ledger.digest()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda runs: runs[0].update(times=[0, 3]), r"runs\[0\].times must be at most the times"),
        (lambda runs: runs.append(runs[0] | {"run": "other"}), r"runs\[1\].times must be at most the times"),
        (lambda runs: runs.append(dict(runs[0])), r"runs\[1\].run repeats an earlier run"),
        (lambda runs: runs[0].update(times=[2]), r"runs\[0\].times must have one number for each event, 2, got 1"),
        (lambda runs: runs[0].update(times=[0, -1]), r"runs\[0\].times\[1\] must be of type integer, at least 0"),
        (lambda runs: runs[0].update(times=[0, 1]), "digest must be the digest of the content"),
    ],
)
def test_wrong_runs_of_a_document_are_named(document, change, complaint):
    change(document["runs"])
    with pytest.raises(ValueError, match=complaint):
        Ledger.from_dict(document)


def test_keys_of_other_runs_are_refused_with_a_ledger(data, tmp_path):
    ledger = earlier()
    fit(FMFLDP(n_rounds=2), data, tmp_path, ledger)
    before = copy_of(ledger)
    with pytest.raises(ValueError, match="key must be None"):
        FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(9), checkpoint=tmp_path, ledger=ledger)
    assert ledger.to_dict() == before.to_dict()
