"""Tests of the Dask engine without its scheduler: one clear error, and each round that began is charged once."""

import gc
import threading
from contextlib import suppress

import numpy as np
import pytest
from distributed import Client, Scheduler, Worker
from distributed.utils import LoopRunner
from support.patience import HANG

from fastfedrec import FMFLDP, Key
from fastfedrec.accounting import Ledger
from fastfedrec.engines import DaskEngine
from fastfedrec.systems.fmf.fmf_ldp_rounds import FMFRounds

# A cluster that closes leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

KEY = Key.from_seed(7)
# Actions in the first task of the third round, which another process cannot share.
ACTIONS = []


class ActingRounds(FMFRounds):
    """Rounds in which one task does something to its cluster."""

    def local_round(self, state, shard, key, round, *, sender="shard-0", n_threads=0):
        if round == 2 and ACTIONS:
            ACTIONS.pop()()
        return super().local_round(state, shard, key, round, sender=sender, n_threads=n_threads)


class Acting(FMFLDP):
    """A model with these rounds."""

    def _rounds(self):
        return ActingRounds(**vars(super()._rounds()))


class Place:
    """A scheduler with one worker at a fixed address, which can be stopped and started again."""

    def __init__(self):
        self.runner = LoopRunner()
        self.runner.start()
        self.port = 0
        self.start()

    def start(self):
        async def start():
            self.scheduler = await Scheduler(host="127.0.0.1", port=self.port, dashboard_address=":0")
            self.worker = await Worker(self.scheduler.address, nthreads=1, dashboard_address=":0")

        self.runner.run_sync(start)
        self.port = self.scheduler.port
        self.address = self.scheduler.address

    def stop(self):
        async def stop():
            await self.worker.close(executor_wait=False)  # a task may wait for the end of the run
            await self.scheduler.close()

        self.runner.run_sync(stop)

    def restart(self):
        self.stop()
        self.start()

    def restart_by_another_client(self):
        with Client(self.address) as other:
            other.restart(wait_for_workers=False)


@pytest.fixture
def place():
    place = Place()
    yield place
    place.stop()
    place.runner.stop(timeout=HANG)
    gc.collect()  # lost connections leave sockets, which no other test may collect


LOSSES = [Place.restart, Place.stop, Place.restart_by_another_client]
LOST = (
    r"tasks of this run were cancelled .* client\.restart\(\) .*, or were lost with the scheduler; start the run again"
)


@pytest.mark.parametrize("epsilon", [2.5, None], ids=["integers", "floats"])
@pytest.mark.parametrize("is_in_round", [False, True], ids=["between", "within"])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_scheduler_ends_the_run_with_one_clear_error(place, data, lose, is_in_round, epsilon):
    ledger, done, ended = Ledger(), [], threading.Event()
    loss = threading.Thread(target=lose, args=(place,))

    def act():
        loss.start()
        assert ended.wait(HANG)  # the task does not end before the run

    def after(model, round_number):
        done.append(round_number)
        if round_number == 1 and not is_in_round:
            lose(place)

    ACTIONS[:] = [act] if is_in_round else []
    client = Client(place.address, timeout=HANG)
    client._timeout = 2  # seconds for which it looks for a lost scheduler
    try:
        engine = DaskEngine(client, 2, worker_timeout=HANG)
        with pytest.raises(RuntimeError, match=LOST):
            Acting(n_rounds=4, epsilon=epsilon).fit(
                data.binarize(0.0), key=KEY, engine=engine, callback=after, ledger=ledger
            )
    finally:
        ended.set()
        if is_in_round:
            loss.join(HANG)
        with suppress(OSError, TimeoutError):
            client.close(timeout=HANG)
    assert done == [0, 1]
    # The third round began, so it is charged, and once.
    assert ledger.events.total() == 3
    assert not ACTIONS


def test_a_restarted_scheduler_takes_the_run_again_with_the_same_bits(place, data):
    with Client(place.address) as client:

        def restart(model, round_number):
            place.restart()

        engine = DaskEngine(client, 2, worker_timeout=HANG)
        with pytest.raises(RuntimeError, match="start the run again"):
            FMFLDP(n_rounds=2).fit(data, key=KEY, engine=engine, callback=restart)
        client.wait_for_workers(1, timeout=HANG)
        model = FMFLDP(n_rounds=2).fit(data, key=KEY, engine=engine)
    np.testing.assert_array_equal(model.item_factors_, FMFLDP(n_rounds=2).fit(data, key=KEY).item_factors_)


def test_an_error_of_a_task_stays_as_it_is(place, data):
    """The control: with a connection, no error of a system is taken for a loss."""

    def fail():
        raise ZeroDivisionError("the task failed")

    ACTIONS[:] = [fail]
    with Client(place.address) as client, pytest.raises(ZeroDivisionError, match="the task failed"):
        Acting(n_rounds=4).fit(data.binarize(0.0), key=KEY, engine=DaskEngine(client, 2))
