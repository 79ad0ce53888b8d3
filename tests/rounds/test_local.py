import logging
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from support.adder import Adder
from support.data import rated
from support.models import WITH_ROUNDS, new

from fastfedrec import FMFLDP, Key, NoAnswerError, datasets
from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.core import progress
from fastfedrec.engines import LocalEngine


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(50, 40, key=Key.from_seed(1))


def run(engine, system, data, ledger=None, **options):
    ledger, communication = Ledger() if ledger is None else ledger, CommunicationLedger()
    state = engine.run(
        system, np.zeros(data.n_items, dtype=np.int64), data, key=Key.from_seed(0), n_rounds=3, ledger=ledger,
        communication=communication, **options,
    )  # fmt: skip
    return state, ledger, communication


@pytest.mark.parametrize("n_shards", [1, 4, 60])
def test_every_round_adds_every_user(data, n_shards):
    rounds = []
    state, ledger, communication = run(
        LocalEngine(n_shards), Adder(), data, after_round=lambda number, state: rounds.append((number, state.sum()))
    )
    np.testing.assert_array_equal(state, 3 * data.interactions_per_item())
    assert rounds == [(n, (n + 1) * data.n_interactions) for n in range(3)]
    assert sum(ledger.events.values()) == 3
    assert communication.to_dict()["upload_total"] == 3 * 8 * 40 * 50


def test_a_run_is_resumed_at_a_later_round(data):
    rounds = []
    state, ledger, _ = run(
        LocalEngine(), Adder(), data, first_round=2, after_round=lambda number, state: rounds.append(number)
    )
    np.testing.assert_array_equal(state, data.interactions_per_item())
    assert rounds == [2]
    assert sum(ledger.events.values()) == 1


def test_a_hostile_shard_does_not_stop_the_run(data):
    class Liar(Adder):
        def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
            update = super().local_round(state, shard, key, round, sender=sender)
            if sender == "shard-1":
                update.arrays["sum"][0] = -1
            return update

    engine = LocalEngine(3)
    state, ledger, _ = run(engine, Liar(), data)
    # The hostile shard counts as zero in all three rounds, and the others are added exactly.
    honest = sum(shard.interactions_per_item() for n, shard in enumerate(data.shard(3)) if n != 1)
    np.testing.assert_array_equal(state, 3 * honest)
    assert {r.sender for r in engine.rejections} == {"shard-1"}
    assert [event.n_users for event in ledger.events] == [50 - data.shard(3)[1].n_users]
    assert [r.round for r in engine.rejections] == [0, 0, 1, 1, 2, 2]  # the bad message, and its absence


# ---- rounds that nobody answers -------------------------------------------------------------------------------------


class Deaf(LocalEngine):
    """Engine that delivers no acceptable message in some rounds."""

    def __init__(self, is_lost=lambda round_number: True, says=None):
        super().__init__(2)
        self._is_lost, self._says = is_lost, says

    def _answers(self, receiver, *arguments):
        # A lost message is dropped, or altered so that the server rejects it.
        lost = self._is_lost(receiver.round)
        for update in super()._answers(receiver, *arguments):
            if not lost or self._says is not None:
                yield replace(update, **self._says) if lost else update


def case(name):
    """Return a new model of this name, its users, and further arguments of its `fit`."""
    options = {"entities": np.arange(50) % 2} if name.startswith("PrivatePrototypes") else {}
    return new(WITH_ROUNDS[name]), rated(50, 40, 1), options


@pytest.mark.parametrize("says", [None, {"n_clients": 10**9}])
@pytest.mark.ignores_values
@pytest.mark.parametrize("name", WITH_ROUNDS)
def test_a_run_that_nobody_answered_has_no_model(name, says):
    (model, people, options), engine, ledger = case(name), Deaf(says=says), Ledger()
    with pytest.raises(
        NoAnswerError, match=r"nobody answered .* so there is no model .*(no acceptable|claims)"
    ) as caught:
        model.fit(people, key=Key.from_seed(2), engine=engine, ledger=ledger, **options)
    assert caught.value.ledger.events  # a message costs its epsilon whether or not it arrived
    assert ledger.events
    assert caught.value.rejections == tuple(engine.rejections)
    assert engine.rejections[0].round == 0
    assert not [
        attribute for attribute in vars(model) if attribute in ("item_factors_", "user_factors_", "parameters_")
    ]
    with pytest.raises(RuntimeError, match="not fitted"):
        model.recommend(people.user_ids[:1], 1)


