import numpy as np
import pytest
from test_base import Adder

from fastfedrec import Key, datasets
from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.engines import LocalEngine


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(50, 40, key=Key.from_seed(1))


def run(engine, system, data, **options):
    ledger, communication = Ledger(), CommunicationLedger()
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
    honest = sum(shard.interactions_per_item() for n, shard in enumerate(data.shard(3)) if n != 1)
    np.testing.assert_array_equal(state, 3 * honest)
    assert {r.sender for r in engine.rejections} == {"shard-1"}
    assert [event.n_users for event in ledger.events] == [50 - data.shard(3)[1].n_users]
    assert [r.round for r in engine.rejections] == [0, 0, 1, 1, 2, 2]  # the bad message, and its absence


def test_ledger_is_written_before_messages_are_made(data):
    class Fails(Adder):
        def local_round(self, *args, **kwargs):
            raise RuntimeError("power cut")

    ledger = Ledger()
    with pytest.raises(RuntimeError, match="power cut"):
        LocalEngine().run(
            Fails(), np.zeros(40, dtype=np.int64), data, key=Key.from_seed(0), n_rounds=3, ledger=ledger,
            communication=CommunicationLedger(),
        )  # fmt: skip
    assert sum(ledger.events.values()) == 1


def test_progress_bar_is_drawn_only_when_asked(data, capsys):
    run(LocalEngine(), Adder(), data)
    assert capsys.readouterr().err == ""
    run(LocalEngine(), Adder(), data, show_progress=True)
    assert "Adder" in capsys.readouterr().err


def test_bad_number_of_shards():
    for bad in (0, -1, 1.5, "two"):
        with pytest.raises((ValueError, TypeError), match="n_shards"):
            LocalEngine(bad)
