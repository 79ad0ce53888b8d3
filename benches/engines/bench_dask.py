"""FMF-LDP on two Dask workers: what a round costs beside the kernels, what passes the scheduler, and memory.

All that is not the kernel of the slowest worker counts as the engine's here, the server's own step included.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from fastfedrec import FMFLDP, Key
from fastfedrec.accounting import CommunicationLedger, Ledger
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import LocalEngine

N_ROUNDS = 10
N_WORKERS = 2

_STORE = """
import sys
from fastfedrec import Key, datasets
from fastfedrec.data.store import store_interactions
data = datasets.generate_implicit(1_000_000, 26_744, key=Key.from_seed(1), mean_interactions=50.0)
store_interactions(data, sys.argv[1])
"""


def start_cluster():
    """A client of two workers, each a process of one thread."""
    from distributed import Client

    return Client(n_workers=N_WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0")


def run_rounds(engine, data, n_rounds=N_ROUNDS, after_first=lambda: None):
    """The last item factors, and when each round ended; users' own factors, which `fit` solves at its end, are not."""
    system, key, ends = FMFLDP(n_rounds=n_rounds), Key.from_seed(1), []

    def after_round(round_number, state):
        if not round_number:
            after_first()
        ends.append(time.time())

    state = engine.run(
        system,
        system.initial_state(data.n_items, key),
        data,
        key=key,
        n_rounds=n_rounds,
        ledger=Ledger(),
        communication=CommunicationLedger(),
        after_round=after_round,
    )
    return state.item_factors, ends


# ---- what a run consists of -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """Of one run without its first round, in which workers import the package and map their files.

    Parameters
    ----------
    rounds, kernels : float
        Seconds of all rounds, and of the kernel on each round's slowest worker.
    n_rounds : int
        How many these are.
    all_processors, kernel_processors : float
        Seconds of processors in them: of all processes, and of the kernels on all workers.  Other work on the machine
        changes them less than seconds on the clock.
    through_scheduler, between_workers : float
        Bytes a round that the process of client and scheduler received and sent (what these two tell each other, once),
        and that workers sent each other.
    peak_here : int
        Bytes of memory, mapped files included, of the process of client and scheduler.
    peak_worker : int
        The same of the worker with most.
    """

    rounds: float
    kernels: float
    n_rounds: int
    all_processors: float
    kernel_processors: float
    through_scheduler: float
    between_workers: float
    peak_here: int
    peak_worker: int

    @property
    def share(self):
        """Of a round, on the clock, beyond the kernel of its slowest worker."""
        return 1 - self.kernels / self.rounds

    @property
    def processor_share(self):
        """Of the processors' time, beyond the kernels."""
        return 1 - self.kernel_processors / self.all_processors


def measure(client, data, n_rounds=N_ROUNDS, kernel_pause=0.0, engine=None):
    """Run once and look at everything; a pause makes each call of the kernel longer, to test what is measured."""
    from cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    from fastfedrec.engines import DaskEngine

    here = sys.modules[__name__]
    register_pickle_by_value(here)  # workers need not find this file
    try:
        with _counted_writes() as written:
            client.run(_watch, kernel_pause)
            looks = []

            def look():
                looks.append((time.process_time(), written.copy(), client.run(_look)))

            ends = run_rounds(engine or DaskEngine(client), data, n_rounds, look)[1]
            look()
            client.run(_unwatch)
    finally:
        unregister_pickle_by_value(here)
    (first_used, first_written, first), (used, written, last) = looks
    sockets = {own for own, _ in written}  # of client and scheduler: workers connect to it, and it connects to them
    for name, worker in last.items():
        first_used, used = first_used + first[name]["used"], used + worker["used"]
        first_written, written = first_written + first[name]["written"], written + worker["written"]
    written -= first_written
    passed = sum(n for ends_of, n in written.items() if sockets.intersection(ends_of))
    spans = [worker["spans"] for worker in last.values()]
    kernels = sum(
        max(sum(wall for at, wall, _ in own if begin <= at < end) for own in spans) for begin, end in pairwise(ends)
    )
    n_after = len(ends) - 1
    return Figures(
        rounds=ends[-1] - ends[0],
        kernels=kernels,
        n_rounds=n_after,
        all_processors=used - first_used,
        kernel_processors=sum(cpu for own in spans for at, _, cpu in own if at >= ends[0]),
        through_scheduler=passed / n_after,
        between_workers=(sum(written.values()) - passed) / n_after,
        peak_here=_peak_bytes(),
        peak_worker=max(worker["peak"] for worker in last.values()),
    )