@pytest.mark.parametrize("lost", [{0}, {1}, {0, 1}, {1, 2}])
def test_a_round_that_nobody_answered_among_others_is_a_note(data, lost):
    model = FMFLDP(n_rounds=3).fit(data, key=Key.from_seed(2), engine=Deaf(lost.__contains__))
    assert [note for note in model.ledger_.notes if "No client answered" in note] == [
        f"No client answered in round {number} of FMFLDP, but the ledger counts the round." for number in sorted(lost)
    ]
    assert sum(model.ledger_.events.values()) == 3


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", WITH_ROUNDS)
def test_a_round_in_the_middle_that_nobody_answered_is_said_by_every_system(name):
    """The second round has no message; a system with several kinds of rounds has no model without one of them."""
    (model, people, options), calls = case(name), count()
    engine = Deaf(lambda round_number: next(calls) == 1)
    try:
        ledger = model.fit(people, key=Key.from_seed(2), engine=engine, **options).ledger_
    except NoAnswerError as error:
        ledger = error.ledger
        assert not hasattr(model, "item_factors_")
    # The counter is at 1 if the engine ran only one round, which received its message.
    is_one_round = next(calls) == 1
    assert any("No client answered in round" in note for note in ledger.notes) == (not is_one_round)
    assert bool(engine.rejections) == (not is_one_round)


def test_a_resumed_run_counts_the_rounds_of_before(data):
    local, deaf = LocalEngine(), Deaf()
    options = {"key": Key.from_seed(0), "n_rounds": 3, "communication": CommunicationLedger()}
    state = np.zeros(data.n_items, dtype=np.int64)
    ledger = Ledger()
    state = local.run(Adder(), state, data, **(options | {"n_rounds": 1}), ledger=ledger)
    np.testing.assert_array_equal(deaf.run(Adder(), state, data, **options, first_round=1, ledger=ledger), state)
    assert len(ledger.notes) == 2
    ledger = Ledger()  # no message was accepted before the stop either
    ledger.note("No client answered in round 0 of Adder, but the ledger counts the round.", "choice")
    ledger.note("nobody answered in round 1 of Adder, which is counted all the same")  # the note of version 0.2.0
    with pytest.raises(NoAnswerError, match="in any of its 3 rounds"):
        deaf.run(Adder(), state, data, **options, first_round=2, ledger=ledger)


def test_people_without_data_answer(data):
    assert not run(LocalEngine(2), Adder(), data.select_users([]))[1].notes


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", WITH_ROUNDS)
def test_shards_without_users_change_nothing(name):
    _, people, _ = case(name)
    # 60 shards for 50 users: at least ten shards are empty.
    few, many = (case(name)[0].fit(people, key=Key.from_seed(2), engine=LocalEngine(n)) for n in (1, 60))
    users, items = people.user_ids, np.resize(people.item_ids, 50)
    np.testing.assert_allclose(many.score(users, items), few.score(users, items), rtol=1e-5, atol=1e-7)
    assert many.ledger_.to_dict() == few.ledger_.to_dict()


def test_ledger_is_written_before_messages_are_made(data):
    class Fails(Adder):
        def local_round(self, *args, **kwargs):
            raise RuntimeError("power cut")

    ledger = Ledger()
    with pytest.raises(RuntimeError, match="power cut"):
        run(LocalEngine(), Fails(), data, ledger)
    # The round is charged although its message failed, because a device may have sent a part of it.
    assert sum(ledger.events.values()) == 1


def test_progress_bar_is_drawn_only_when_asked_and_watched(data, capsys, monkeypatch):
    run(LocalEngine(), Adder(), data, show_progress=True)
    assert capsys.readouterr().err == ""  # which is no terminal
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    run(LocalEngine(), Adder(), data)
    assert capsys.readouterr().err == ""
    run(LocalEngine(), Adder(), data, show_progress=True)
    assert "Adder" in capsys.readouterr().err


def test_a_round_is_a_line_of_the_log_that_says_nothing_of_people(data, caplog, capsys):
    run(LocalEngine(3), Adder(), data)
    assert caplog.records == []  # silent by default
    with caplog.at_level(logging.INFO, logger="fastfedrec"):
        run(LocalEngine(3), Adder(), data)
    n_rounds = len(caplog.records)
    assert [record.getMessage() for record in caplog.records] == [
        f"Adder: round {number} of {n_rounds} is done" for number in range(1, n_rounds + 1)
    ]
    assert {(record.name, record.levelname) for record in caplog.records} == {("fastfedrec", "INFO")}
    assert capsys.readouterr() == ("", "")


def test_bad_number_of_shards():
    for bad in (0, -1, 1.5, "two"):
        with pytest.raises((ValueError, TypeError), match="n_shards"):
            LocalEngine(bad)
