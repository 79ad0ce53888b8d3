"""Tests of the Dask engine: the same bits as in one process even if workers die, and shards sent as paths."""

import asyncio
import contextlib
import gc
import os
import pickle
import shutil
import signal
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest
from distributed import Client, LocalCluster
from support.benches_module import load_benches
from support.fedrec_case import start
from support.models import WITH_ROUNDS
from support.patience import HANG, wait_until

import fastfedrec.engines.dask
from fastfedrec import FMFLDP, FedRec, Key, PrivRec
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import DaskEngine, LocalEngine
from fastfedrec.engines.dask import _without_devices
from fastfedrec.rounds.receiver import PartialRound, RoundReceiver
from fastfedrec.rounds.stored_fit import StoredFit
from fastfedrec.rounds.system import Update
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFRounds

# A cluster that closes leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

KEY = Key.from_seed(7)
LOST = (
    r"tasks of this run were cancelled .* client\.restart\(\) .*, or were lost with the scheduler; start the run again"
)


@pytest.fixture(scope="module")
def client():
    with Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as client:
        yield client


def scores(model, data):
    return model.score(data.user_ids[:50], data.item_ids[np.arange(50) % 60])


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", WITH_ROUNDS)
def test_two_workers_make_the_model_of_one_process(client, data, name):
    model, key = WITH_ROUNDS[name], Key.from_seed(3)
    here = scores(model.fit(data, key=key), data)
    there = scores(model.fit(data, key=key, engine=DaskEngine(client)), data)
    np.testing.assert_array_equal(there, here)
    ledger = str(model.ledger_)
    assert ledger == str(model.fit(data, key=key, engine=LocalEngine(2)).ledger_)


@pytest.mark.parametrize("model", [FMFLDP(n_rounds=3), FedRec(n_factors=4, n_rounds=3)], ids=["reports", "devices"])
@pytest.mark.ignores_values
def test_a_run_is_resumed_on_another_cluster_and_in_one_process(client, data, tmp_path, monkeypatch, model):
    keep_round = StoredFit.keep_round

    def power_cut(self, system, partial, *arguments):
        if partial.total.round == 1:
            raise RuntimeError("power cut")
        keep_round(self, system, partial, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(StoredFit, "keep_round", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            model.fit(data, key=KEY, engine=DaskEngine(client, n_shards=3), checkpoint=tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with Client(n_workers=1, processes=False, dashboard_address=":0") as other:
        there = scores(model.fit(data, engine=DaskEngine(other, n_shards=3), checkpoint=tmp_path / "run"), data)
    here = scores(model.fit(data, engine=LocalEngine(3), checkpoint=tmp_path / "copy"), data)
    np.testing.assert_array_equal(there, here)
    np.testing.assert_array_equal(there, scores(model.fit(data, key=KEY, engine=LocalEngine(3)), data))


def test_more_shards_than_workers(client, data):
    engine = DaskEngine(client, n_shards=5)
    assert (engine.n_shards, DaskEngine(client).n_shards) == (5, 2)
    model = FMFLDP(n_rounds=3).fit(data, key=KEY, engine=engine)
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=3).fit(data, key=KEY).item_factors_)
    assert engine.rejections == []


def test_every_worker_holds_an_equal_number_of_shards(client, data):
    held = []

    def look(model, round_number):
        # Keys of stored shards begin with _hold; `has_what` lists the keys of each worker.
        held.extend(sum(key.startswith("_hold") for key in keys) for keys in client.has_what().values())

    FMFLDP(n_rounds=2).fit(data, key=KEY, engine=DaskEngine(client, n_shards=6), callback=look)
    assert len(held) == 4
    assert min(held) >= 3  # another worker may have a copy as well


def test_messages_of_devices_are_recorded(client, data):
    model = FedRec(1, n_rounds=3, n_factors=3)
    there, here = (
        model.fit(data, key=KEY, engine=engine, record_views=[1, 2]).records_
        for engine in (DaskEngine(client), LocalEngine(2))
    )
    assert len(there) == len(here) == 2
    for ours, theirs in zip(there, here, strict=True):
        np.testing.assert_array_equal(ours.server.values, theirs.server.values)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_worker_killed_in_a_run_leaves_the_model(client, data, tmp_path, on_disk):
    source = data
    if on_disk:
        store_interactions(data, tmp_path / "data")
        source = open_interactions(tmp_path / "data")
    killed = []

    def kill(model, round_number):
        if round_number == 1:
            worker = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
            killed.append(client.run(os.getpid, workers=[worker])[worker])
            os.kill(killed[0], signal.SIGKILL)

    engine = DaskEngine(client, worker_timeout=HANG)
    model = FMFLDP(n_rounds=5).fit(source, key=KEY, engine=engine, callback=kill)
    assert killed
    wait_until(lambda: len(processes(client) - {*killed}) == 2)  # the nanny starts another
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=5).fit(data, key=KEY).item_factors_)


