"""The Dask engine: shards on the workers of a cluster that the caller brings."""

import copy
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfedrec.core.check import check_real
from fastfedrec.core.memory import memory_share
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.receiver import Heard, RoundReceiver
from fastfedrec.rounds.system import FederatedSystem, Update

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskEngine"]

_PAUSE = 1.0  # seconds between two looks at the cluster
_TASKS = ("_hold-", "_hear-", "_join-", "_answer-")  # begin the names of the tasks of a run


class DaskEngine(Engine):
    """Runs a system's rounds on a Dask cluster (needs the extra "dask").

    Each shard is one task a round, and answers with integers where the system sends integers, so that the model is the
    same to the bit as on one machine.  What a lost worker held is computed again, by another one.

    Parameters
    ----------
    client : distributed.Client
        Connected to a cluster, which stays the caller's: nothing is started or stopped.
    n_shards : int or None
        Into how many shards the users are split; None takes one for each worker there is.  More than there are workers
        shares work more evenly, and costs a message each.
    worker_timeout : float
        Seconds for which no worker may be at work on a run that is not done, as when all of them are lost and none
        comes back, before it ends with an error.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.

    Raises
    ------
    TypeError
        `client` is no Dask client.
    ValueError
        It is asynchronous, or has no worker.

    See Also
    --------
    fastfedrec.rounds.engine.Engine.run : Raises RuntimeError where no worker was at work for `worker_timeout` seconds,
        or where the run's tasks were cancelled.

    Notes
    -----
    Interactions in memory are sent to the workers through the scheduler, which keeps them, once.  Larger data belong on
    a disk that the workers see at the same path (`fastfedrec.data.store`): then a shard travels as a path and
    two numbers, and each worker reads its own part.

    The key is sent to the workers, so it must come from a seed: a run on a cluster is a simulation of a deployment, and
    its ledger says so.  Where a system's devices remember something between rounds (FedRec), that is sent to them and
    back with each round.

    Examples
    --------
    >>> from distributed import Client
    >>> from fastfedrec import FMFLDP, Key
    >>> from fastfedrec.datasets import generate_implicit
    >>> from fastfedrec.engines import DaskEngine
    >>> data = generate_implicit(300, 60, key=Key.from_seed(7))
    >>> with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
    ...     model = FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(1), engine=DaskEngine(client, n_shards=3))
    >>> here = FMFLDP(n_rounds=2).fit(data, key=Key.from_seed(1))
    >>> bool((model.item_factors_ == here.item_factors_).all())
    True
    """

    def __init__(self, client: "Client", n_shards: int | None = None, *, worker_timeout: float = 60.0):
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError("DaskEngine needs Dask; install it: pip install 'fastfedrec[dask]'") from error
        if not isinstance(client, Client):
            raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}")
        if client.asynchronous:
            raise ValueError(
                "`client` must be synchronous, got one with asynchronous=True; make it without that, outside "
                "the event loop"
            )
        n_workers = len(client.scheduler_info(n_workers=-1)["workers"])
        if not n_workers:
            raise ValueError("client has no worker; wait for one with client.wait_for_workers(1)")
        super().__init__(n_workers if n_shards is None else n_shards)
        self.client = client
        self.worker_timeout = check_real("worker_timeout", worker_timeout, low=0.0, exclusive=True)

    @contextmanager
    def _distribute(self, shards: Mapping[str, Interactions], key: Key) -> Iterator[Mapping[str, "Future[Any]"]]:
        if not key.is_simulation:
            raise ValueError(
                "key must be Key.from_seed(...) with DaskEngine: an entropy key never leaves its process; got one"
            )
        # As many on each worker, which Dask alone does not see to.
        workers = self._workers()
        home = {name: workers[place % len(workers)] for place, name in enumerate(shards)} if workers else {}
        handles = {
            name: self.client.submit(_hold, shard, workers=home.get(name), allow_other_workers=name in home, pure=False)
            for name, shard in shards.items()
        }
        try:
            while late := self._wait(handles.values(), while_there=home.values()):
                there = self._workers()
                for name in [
                    name for name, future in handles.items() if future in late and home.get(name) not in there
                ]:
                    handles[name].release()
                    handles[name] = self.client.submit(_hold, shards[name], pure=False)
                    home.pop(name, None)
            # From here on anywhere: what a lost worker held would wait for it for ever if all others are lost as well.
            free: dict[Any, list[str]] = {future.key: [] for future in handles.values()}
            self.client.sync(self.client.scheduler.set_restrictions, worker=free)  # type: ignore[union-attr]
            yield handles
        except CancelledError as error:
            raise RuntimeError(
                "the tasks of this run were cancelled, as client.restart() and client.cancel() do, by this client or "
                f"another one of the cluster ({error}); start the run anew"
            ) from error
        finally:
            for future in handles.values():  # not cancel: the scheduler closes on a client that cancels what was lost
                future.release()

    def _workers(self) -> list[str]:
        """Addresses of those that are there."""
        return list(self.client.scheduler_info(n_workers=-1)["workers"])

    def _wait(self, futures: Iterable["Future[Any]"], while_there: Collection[str] = ()) -> set["Future[Any]"]:
        """Wait until these are done, or until one of some workers is gone; which are not done."""
        from distributed import wait

        waiting, idle_since = set(futures), time.monotonic()
        while True:
            with suppress(TimeoutError), self.client.as_current():
                wait(waiting, timeout=_PAUSE)
                return set()
            waiting = {future for future in waiting if not future.done()}
            if not set(while_there) <= set(self._workers()):
                return waiting
            ours = (key for keys in self.client.processing().values() for key in keys)
            if any(str(key).startswith(_TASKS) for key in ours):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > self.worker_timeout:
                raise RuntimeError(
                    f"no worker has worked on this run for worker_timeout={self.worker_timeout:g} seconds "
                    f"({len(self._workers())} are there), so it ends; see the workers' logs, and start it anew"
                )

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, "Future[Any]"], key: Key, n_threads: int) -> None:
        # Whole numbers add up to the same sum in any order, so workers check and add them, two and two.  Floats are
        # added here, in the order of shards, as in one process; and what devices remember comes here in any case.
        system = receiver.system
        has_floats = any(np.dtype(rule.dtype).kind not in "biu" for rule in system.rules(receiver.state, 1).values())
        if has_floats or type(system).take_devices is not FederatedSystem.take_devices:
            super()._collect(receiver, handles, key, n_threads)
            return
        bare, state, round_number = _without_results(system), receiver.state, receiver.round
        level = [
            self.client.submit(
                _hear, bare, state, shard, key, round_number, name, receiver.expected[name], n_threads, pure=False
            )
            for name, shard in handles.items()
        ]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            joined = [self.client.submit(_join, bare, a, b, pure=False) for a, b in pairs]
            level = joined + level[2 * len(joined) :]
        self._wait(level)
        receiver.add(level[0].result())

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, "Future[Any]"], key: Key, n_threads: int
    ) -> Iterable[Update]:
        system, state, round_number = receiver.system, receiver.state, receiver.round
        bare = _without_results(system)
        answers = [
            self.client.submit(
                _answer, bare, system.take_devices(name), state, shard, key, round_number, name, n_threads, pure=False
            )
            for name, shard in handles.items()
        ]
        self._wait(answers)
        for name, (update, devices) in zip(handles, self.client.gather(answers), strict=True):
            system.put_devices(name, devices)
            yield update


