"""FMF-LDP on two Dask workers: a round's time beyond the kernels, the scheduler's traffic, and memory.

The engine's share is the time beyond the slowest worker's kernel, and includes the server's step.
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
    """Return a client of two workers, which are processes with one thread."""
    from distributed import Client

    return Client(n_workers=N_WORKERS, threads_per_worker=1, processes=True, dashboard_address=":0")


def run_rounds(engine, data, n_rounds=N_ROUNDS, after_first=lambda: None):
    """Return the last item factors, and the time of each round's end."""
    # User factors are not computed: `fit` solves for them after the last round.
    system, key, ends = FMFLDP()._rounds(), Key.from_seed(1), []

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


# ---- measurements of a run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """Figures of one run without its first round, in which workers import the package and map their files.

    Parameters
    ----------
    rounds, kernels : float
        Seconds of all rounds, and of the kernel on each round's slowest worker.
    n_rounds : int
        Number of these rounds.
    all_processors, kernel_processors : float
        CPU seconds of all processes, and of the kernels on all workers.  Other load on the machine changes them less
        than wall-clock seconds.
    through_scheduler, between_workers : float
        Bytes of a round through the process of client and scheduler, and between workers.  Messages between client and
        scheduler count once.
    peak_here : int
        Peak memory of the process of client and scheduler in bytes, including mapped files.
    peak_worker : int
        Maximum of the workers' peak memory in bytes, including mapped files.
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
        """Share of a round's wall-clock time beyond the kernel of its slowest worker."""
        return 1 - self.kernels / self.rounds

    @property
    def processor_share(self):
        """Share of the CPU time beyond the kernels."""
        return 1 - self.kernel_processors / self.all_processors


def measure(client, data, n_rounds=N_ROUNDS, kernel_pause=0.0, engine=None):
    """Run once and return the figures; tests make each call of the kernel longer by a pause."""
    from cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    from fastfedrec.engines import DaskEngine

    here = sys.modules[__name__]
    register_pickle_by_value(here)  # workers cannot import this file
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
    sockets = {address for address, _ in written}  # of client and scheduler, for connections in both directions
    # Totals are this process plus all workers, from the end of the first round to the end of the last.
    for name, worker in last.items():
        first_used, used = first_used + first[name]["used"], used + worker["used"]
        first_written, written = first_written + first[name]["written"], written + worker["written"]
    written -= first_written
    # Bytes pass the scheduler if one end of the connection belongs to it.
    passed = sum(n for ends_of, n in written.items() if sockets.intersection(ends_of))
    spans = [worker["spans"] for worker in last.values()]
    # The kernel's time in a round is the time of its slowest worker.
    kernels = sum(
        max(sum(wall for at, wall, _ in calls if begin <= at < end) for calls in spans) for begin, end in pairwise(ends)
    )
    n_after = len(ends) - 1
    return Figures(
        rounds=ends[-1] - ends[0],
        kernels=kernels,
        n_rounds=n_after,
        all_processors=used - first_used,
        kernel_processors=sum(cpu for calls in spans for at, _, cpu in calls if at >= ends[0]),
        through_scheduler=passed / n_after,
        between_workers=(sum(written.values()) - passed) / n_after,
        peak_here=_peak_bytes(),
        peak_worker=max(worker["peak"] for worker in last.values()),
    )


@contextmanager
def _counted_writes():
    """Yield the bytes that this process writes to Dask's sockets, by (local address, remote address)."""
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
    """Measure the kernel's calls and the written bytes on a worker."""
    from fastfedrec._kernels.systems.fmf import fmf_ldp

    spans, kernel = [], fmf_ldp.private_round

    def timed(*arguments):
        at, wall, cpu = time.time(), time.perf_counter(), time.thread_time()
        kernel(*arguments)
        time.sleep(pause)
        spans.append((at, time.perf_counter() - wall, time.thread_time() - cpu))

    # The worker holds the records and the undo function, since later calls run in the same process.
    fmf_ldp.private_round, counting = timed, _counted_writes()
    dask_worker.spans, dask_worker.written = spans, counting.__enter__()
    dask_worker.unwatch = lambda: (setattr(fmf_ldp, "private_round", kernel), counting.__exit__(None, None, None))


def _look(dask_worker):
    seen = {"spans": dask_worker.spans, "written": dask_worker.written.copy()}
    return seen | {"used": time.process_time(), "peak": _peak_bytes()}


def _unwatch(dask_worker):
    dask_worker.unwatch()


def _peak_bytes():
    # `getrusage` would include the memory of the parent process from before the start.
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


# ---- benchmarks -----------------------------------------------------------------------------------------------------


class Rounds:
    """200,000 users x 5,000 items in memory, against the same two threads in one process."""

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
            raise AssertionError("the two engines give different factors")

    def teardown(self):
        if hasattr(self, "client"):
            self.client.close()

    def _seconds(self, engine):
        """Return the seconds from the end of the first round, when data are distributed, to the end of the last."""
        ends = run_rounds(engine, self.data)[1]
        return ends[-1] - ends[0]

    def track_seconds_a_round(self):
        return min(self._seconds(self.dask) for _ in range(3)) / (N_ROUNDS - 1)

    track_seconds_a_round.unit = "s"

    def track_share_of_the_engine(self):
        """Return the share of a round's time beyond the time of the same two threads in one process."""
        on_dask = min(self._seconds(self.dask) for _ in range(3))
        in_process = min(self._seconds(self.local) for _ in range(3))
        return max(0.0, 1 - in_process / on_dask)

    track_share_of_the_engine.unit = "of 1"


class Million:
    """1,000,000 users x 26,744 items on disk, with 50 items for each user; each worker maps half of the users."""

    def setup_cache(self):
        try:
            import distributed  # noqa: F401
        except ImportError:
            return None
        folder = os.path.abspath("million")
        subprocess.run([sys.executable, "-P", "-c", _STORE, folder], check=True)  # its memory must not count here
        return measure_stored(folder)

    def setup(self, figures):
        if figures is None:
            raise NotImplementedError("Dask is not installed")

    def track_share_of_the_engine(self, figures):
        return figures.share

    def track_processor_share_of_the_engine(self, figures):
        return figures.processor_share

    def track_seconds_a_round(self, figures):
        return figures.rounds / figures.n_rounds

    def track_bytes_through_the_scheduler(self, figures):
        return figures.through_scheduler

    def track_bytes_between_workers(self, figures):
        return figures.between_workers

    def track_peak_of_client_and_scheduler(self, figures):
        return figures.peak_here

    def track_peak_of_a_worker(self, figures):
        return figures.peak_worker

    track_share_of_the_engine.unit = track_processor_share_of_the_engine.unit = "of 1"
    track_seconds_a_round.unit = "s"
    track_bytes_through_the_scheduler.unit = track_bytes_between_workers.unit = "bytes a round"
    track_peak_of_client_and_scheduler.unit = track_peak_of_a_worker.unit = "bytes"


def measure_stored(folder):
    """Return the figures of a run over stored interactions, on a separate cluster."""
    from fastfedrec.data.store import open_interactions

    with start_cluster() as client:
        return measure(client, open_interactions(folder))
