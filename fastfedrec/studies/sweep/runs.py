"""The runs of a sweep: one model on one split under one seed, each stored in its own file, parallel and resumable."""

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
from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.evaluation import (
    LeaveOneOut,
    RandomHoldout,
    Sampled,
    Split,
    Splitter,
    TemporalSplit,
    UserHoldout,
    evaluate,
)
from fastfedrec.studies.files import checksum, run_or_load
from fastfedrec.systems.registry import make_system

__all__ = ["Job", "Protocol", "code_version", "describe_data", "machine", "run_all", "validation_splitter"]

_TESTED = "sweep.tested"
_VALIDATION = "sweep.validation"
# Folders and files of the package that no figure depends on: commands, and computations from finished figures.
_NOT_HASHED = (
    "cli", "core/doctor.py", "systems/private_recommender", "studies/advise", "studies/files.py", "studies/report.py",
    "studies/reproduce", "studies/sweep/cells.py", "studies/sweep/sweeps.py", "studies/sweep/table.py",
)  # fmt: skip
# A process that the system kills for lack of memory leaves no error message.
DIED = "the process ended without an error message, for example because memory ran out; try fewer jobs"


@dataclass(frozen=True)
class Protocol:
    """The evaluation that all runs of a sweep share.

    Parameters
    ----------
    metrics : tuple of str
        Names of metrics, as for `evaluation.evaluate`.
    candidates : Sampled or None
        Items that test items are ranked against, as for `evaluation.evaluate`; None for all unseen items.
    n_tested : int
        Maximum number of tested users, drawn at random.
    delta : float
        Delta at which every ledger is read.
    metrics_among_all : tuple of str
        Names of further metrics, with all unseen items as candidates; their results have the suffix "_all".
    """

    metrics: tuple[str, ...]
    candidates: Sampled | None
    n_tested: int
    delta: float
    metrics_among_all: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One run.

    Parameters
    ----------
    system : str
        Name of the system's class.
    parameters : dict
        Given parameters.
    seed : int
        Seed of generated data, of the split, the noise and the negatives.
    settings : dict
        All settings that the figures depend on, as JSON values.
    is_validation : bool
        Whether the run is fitted on a part of train and tested on the rest of it.
    """

    system: str
    parameters: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    is_validation: bool = False

    @property
    def name(self) -> str:
        """Name of the run's file: the system, a digest of all settings, and the seed."""
        # The digest leaves the seed out, so that all runs of one setting share a prefix.
        text = json.dumps({**self.settings, "seed": None}, sort_keys=True)
        return f"{self.system}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-seed-{self.seed}"


def describe_data(data: Any) -> dict[str, Any]:
    """Return a description that identifies a source of data, as JSON values."""
    if isinstance(data, Split):
        parts = {"train": data.train, "test": data.test, "given": data.given}
        return {name: describe_data(part) for name, part in parts.items() if part is not None}
    if not isinstance(data, Interactions):
        return {"generated": asdict(data)}
    sums = [checksum([data]), zlib.crc32(data.global_user_ids.tobytes())]  # a split depends on the users' ids
    return {"users_items_interactions": [*data.shape, data.n_interactions], "checksums": sums}


@functools.cache
def code_version() -> str:
    """Return the version, with a digest of the files that figures depend on if it is a development version."""
    if "dev" not in __version__:
        return __version__
    digest = hashlib.sha256()
    # Sorted paths and their names make the digest independent of the file system's order.
    for name, path in sorted(_hashed_files().items()):
        digest.update(f"{name}\n".encode())
        digest.update(path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:8]}"


def _hashed_files() -> dict[str, Path]:
    """Return the files that figures depend on, by their paths in the package."""
    import fastfedrec._kernels as _kernels

    roots = [("", Path(__file__).parents[2]), *(("_kernels/", Path(folder)) for folder in _kernels.__path__)]
    paths = {
        prefix + path.relative_to(root).as_posix(): path
        for prefix, root in roots
        for path in root.rglob("*")
        if path.suffix in (".py", ".so", ".pyd")
    }
    return {
        name: path
        for name, path in paths.items()
        if not any(name == p or name.startswith(f"{p}/") for p in _NOT_HASHED)
    }