@pytest.fixture
def mortal():
    """Workers of a test's own: nannies do not reliably bring back those that die a second time."""
    with Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as client:
        yield client


def processes(client):
    """Return process ids of workers that answer; the scheduler may still list one that has died."""
    return set(client.run(os.getpid, on_error="ignore").values())


def kill_all(client, seconds_between):
    for process in processes(client):
        os.kill(process, signal.SIGKILL)
        time.sleep(seconds_between)


@pytest.mark.parametrize(("n_shards", "seconds_between"), [(2, 0), pytest.param(5, 0.2, marks=pytest.mark.nightly)])
def test_all_workers_killed_in_a_run_leave_the_model(mortal, data, n_shards, seconds_between):
    def kill(model, round_number):
        if round_number == 1:
            kill_all(mortal, seconds_between)

    engine = DaskEngine(mortal, n_shards, worker_timeout=HANG)
    model = FMFLDP(n_rounds=4).fit(data, key=KEY, engine=engine, callback=kill)
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=4).fit(data, key=KEY).item_factors_)
    second_model = FMFLDP(n_rounds=4).fit(data, key=KEY, engine=engine)  # the client is as good as before
    np.testing.assert_array_equal(second_model.item_factors_, model.item_factors_)


def test_all_workers_killed_before_they_hold_shards_leave_the_model(mortal, data, monkeypatch):
    wait = DaskEngine._wait
    killed = []

    def kill_first(self, futures, required_workers=()):
        if not killed:
            killed.append(kill_all(mortal, 0))
        return wait(self, futures, required_workers)

    monkeypatch.setattr(DaskEngine, "_wait", kill_first)
    model = FMFLDP(n_rounds=2).fit(data, key=KEY, engine=DaskEngine(mortal, 4, worker_timeout=HANG))
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=2).fit(data, key=KEY).item_factors_)


def test_workers_that_do_not_come_back_end_the_run_in_bounded_time(data):
    def send_away(model, round_number):
        client.cluster.scale(0)
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])

    with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as client:
        engine, begun = DaskEngine(client, 2, worker_timeout=1.5), time.monotonic()
        with pytest.raises(
            RuntimeError, match=r"no worker ran .* worker_timeout=1.5 seconds \(0 workers are connected\)"
        ):
            FMFLDP(n_rounds=3).fit(data, key=KEY, engine=engine, callback=send_away)
        assert time.monotonic() - begun < HANG


def test_a_cluster_that_starts_workers_on_demand_is_used_from_zero_and_left_at_zero(data):
    here = FMFLDP(n_rounds=3).fit(data, key=KEY)
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="20ms", wait_count=1)
        for _ in range(2):
            assert not client.scheduler_info(n_workers=-1)["workers"]
            model = FMFLDP(n_rounds=3).fit(data, key=KEY, engine=DaskEngine(client, 3, worker_timeout=HANG))
            np.testing.assert_array_equal(model.item_factors_, here.item_factors_)
            wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])