@contextmanager
def _counted_writes():
    """Bytes that this process writes to sockets of Dask, by (own address, other's address)."""
    from distributed.comm.tcp import TCP

    written, write = Counter(), TCP.write

    async def counted(self, *arguments, **options):
        n = await write(self, *arguments, **options)
        written[self.local_address, self.peer_address] += n
        return n

    TCP.write = counted
    try:
        yield written
    finally:
        TCP.write = write


def _watch(pause, dask_worker):
    """On a worker: time the kernel's calls, and count what is written."""
    from fastfedrec._kernels.systems.fmf import fmf_ldp

    spans, kernel = [], fmf_ldp.private_round

    def timed(*arguments):
        at, wall, cpu = time.time(), time.perf_counter(), time.thread_time()
        kernel(*arguments)
        time.sleep(pause)
        spans.append((at, time.perf_counter() - wall, time.thread_time() - cpu))

    fmf_ldp.private_round, counting = timed, _counted_writes()
    dask_worker.spans, dask_worker.written = spans, counting.__enter__()
    dask_worker.unwatch = lambda: (setattr(fmf_ldp, "private_round", kernel), counting.__exit__(None, None, None))


def _look(dask_worker):
    seen = {"spans": dask_worker.spans, "written": dask_worker.written.copy()}
    return seen | {"used": time.process_time(), "peak": _peak_bytes()}


def _unwatch(dask_worker):
    dask_worker.unwatch()


def _peak_bytes():
    """Of this process; `getrusage` would count its parent's from before it was started."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


# ---- benchmarks -----------------------------------------------------------------------------------------------------


class Rounds:
    """200,000 users x 5,000 items in memory, beside the same two threads in one process."""

    version = "2"

    def setup(self):
        try:
            self.client = start_cluster()
        except ImportError:
            raise NotImplementedError("Dask is not installed") from None
        from fastfedrec.engines import DaskEngine

        self.data = generate_implicit(200_000, 5_000, key=Key.from_seed(0))
        self.dask, self.local = DaskEngine(self.client), LocalEngine(2)
        if (run_rounds(self.dask, self.data)[0] != run_rounds(self.local, self.data)[0]).any():
            raise AssertionError("the model is another")

    def teardown(self):
        if hasattr(self, "client"):
            self.client.close()

    def _seconds(self, engine):
        """Between the first round's end and the last's: data are where they belong."""
        ends = run_rounds(engine, self.data)[1]
        return ends[-1] - ends[0]

    def track_seconds_a_round(self):
        return min(self._seconds(self.dask) for _ in range(3)) / (N_ROUNDS - 1)

    track_seconds_a_round.unit = "s"

    def track_share_of_the_engine(self):
        """Of a round, beyond what the same two threads take in one process."""
        there = min(self._seconds(self.dask) for _ in range(3))
        here = min(self._seconds(self.local) for _ in range(3))
        return max(0.0, 1 - here / there)

    track_share_of_the_engine.unit = "of 1"


class Million:
    """1,000,000 users x 26,744 items, 50 items a user, on a disk: each worker maps its own half."""

    def setup_cache(self):
        try:
            import distributed  # noqa: F401
        except ImportError:
            return None
        folder = os.path.abspath("million")
        subprocess.run([sys.executable, "-P", "-c", _STORE, folder], check=True)  # its memory is not to be counted here
        return measure_stored(folder)

    def setup(self, found):
        if found is None:
            raise NotImplementedError("Dask is not installed")

    def track_share_of_the_engine(self, found):
        return found.share

    def track_processor_share_of_the_engine(self, found):
        return found.processor_share

    def track_seconds_a_round(self, found):
        return found.rounds / found.n_rounds

    def track_bytes_through_the_scheduler(self, found):
        return found.through_scheduler

    def track_bytes_between_workers(self, found):
        return found.between_workers

    def track_peak_of_client_and_scheduler(self, found):
        return found.peak_here

    def track_peak_of_a_worker(self, found):
        return found.peak_worker

    track_share_of_the_engine.unit = track_processor_share_of_the_engine.unit = "of 1"
    track_seconds_a_round.unit = "s"
    track_bytes_through_the_scheduler.unit = track_bytes_between_workers.unit = "bytes a round"
    track_peak_of_client_and_scheduler.unit = track_peak_of_a_worker.unit = "bytes"


def measure_stored(folder):
    """The figures of a run over stored interactions, on a cluster of its own."""
    from fastfedrec.data.store import open_interactions

    with start_cluster() as client:
        return measure(client, open_interactions(folder))