def machine() -> str:
    """Return the class of machine that durations are measured on."""
    return f"{platform.system()} {platform.machine()}, {hardware.instruction_set()}"


# ---- one run ---------------------------------------------------------------------------------------------------------


def run_job(data: Any, job: Job, protocol: Protocol, folder: Path | None, n_threads: int) -> dict[str, Any]:
    """Do one run or read its file, and return its figures; a failed run returns {"error": ...} and is not stored."""
    try:
        return run_or_load(folder, job.name, job.settings, lambda: _measure(data, job, protocol, n_threads))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _measure(data: Any, job: Job, protocol: Protocol, n_threads: int) -> dict[str, Any]:
    key = Key.from_seed(job.seed)
    split = _split(data, job.seed, protocol.n_tested, n_threads, is_validation=job.is_validation)
    train, test = split.train, split.test
    model = make_system(job.system, job.parameters)
    # Only the fit is timed; data, split and evaluation are not.
    started = time.perf_counter()
    model.fit(train, key=key, n_threads=n_threads)
    seconds = time.perf_counter() - started
    measure = functools.partial(evaluate, model, train, test, given=split.given, key=key, n_threads=n_threads)
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", UserWarning)
        metrics = dict(measure(metrics=protocol.metrics, candidates=protocol.candidates))
        if protocol.metrics_among_all:
            among_all = measure(metrics=protocol.metrics_among_all)
            metrics |= {f"{name}_all": value for name, value in among_all.items()}
    communication = getattr(model, "communication_", None)
    totals = None if communication is None else communication.to_dict()
    return {
        "metrics": metrics,
        "warnings": [str(warning.message) for warning in caught_warnings],
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
    """Return the epsilon as a JSON value; it is "infinite" if the ledger has an unsupported event."""
    try:
        return epsilon_to_json(ledger.epsilon(view, delta))
    except UnsupportedEventError:
        return epsilon_to_json(math.inf)


_last_split: dict[str, Any] = {}


def _split(data: Any, seed: int, n_tested: int, n_threads: int, *, is_validation: bool = False) -> Split:
    """Return the split of one seed, or the validation split of its train, with at most `n_tested` tested users."""
    # The last split is cached, because the runs of one seed follow each other.
    if _last_split.get("data") is not data or _last_split["name"] != (seed, n_tested, is_validation):
        _last_split.clear()
        key = Key.from_seed(seed)
        if isinstance(data, Split):
            split = data
        elif isinstance(data, Interactions):
            split = next(LeaveOneOut().split(data, key=key))
        else:
            split = data.split(key, n_threads)
        if is_validation:
            # The split of the test used the key, so the split of train uses another one.
            other_key = Key.from_seed(int(key.words(_VALIDATION, size=1)[0]) >> 1)
            split = next(validation_splitter(data).split(split.train, key=other_key))
        test = split.test
        # Users without a test item are never drawn, so exactly min(n_tested, n_users with a test item) are tested.
        order = np.argsort(key.uniform(_TESTED, size=test.n_users), kind="stable")
        is_tested = np.zeros(test.n_users, dtype=bool)
        is_tested[order[test.interactions_per_user()[order] > 0][:n_tested]] = True
        test = test.keep_interactions(np.repeat(is_tested, test.interactions_per_user()))
        _last_split.update(data=data, name=(seed, n_tested, is_validation), split=replace(split, test=test))
    return _last_split["split"]


def validation_splitter(data: Any) -> Splitter:
    """Return the splitter of train that has the form of the test: by users, by time, or at random within each user.

    Parameters
    ----------
    data : Split or Interactions
        Data of the sweep; without a split one item of each user is tested.

    Returns
    -------
    Splitter
        Splitter that holds out as large a share of train as the test is of all.
    """
    if not isinstance(data, Split):
        return LeaveOneOut()
    split = data
    n_train, n_test = split.train.n_interactions, split.test.n_interactions
    share = n_test / max(n_train + n_test, 1)
    if split.given is not None:
        n_users = int(np.count_nonzero(split.test.interactions_per_user()))
        of_user = n_test / (n_test + split.given.n_interactions)
        return UserHoldout(n_users / (n_users + split.train.n_users), given=1 - of_user)
    order = _order_in_time(split)
    if order == "all":
        return TemporalSplit(share=share)
    if split.test.interactions_per_user().max(initial=0) > 1:
        return RandomHoldout(share=share, latest=order == "user")
    return LeaveOneOut(latest=order == "user")


def _order_in_time(split: Split) -> str | None:
    """Return whether test follows train for "all" users combined or for each "user"; None for neither."""
    # A setting that is chosen on a random split may be worse on later interactions.
    first_of_test, last_of_train = _extreme_times(split.test, np.minimum), _extreme_times(split.train, np.maximum)
    first_of_train = _extreme_times(split.train, np.minimum)
    if not first_of_test or not last_of_train:
        return None
    earliest, latest = min(first_of_train.values()), max(last_of_train.values())
    if latest <= min(first_of_test.values()) and earliest < latest:
        return "all"
    shared = first_of_test.keys() & last_of_train.keys()
    in_order = all(last_of_train[user] <= first_of_test[user] for user in shared)
    return "user" if in_order and any(last_of_train[user] < first_of_test[user] for user in shared) else None


def _extreme_times(data: Interactions, extreme: np.ufunc) -> dict[Any, int]:
    """Return the earliest or latest time of each user with interactions; empty if a time is missing."""
    times, has_rows = data.timestamps, data.interactions_per_user() > 0
    if times is None or not has_rows.any() or (times == MISSING_TIMESTAMP).any():
        return {}
    user_times = extreme.reduceat(times, data.indptr[:-1][has_rows])
    return dict(zip(data.user_ids[has_rows].tolist(), user_times.tolist(), strict=True))


# ---- many runs -------------------------------------------------------------------------------------------------------

_worker_options: dict[str, Any] = {}


def _start_worker(data: Any, protocol: Protocol, folder: Path | None, n_threads: int) -> None:
    import threadpoolctl

    # BLAS and OpenMP use all processors by default, so each worker limits them to its share.
    threadpoolctl.threadpool_limits(n_threads)
    _worker_options.update(data=data, protocol=protocol, folder=folder, n_threads=n_threads)


def _run_in_worker(job: Job) -> dict[str, Any]:
    return run_job(job=job, **_worker_options)


def run_all(
    jobs: list[Job], data: Any, protocol: Protocol, folder: Path | None, *, n_jobs: int, n_threads: int
) -> Generator[tuple[Job, dict[str, Any]]]:
    """Do all runs in `n_jobs` processes with `n_threads` threads in total, and yield each one when it is finished."""
    # Jobs of one seed are adjacent, so that each process splits the data once.
    if n_jobs == 1:
        for job in jobs:
            yield job, run_job(data, job, protocol, folder, n_threads)
        _last_split.clear()
        return
    setup = data, protocol, folder, max(1, n_threads // n_jobs)
    lost_jobs = []
    for job, result in _pooled(jobs, setup, n_jobs):
        if result is None:
            lost_jobs.append(job)
        else:
            yield job, result
    # The pool breaks as a whole if one process dies.  A process for each lost job shows which one fails.
    for job in lost_jobs:
        for _, result in _pooled([job], setup, 1):
            yield job, {"error": DIED} if result is None else result


def _pooled(jobs: list[Job], setup: tuple[Any, ...], n_jobs: int) -> Iterator[tuple[Job, dict[str, Any] | None]]:
    """Run jobs in a pool of processes, and yield each with its result, or with None if its process died."""
    # A forked interpreter is limited to a single thread, so new ones are spawned.
    context = multiprocessing.get_context("spawn")
    # `setup` is sent to each process once, not with each job.
    pool = ProcessPoolExecutor(min(n_jobs, len(jobs)), context, _start_worker, setup)
    try:
        jobs_by_future = {pool.submit(_run_in_worker, job): job for job in jobs}
        for future in as_completed(jobs_by_future):
            try:
                yield jobs_by_future[future], future.result()
            except BrokenProcessPool:
                yield jobs_by_future[future], None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