def test_a_cluster_without_workers_between_two_rounds_goes_on_with_new_ones(data):
    with Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as client:

        def scale(model, round_number):
            if round_number == 1:
                client.cluster.scale(0)
                wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])
                client.cluster.scale(3)

        engine = DaskEngine(client, worker_timeout=HANG)
        model = FMFLDP(n_rounds=4).fit(data, key=KEY, engine=engine, callback=scale)
    here = FMFLDP(n_rounds=4).fit(data, key=KEY)
    np.testing.assert_array_equal(model.item_factors_, here.item_factors_)
    assert model.ledger_.to_dict() == here.ledger_.to_dict()


def test_shards_on_disk_travel_as_paths(client, data, tmp_path):
    store_interactions(data, tmp_path / "data")
    stored = open_interactions(tmp_path / "data")
    assert all(len(pickle.dumps(shard)) < 400 for shard in stored.shard(2))
    assert len(pickle.dumps(data.shard(2)[0])) > 10_000
    model = FMFLDP(n_rounds=3).fit(stored, key=KEY, engine=DaskEngine(client))
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=3).fit(data, key=KEY).item_factors_)


def test_the_state_of_devices_stays_behind_when_a_system_is_sent(data):
    system, state = start(FedRec(n_rounds=2), data, KEY)
    system.local_round(state, data, KEY, 0)
    assert _without_devices(system).take_devices("shard-0") == (None, [])
    assert system.take_devices("shard-0")[0] is not None


@pytest.mark.ignores_values
def test_whole_numbers_are_added_up_on_the_workers(client, data, monkeypatch):
    added = []
    for method in ("receive", "add"):
        original = getattr(RoundReceiver, method)
        monkeypatch.setattr(
            RoundReceiver,
            method,
            lambda self, what, m=method, f=original: (added.append((m, type(what))), f(self, what))[1],
        )
    FMFLDP(n_rounds=2).fit(data, key=KEY, engine=DaskEngine(client, n_shards=5))
    assert added == [("add", PartialRound)] * 2  # one sum a round
    added.clear()
    FMFLDP(n_rounds=2, epsilon=None).fit(data, key=KEY, engine=DaskEngine(client, n_shards=5))
    assert added == [("receive", Update)] * 10  # the sum of floats depends on the order


# ---- bad inputs -----------------------------------------------------------------------------------------------------


class BabblingRounds(FMFRounds):
    """Rounds in which the second shard answers with an array of another shape."""

    def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
        update = super().local_round(state, shard, key, round, sender=sender, n_threads=n_threads)
        if sender == "shard-1":
            arrays = {name: array[:-1] for name, array in update.arrays.items()}
            return Update(update.round, update.sender, update.n_clients, arrays)
        return update


class Babbling(FMFLDP):
    """A model with these rounds."""

    def _rounds(self):
        return BabblingRounds(**vars(super()._rounds()))


def test_a_bad_answer_is_refused_by_name_and_the_run_goes_on(data):
    with Client(n_workers=1, processes=False, dashboard_address=":0") as here:  # another process cannot import a test
        engine = DaskEngine(here, n_shards=3)
        Babbling(n_rounds=2).fit(data, key=KEY, engine=engine)
    assert {(r.sender, r.round) for r in engine.rejections} == {("shard-1", 0), ("shard-1", 1)}
    assert any("must have shape" in r.reason for r in engine.rejections)


def test_other_objects_than_clients_and_clients_without_workers():
    with pytest.raises(TypeError, match=r"client must be a distributed.Client, got str"):
        DaskEngine("tcp://127.0.0.1:8786")
    with (
        Client(n_workers=0, processes=False, dashboard_address=":0") as empty,
        pytest.raises(ValueError, match=r"client has no worker; .* or pass `n_shards`"),
    ):
        DaskEngine(empty)
    with pytest.raises(ValueError, match=r"`client` must be connected to a scheduler, .*; make a new one"):
        DaskEngine(empty, 2)


