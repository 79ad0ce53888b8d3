"""The runs of a sweep: one model on one split under one seed, each in its own file, in parallel, resumable."""

import functools
import hashlib
import json
import math
import multiprocessing
import platform
import time
import warnings
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.accounting import Ledger, UnsupportedEventError
from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.core import hardware
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_to_json
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import LeaveOneOut, Sampled, Split, evaluate
from fastfedrec.studies.reproduce.side_by_side import checksum, kept
from fastfedrec.systems.registry import make_system

__all__ = ["Job", "Protocol", "code_version", "describe_data", "machine", "run_all"]

_TESTED = "sweep.tested"
# What a figure does not depend on: commands, and what is made of figures afterwards; folders and files of the package.
_NO_PART = (
    "cli", "core/doctor.py", "systems/private_recommender", "studies/advise", "studies/reproduce",
    "studies/sweep/cells.py", "studies/sweep/sweeps.py", "studies/sweep/table.py",
)  # fmt: skip
# A process that ran out of memory cannot say so.
DIED = "the process ended without a word, as one does that the system stops for want of memory; try fewer jobs"


@dataclass(frozen=True)
class Protocol:
    """What all runs of a sweep have in common.

    Parameters
    ----------
    metrics : tuple of str
        As for `evaluation.evaluate`.
    candidates : Sampled or None
        As for `evaluation.evaluate`: what test items are ranked against; None for all unseen items.
    n_tested : int
        Users who are tested, at most, drawn at random.
    delta : float
        At which every ledger is read.
    """

    metrics: tuple[str, ...]
    candidates: Sampled | None
    n_tested: int
    delta: float


@dataclass(frozen=True)
class Job:
    """One run.

    Parameters
    ----------
    system : str
        Name of the class.
    parameters : dict
        Those that were given.
    seed : int
        Of the data where they are generated, of the split, the noise and the negatives.
    settings : dict
        Everything the figures depend on, in plain JSON.
    """

    system: str
    parameters: dict[str, Any]
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """Of its file: the system, a digest of all settings, the seed."""
        text = json.dumps({**self.settings, "seed": None}, sort_keys=True)
        return f"{self.system}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-seed-{self.seed}"


def describe_data(data: Any) -> dict[str, Any]:
    """What tells one source of data from another, in plain JSON."""
    if isinstance(data, Split):
        parts = {"train": data.train, "test": data.test, "given": data.given}
        return {name: describe_data(part) for name, part in parts.items() if part is not None}
    if not isinstance(data, Interactions):
        return {"generated": asdict(data)}
    sums = [checksum([data]), zlib.crc32(data.global_user_ids.tobytes())]  # splits go by the users' ids
    return {"users_items_interactions": [*data.shape, data.n_interactions], "checksums": sums}


@functools.cache
def code_version() -> str:
    """The version, and for one in development a digest of the files that figures depend on."""
    if "dev" not in __version__:
        return __version__
    digest = hashlib.sha256()
    for name, path in sorted(_parts().items()):
        digest.update(f"{name}\n".encode())
        digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:8]}"


def _parts() -> dict[str, Path]:
    """The files that figures depend on, by their places in the package."""
    import fastfedrec._kernels as _kernels

    places = [("", Path(__file__).parents[2]), *(("_kernels/", Path(folder)) for folder in _kernels.__path__)]
    found = {
        prefix + path.relative_to(root).as_posix(): path
        for prefix, root in places
        for path in root.rglob("*")
        if path.suffix in (".py", ".so", ".pyd")
    }
    return {
        name: path for name, path in found.items() if not any(name == p or name.startswith(f"{p}/") for p in _NO_PART)
    }


def machine() -> str:
    """The class of machine that seconds were taken on."""
    return f"{platform.system()} {platform.machine()}, {hardware.instruction_set()}"


# ---- one run ---------------------------------------------------------------------------------------------------------


