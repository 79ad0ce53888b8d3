"""The Dask engine: shards on the workers of the caller's cluster."""

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
from fastfedrec.rounds.receiver import PartialRound, RoundReceiver
from fastfedrec.rounds.system import FederatedSystem, Update

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskEngine"]

# Seconds between two checks of the cluster.
_POLL_INTERVAL = 1.0
# Prefixes of the names of a run's tasks, which Dask derives from the functions' names.
_TASK_PREFIXES = ("_hold-", "_run_round-", "_join-", "_answer-")


class DaskEngine(Engine):
    """Runs a system's rounds on a Dask cluster (needs the extra "dask").

    Each shard is one task in each round.  Where the system sends integers, the tasks return integers, so the model is
    bit-identical to a fit on one machine.  If a worker is lost, another worker computes its tasks again.

    Parameters
    ----------
    client : distributed.Client
        Client of a running cluster; the engine does not start or stop it.
    n_shards : int or None
        Number of shards of the users; None means the number of workers.  More shards than workers balance the load
        better, at the cost of one message for each shard.  A cluster without workers needs a number.
    worker_timeout : float
        Seconds, above 0, without a worker that runs a task of an unfinished run, for example after all workers are
        lost.  The run then ends with an error.

    Attributes
    ----------
    rejections : list of Rejection
        Messages of the last run that the server refused.

    Raises
    ------
    TypeError
        `client` is not a Dask client.
    ValueError
        `client` is asynchronous or not connected, or has no worker and `n_shards` is None.

    See Also
    --------
    fastfedrec.rounds.engine.Engine.run : Raises RuntimeError if no worker ran a task for `worker_timeout` seconds, if
        the run's tasks were cancelled, or if the client lost the scheduler.

    Notes
    -----
    Interactions in memory are sent once to the workers through the scheduler, which keeps a copy.  Larger data belong
    on a disk with the same path on all workers (`fastfedrec.data.store`): then a shard is sent as a path and two
    numbers, and each worker reads its part.

    The key is sent to the workers, so it must come from a seed: a run on a cluster is a simulation of a deployment, and
    its ledger states this.  If a system's devices keep state between rounds (FedRec), each round sends it to the
    workers and back.

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
            raise TypeError(f"client must be a distributed.Client, got {type(client).__name__}; make one")
        if client.asynchronous:
            raise ValueError(
                "`client` must be synchronous, got one with asynchronous=True; make it without that, outside "
                "the event loop"
            )
        if client.status != "running":
            raise ValueError(f"`client` must be connected to a scheduler, got {client!r}; make a new one")
        if n_shards is None and not (n_shards := len(_connected_workers(client))):
            raise ValueError(
                "client has no worker; wait for one with client.wait_for_workers(1), or pass `n_shards` if the cluster "
                "starts workers when it has tasks"
            )
        super().__init__(n_shards)
        self.client = client
        self.worker_timeout = check_real("worker_timeout", worker_timeout, low=0.0, exclusive=True)

    @contextmanager
    def _distribute(self, shards: Mapping[str, Interactions], key: Key) -> Iterator[Mapping[str, "Future[Any]"]]:
        if not key.is_simulation:
            raise ValueError(
                "key must be Key.from_seed(...) with DaskEngine: an entropy key never leaves its process; got one"
            )
        handles: dict[str, Future[Any]] = {}
        try:
            with self._reporting_losses():
                self._send(shards, handles)
            yield handles
        finally:
            _release(handles.values())

    def _send(self, shards: Mapping[str, Interactions], handles: "dict[str, Future[Any]]") -> None:
        """Send the shards to the workers, and wait until each is held by one."""
        # Shards are assigned to workers evenly, which Dask does not guarantee.
        workers = self._workers()
        home = {name: workers[i % len(workers)] for i, name in enumerate(shards)} if workers else {}
        for name, shard in shards.items():
            handles[name] = self.client.submit(
                _hold, shard, workers=home.get(name), allow_other_workers=name in home, pure=False
            )
        while unfinished := self._wait(handles.values(), required_workers=home.values()):
            workers = self._workers()
            for name in [
                name for name, future in handles.items() if future in unfinished and home.get(name) not in workers
            ]:
                handles[name].release()
                handles[name] = self.client.submit(_hold, shards[name], pure=False)
                home.pop(name, None)
        # Lift the restrictions to workers: a lost worker's task with a restriction could wait for it forever.
        free: dict[Any, list[str]] = {future.key: [] for future in handles.values()}
        self.client.sync(self.client.scheduler.set_restrictions, worker=free)  # type: ignore[union-attr]

    @contextmanager
    def _reporting_losses(self) -> Iterator[None]:
        """Raise one error with a remedy if the tasks of the run or the connection to the scheduler are lost."""
        try:
            yield
        except Exception as error:
            # Dask has many errors for a lost scheduler, and its client states the loss.
            if not isinstance(error, CancelledError) and self.client.status == "running":
                raise
            raise RuntimeError(
                "the tasks of this run were cancelled by a client of the cluster, for example by client.restart() or "
                "client.cancel(), or were lost with the scheduler; start the run again, with a new client if this one "
                f"has no connection ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            ) from error

    def _workers(self) -> list[str]:
        """Return the addresses of the connected workers."""
        return _connected_workers(self.client)

    def _wait(self, futures: Iterable["Future[Any]"], required_workers: Collection[str] = ()) -> set["Future[Any]"]:
        """Wait until all futures are done or a required worker is lost, and return the unfinished futures."""
        from distributed import wait

        waiting, idle_since = set(futures), time.monotonic()
        while True:
            with suppress(TimeoutError), self.client.as_current():
                wait(waiting, timeout=_POLL_INTERVAL)
                return set()
            waiting = {future for future in waiting if not future.done()}
            if not set(required_workers) <= set(self._workers()):
                return waiting
            running = (key for keys in self.client.processing().values() for key in keys)
            if any(str(key).startswith(_TASK_PREFIXES) for key in running):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > self.worker_timeout:
                raise RuntimeError(
                    f"no worker ran a task of this run for worker_timeout={self.worker_timeout:g} seconds "
                    f"({len(self._workers())} workers are connected); see the workers' logs, and start the run again"
                )

    def _collect(self, receiver: RoundReceiver, handles: Mapping[str, "Future[Any]"], key: Key, n_threads: int) -> None:
        # A sum of integers does not depend on the order, so workers check and add them in pairs.  Floats are added
        # here, in the order of shards, as in one process.  The state of devices returns here in any case.
        system = receiver.system
        has_floats = any(np.dtype(rule.dtype).kind not in "biu" for rule in system.rules(receiver.state, 1).values())
        if has_floats or type(system).take_devices is not FederatedSystem.take_devices:
            super()._collect(receiver, handles, key, n_threads)
            return
        bare, state, round_number = _without_devices(system), receiver.state, receiver.round
        with self._reporting_losses():
            level = [
                self.client.submit(
                    _run_round, bare, state, shard, key, round_number, name, receiver.expected[name], n_threads,
                    pure=False,
                )
                for name, shard in handles.items()
            ]  # fmt: skip
            try:
                # A binary tree of sums: each level adds neighbouring pairs.
                while len(level) > 1:
                    pairs = level[: len(level) // 2 * 2]
                    level[: len(pairs)] = [
                        self.client.submit(_join, bare, a, b, pure=False)
                        for a, b in zip(pairs[::2], pairs[1::2], strict=True)
                    ]
                    _release(pairs)  # the scheduler keeps what a task still needs
                self._wait(level)
                total = level[0].result()
            finally:
                _release(level)
        receiver.add(total)

    def _answers(
        self, receiver: RoundReceiver, handles: Mapping[str, "Future[Any]"], key: Key, n_threads: int
    ) -> Iterable[Update]:
        system, state, round_number = receiver.system, receiver.state, receiver.round
        bare = _without_devices(system)
        with self._reporting_losses():
            futures = [
                self.client.submit(
                    _answer, bare, system.take_devices(name), state, shard, key, round_number, name, n_threads,
                    pure=False,
                )
                for name, shard in handles.items()
            ]  # fmt: skip
            try:
                self._wait(futures)
                answers = self.client.gather(futures)
            finally:
                _release(futures)
        for name, (update, devices) in zip(handles, answers, strict=True):
            system.put_devices(name, devices)
            yield update


def _connected_workers(client: "Client") -> list[str]:
    """Return the addresses of the workers of a cluster; none are known while the client connects again."""
    return list(client.scheduler_info(n_workers=-1).get("workers", ()))


def _release(futures: Iterable["Future[Any]"]) -> None:
    """Let the workers forget the results of tasks.

    A wait of Dask that times out leaves a reference cycle with its futures.  Without a release, the workers keep the
    results until the garbage collector of this process finds the cycle.
    """
    # Not `cancel`: the scheduler closes the connection of a client that cancels a lost task.
    for future in futures:
        future.release()


def _hold(shard: Interactions) -> Interactions:
    # A separate task, so that Dask computes the shard again if its worker is lost.
    return shard


def _without_devices(system: FederatedSystem) -> FederatedSystem:
    """Return a copy without the state of devices, which travels with each shard."""
    bare = copy.copy(system)
    bare.forget_devices()
    return bare


def _run_round(
    system: FederatedSystem,
    state: Any,
    shard: Interactions,
    key: Key,
    round_number: int,
    name: str,
    n_clients: int,
    n_threads: int,
) -> PartialRound:
    """Run a shard's round on a worker, and check its message like untrusted input."""
    receiver = RoundReceiver(system, state, round_number, {name: n_clients})
    receiver.receive(_answer(system, None, state, shard, key, round_number, name, n_threads)[0])
    return receiver.partial_round()


def _join(system: FederatedSystem, a: PartialRound, b: PartialRound) -> PartialRound:
    """Merge the results of two sets of shards on a worker."""
    return PartialRound(system.merge(a.total, b.total), a.rejections + b.rejections, a.answered | b.answered)


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
    """Run a shard's round on a worker, and return its message and the new state of its devices."""
    from distributed import get_worker

    # Dask may run several tasks on one worker at a time, so a task uses the worker's threads at most.
    n_threads = min(n_threads or get_worker().state.nthreads, get_worker().state.nthreads)
    system.put_devices(name, devices)
    with memory_share(get_worker().memory_manager.memory_limit):
        update = system.local_round(state, shard, key, round_number, sender=name, n_threads=n_threads)
    return update, system.take_devices(name)