def test_an_asynchronous_client_is_refused():
    async def make():
        async with Client(n_workers=1, processes=False, dashboard_address=":0", asynchronous=True) as client:
            DaskEngine(client)

    with pytest.raises(ValueError, match="`client` must be synchronous, got one with asynchronous=True"):
        asyncio.run(make())


@pytest.mark.parametrize("system", [FMFLDP(n_rounds=4), PrivRec(n_rounds=4, cohort_size=5, local_epochs=1)])
def test_tasks_that_another_user_of_the_cluster_cancels_end_the_run_with_a_clear_error(data, system):
    with Client(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as client:

        def restart(model, number):
            if number == 1:
                client.restart()

        with pytest.raises(RuntimeError, match=LOST) as error:
            system.fit(data.binarize(0.0), key=KEY, engine=DaskEngine(client), callback=restart)
        assert isinstance(error.value.__cause__, CancelledError)


def test_an_entropy_key_stays_at_home(client, data):
    with pytest.raises(ValueError, match="an entropy key never leaves its process"):
        FMFLDP(n_rounds=1).fit(data, key=Key.from_entropy(), engine=DaskEngine(client))


@pytest.fixture
def impatient(monkeypatch):
    """Each wait times out several times, and the garbage collector finds none of the cycles that this leaves."""
    monkeypatch.setattr(fastfedrec.engines.dask, "_POLL_INTERVAL", 0.001)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(
    "system",
    [FMFLDP(n_rounds=2), FMFLDP(epsilon=None, n_rounds=2), PrivRec(n_rounds=2, cohort_size=5, local_epochs=1)],
)
def test_workers_keep_nothing_of_a_run_that_ended(client, data, impatient, system, raises):
    def end(model, number):
        if raises:
            raise InterruptedError

    with pytest.raises(InterruptedError) if raises else contextlib.nullcontext() as error:
        system.fit(data.binarize(0.0), key=KEY, engine=DaskEngine(client, n_shards=5), callback=end)
    wait_until(lambda: not any(client.has_what().values()))  # workers are notified in the background
    assert (error is not None) == raises  # the traceback, which refers to the futures, is alive


# ---- statistics -----------------------------------------------------------------------------------------------------


class Dawdling(DaskEngine):
    """Engine that takes an additional half second in every round."""

    def _collect(self, *arguments):
        time.sleep(0.5)
        super()._collect(*arguments)


@pytest.mark.nightly
def test_the_share_of_the_engine_equals_its_measurement(client, tmp_path):
    """Pauses in the kernels are found in the kernels, pauses of the engine in the engine, and neither in processors."""
    bench, n_items, n_rounds = load_benches("engines.bench_dask"), 20_000, 4
    store_interactions(generate_implicit(2_000, n_items, key=KEY), tmp_path / "data")
    data = open_interactions(tmp_path / "data")
    _, long, dawdling = runs = [
        bench.measure(client, data, n_rounds, **options)
        for options in ({}, {"kernel_pause": 1.0}, {"engine": Dawdling(client)})
    ]
    for figures in runs:
        assert 0 < figures.kernels < figures.rounds
        assert 0 < figures.kernel_processors < figures.all_processors
        # A state for each of two shards comes in and goes out, the sum of their answers too (in some versions of Dask
        # the client takes it from the worker), and one answer goes to the other worker.
        state, answer = 4 * 5 * n_items, 16 * min(5 * n_items, 1_000 * 100)  # at most: nonzero coordinates and totals
        assert 4 * state + answer / 2 < figures.through_scheduler < 4 * state + 2 * answer + 200_000
        assert answer / 4 < figures.between_workers < answer + 200_000
    assert long.kernels > 3.0
    assert dawdling.rounds - dawdling.kernels > 1.5
    assert long.share < 0.5 < dawdling.share
    assert long.kernel_processors < long.kernels - 2.5