def run_job(data: Any, job: Job, protocol: Protocol, folder: Path | None, n_threads: int) -> dict[str, Any]:
    """Do one run, or read it; a failure is a result as well, and is not kept.

    Parameters
    ----------
    data : Interactions, GeneratedData or Split
        To split, or split already.
    job : Job
        Which run.
    protocol : Protocol
        How it is measured.
    folder : Path or None
        Where finished runs lie.
    n_threads : int
        Changes no figure but the seconds.

    Returns
    -------
    dict
        Plain JSON; with the one entry "error" where it failed.
    """
    try:
        return kept(folder, job.name, job.settings, lambda: _measure(data, job, protocol, n_threads))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _measure(data: Any, job: Job, protocol: Protocol, n_threads: int) -> dict[str, Any]:
    key = Key.from_seed(job.seed)
    split = _split(data, job.seed, protocol.n_tested, n_threads)
    train, test = split.train, split.test
    model = make_system(job.system, job.parameters)
    started = time.perf_counter()
    model.fit(train, key=key, n_threads=n_threads)
    seconds = time.perf_counter() - started
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        metrics = evaluate(
            model, train, test, given=split.given, metrics=protocol.metrics, candidates=protocol.candidates, key=key,
            n_threads=n_threads,
        )  # fmt: skip
    communication = getattr(model, "communication_", None)
    totals = None if communication is None else communication.to_dict()
    return {
        "metrics": dict(metrics),
        "warnings": [str(warning.message) for warning in warned],
        "n_tested": int((test.interactions_per_user() > 0).sum()),
        "users_items_interactions": [*train.shape, train.n_interactions + test.n_interactions],
        "privacy": {
            "privacy_unit": "user",
            "neighboring": "replace",
            "delta": protocol.delta,
            "epsilon": {view: _true_epsilon(model.ledger_, view, protocol.delta) for view in SHORT_NAMES},
            "trust": sorted({getattr(event, "trust", "none") for event in model.ledger_.events}),
            "ledger": model.ledger_.to_dict(),
        },
        "bytes_per_client": totals and {way: totals[f"{way}_per_client"] for way in ("download", "upload")},
        "seconds": seconds,
        "n_threads": n_threads,
        "machine": machine(),
    }


def _true_epsilon(ledger: Ledger, view: str, delta: float) -> float | str:
    """As JSON holds it; "infinite" also where nothing is known."""
    try:
        return epsilon_to_json(ledger.epsilon(view, delta))
    except UnsupportedEventError:
        return epsilon_to_json(math.inf)


_last_split: dict[str, Any] = {}


def _split(data: Any, seed: int, n_tested: int, n_threads: int) -> Split:
    """The split of one seed, with the users whom it tests; the last one is kept, for runs come seed by seed."""
    if _last_split.get("data") is not data or _last_split["name"] != (seed, n_tested):
        _last_split.clear()
        key = Key.from_seed(seed)
        if isinstance(data, Split):
            split = data
        elif isinstance(data, Interactions):
            split = next(LeaveOneOut().split(data, key=key))
        else:
            split = data.split(key, n_threads)
        test = split.test
        order = np.argsort(key.uniform(_TESTED, size=test.n_users), kind="stable")
        is_tested = np.zeros(test.n_users, dtype=bool)
        is_tested[order[test.interactions_per_user()[order] > 0][:n_tested]] = True
        test = test.keep_interactions(np.repeat(is_tested, test.interactions_per_user()))
        _last_split.update(data=data, name=(seed, n_tested), split=replace(split, test=test))
    return _last_split["split"]


# ---- many runs -------------------------------------------------------------------------------------------------------

_in_worker: dict[str, Any] = {}


def _start_worker(data: Any, protocol: Protocol, folder: Path | None, n_threads: int) -> None:
    import threadpoolctl

    # What takes all processors where nobody says otherwise gets its share as well.
    threadpoolctl.threadpool_limits(n_threads)
    _in_worker.update(data=data, protocol=protocol, folder=folder, n_threads=n_threads)


def _work(job: Job) -> dict[str, Any]:
    return run_job(job=job, **_in_worker)


def run_all(
    jobs: list[Job], data: Any, protocol: Protocol, folder: Path | None, *, n_jobs: int, n_threads: int
) -> Generator[tuple[Job, dict[str, Any]]]:
    """Do all runs, some at a time, and give each as it is finished.

    Parameters
    ----------
    jobs : list of Job
        Runs of one seed beside each other, so that a process splits once.
    data : Interactions, GeneratedData or Split
        Sent to each process once.
    protocol : Protocol
        How they are measured.
    folder : Path or None
        Where finished runs lie.
    n_jobs : int
        Processes; 1 stays in this one.
    n_threads : int
        Of all processes together.

    Yields
    ------
    tuple of Job and dict
        As `run_job` returns.
    """
    if n_jobs == 1:
        for job in jobs:
            yield job, run_job(data, job, protocol, folder, n_threads)
        _last_split.clear()
        return
    setup = data, protocol, folder, max(1, n_threads // n_jobs)
    lost = []
    for job, found in _pooled(jobs, setup, n_jobs):
        if found is None:
            lost.append(job)
        else:
            yield job, found
    # One process died and took the others along; which run it was shows when each has a process of its own.
    for job in lost:
        for _, found in _pooled([job], setup, 1):
            yield job, {"error": DIED} if found is None else found


def _pooled(jobs: list[Job], setup: tuple[Any, ...], n_jobs: int) -> Iterator[tuple[Job, dict[str, Any] | None]]:
    """Run in new interpreters, for a forked one has a single thread; None for what was lost."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(n_jobs, len(jobs)), context, _start_worker, setup)
    try:
        waiting = {pool.submit(_work, job): job for job in jobs}
        for future in as_completed(waiting):
            try:
                yield waiting[future], future.result()
            except BrokenProcessPool:
                yield waiting[future], None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