def _hold(shard: Interactions) -> Interactions:
    # A task of its own, so that a shard whose worker is lost is made again.
    return shard


def _without_results(system: FederatedSystem) -> FederatedSystem:
    """A copy to send: what fitting has left on a model (names that end in _) is not needed to answer."""
    bare = copy.copy(system)
    bare.__dict__ = {name: value for name, value in vars(system).items() if not name.endswith("_")}
    bare.forget_devices()
    return bare


def _hear(
    system: FederatedSystem,
    state: Any,
    shard: Interactions,
    key: Key,
    round_number: int,
    name: str,
    n_clients: int,
    n_threads: int,
) -> Heard:
    """One shard's round, on a worker, looked at as if it came from a stranger."""
    receiver = RoundReceiver(system, state, round_number, {name: n_clients})
    receiver.receive(_answer(system, None, state, shard, key, round_number, name, n_threads)[0])
    return receiver.heard()


def _join(system: FederatedSystem, a: Heard, b: Heard) -> Heard:
    """What came of two sets of shards, on a worker."""
    return Heard(system.merge(a.total, b.total), a.rejections + b.rejections, a.answered | b.answered)


def _answer(
    system: FederatedSystem,
    devices: Any,
    state: Any,
    shard: Interactions,
    key: Key,
    round_number: int,
    name: str,
    n_threads: int,
) -> tuple[Update, Any]:
    """One shard's round, on a worker; its devices' memory comes and goes with it."""
    from distributed import get_worker

    n_threads = min(n_threads or get_worker().state.nthreads, get_worker().state.nthreads)
    system.put_devices(name, devices)
    with memory_share(get_worker().memory_manager.memory_limit):
        update = system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)
    return update, system.take_devices(name)
