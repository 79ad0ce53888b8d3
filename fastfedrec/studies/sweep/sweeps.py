"""Sweeps over parameters of systems on one data set: utility over true epsilon.

The cost of every cell is computed from its ledger, for replacing all data of one user, against the adversary of a trust
model.  It does not depend on the epsilon that a system was given or that a paper states.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.core.check import check_flag, check_instance, check_integer, check_real
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_from_json, plain
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike, as_interactions
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, Split, parse_metrics
from fastfedrec.studies.sweep.cells import Cell, chosen_cells, label_of
from fastfedrec.studies.sweep.runs import (
    Job,
    Protocol,
    code_version,
    describe_data,
    machine,
    run_all,
    validation_splitter,
)
from fastfedrec.studies.sweep.table import Sweep
from fastfedrec.systems.claims import catalogue_note
from fastfedrec.systems.registry import make_system, system_class

__all__ = ["GeneratedData", "Setting", "baselines", "grid", "sweep"]

__dir__ = __all__.copy  # dir() lists only the public names

_THINNING = "sweep.kept"
MAX_TESTED = 20_000  # maximum number of tested users; the standard error of a share is then below .004
_BASELINE_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)  # epsilons of DP popularity, for adding or removing a user


@dataclass(frozen=True)
class GeneratedData:
    """Data that `datasets.generate_implicit` draws for every seed, with different users and items.

    Parameters
    ----------
    n_users, n_items : int
        Number of users and of items of each draw.
    row_length : float or None
        Mean number of items per user, after thinning; None uses the generator's own mean.
    preset : str
        Preset of `datasets.generate_implicit`.
    share_kept : float
        Share of the interactions that are kept, each one drawn independently, in (0, 1].  A share below 1 makes
        shorter rows than the generator's.
    n_held_out : int
        Number of further users of the same draw, who are tested but not trained on.  Their number does not depend on
        the number of train users.  0 tests the train users.
    """

    n_users: int
    n_items: int
    row_length: float | None = None
    preset: str = "movielens-1m"
    share_kept: float = 1.0
    n_held_out: int = 0

    def __post_init__(self) -> None:
        # The class is frozen, so checked values are set through `object`.
        set_ = functools.partial(object.__setattr__, self)
        set_("n_users", check_integer("n_users", self.n_users, low=2))
        set_("n_items", check_integer("n_items", self.n_items, low=31))
        if self.row_length is not None:
            set_("row_length", check_real("row_length", self.row_length, low=0.0, exclusive=True))
        set_("share_kept", check_real("share_kept", self.share_kept, low=0.0, high=1.0))
        if self.share_kept == 0:
            raise ValueError("share_kept must be above 0, got 0; pass 1.0 to keep all")
        set_("n_held_out", check_integer("n_held_out", self.n_held_out, low=0))

    def draw(self, key: Key, n_threads: int) -> Interactions:
        """Generate the data of one seed.

        Parameters
        ----------
        key : Key
            Key of the draw.
        n_threads : int
            Number of threads; it changes no value.

        Returns
        -------
        Interactions
            Generated data; the last `n_held_out` rows are the held-out users.
        """
        # Thinning keeps this share of each row on average, so the generator's rows are longer by its inverse.
        mean = None if self.row_length is None else self.row_length / self.share_kept
        data = generate_implicit(
            self.n_users + self.n_held_out, self.n_items, key=key, preset=self.preset, mean_interactions=mean,
            n_threads=n_threads,
        )  # fmt: skip
        if self.share_kept == 1:
            return data
        return data.keep_interactions(key.uniform(_THINNING, size=data.n_interactions) < self.share_kept)

    def split(self, key: Key, n_threads: int) -> Split:
        """Draw the data, and leave one interaction out of each tested row.

        Parameters
        ----------
        key : Key
            Key of the draw and of the split.
        n_threads : int
            Number of threads; it changes no value.

        Returns
        -------
        Split
            Train and test rows.  With held-out users, `given` has their remaining interactions.
        """
        all_rows = self.draw(key, n_threads)
        if not self.n_held_out:
            return next(LeaveOneOut().split(all_rows, key=key))
        # The first `n_users` rows are trained on, and the remaining rows are tested.
        takes_part = np.arange(all_rows.n_users) < self.n_users
        given, test = next(LeaveOneOut().split(all_rows.select_users(~takes_part), key=key))
        return Split(all_rows.select_users(takes_part), test, given)

    def __str__(self) -> str:
        rows = "" if self.row_length is None else f", {self.row_length:g} items a user"
        preset = "" if (self.preset, self.share_kept) == ("movielens-1m", 1.0) else f" ({self.preset} preset)"
        held_out = f", tested on {self.n_held_out:,} others" if self.n_held_out else ""
        size = f"{self.n_users:,} users x {self.n_items:,} items"
        return f"GENERATED DATA{preset}: {size}{rows}{held_out}, drawn anew for each seed"


@dataclass(frozen=True)
class Setting:
    """One system with some parameters.

    Parameters
    ----------
    system : str
        Name of the system, such as "dp-gram" or "DPGram".
    parameters : mapping
        Parameters of its constructor; all remaining ones keep their defaults.

    Examples
    --------
    >>> from fastfedrec.studies.sweep.sweeps import Setting
    >>> Setting("dp-gram", {"epsilon": 2.0}).system
    'DPGram'
    """

    system: str
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "system", system_class(self.system).__name__)
        object.__setattr__(self, "parameters", dict(self.parameters))
        make_system(self.system, dict(self.parameters))  # a bad value raises here, before any run starts


def grid(system: str, **values: Any) -> list[Setting]:
    """Return every combination of the given parameter values.

    Parameters
    ----------
    system : str
        Name of the system, such as "dp-gram" or "DPGram".
    **values : list or object
        A list of values for each parameter, or one value.

    Returns
    -------
    list of Setting
        All settings; the last parameter varies fastest.

    Examples
    --------
    >>> from fastfedrec.studies.sweep.sweeps import grid
    >>> [setting.parameters for setting in grid("dp-gram", epsilon=[0.5, 1.0], score="ridge")]
    [{'epsilon': 0.5, 'score': 'ridge'}, {'epsilon': 1.0, 'score': 'ridge'}]
    """
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    return [Setting(system, dict(zip(values, row, strict=True))) for row in itertools.product(*lists)]


def baselines() -> list[Setting]:
    """Return the baselines that every sweep is compared with.

    Returns
    -------
    list of Setting
        Popularity; DP popularity at several epsilons, with a trusted server and from local reports; EASE and matrix
        factorisation by ALS, without privacy.
    """
    # With a trusted server, replacing a user costs twice the epsilon, so local reports get twice the epsilon as well.
    local = [2 * epsilon for epsilon in _BASELINE_EPSILONS]
    return [
        Setting("popularity", {}),
        *grid("dp-popularity", epsilon=list(_BASELINE_EPSILONS)),
        *grid("dp-popularity", epsilon=local, trust="local"),
        Setting("ease", {}),
        Setting("fmf-ldp", {"epsilon": None}),
    ]


def sweep(
    settings: Iterable[Setting],
    data: InteractionsLike | Split | GeneratedData,
    *,
    seeds: int | Sequence[int] = 3,
    folder: str | Path | None = None,
    n_jobs: int = 1,
    n_threads: int = 0,
    metrics: Sequence[str] = ("hr@10", "ndcg@10"),
    candidates: Sampled | None = None,
    metrics_among_all: Sequence[str] = (),
    n_tested: int = MAX_TESTED,
    delta: float = 1e-6,
    with_baselines: bool = True,
    validate: bool = False,
    source: str | None = None,
    show_progress: bool = False,
) -> Sweep:
    """Fit every setting under every seed, and rank one held-out interaction of each user, or the given test items.

    Parameters
    ----------
    settings : iterable of Setting
        Settings of any systems, for example from `grid`; all systems share one front.
    data : Interactions, matrix, frame, Split or GeneratedData
        Interactions are the same for all seeds, and each seed has its own split.  A `Split` is the same for all seeds.
        `GeneratedData` are drawn and split for each seed.
    seeds : int or sequence of int
        Seeds of split, noise and sampled items; an integer n means 0, ..., n - 1.
    folder : str, Path or None
        Folder for a file of each finished run.  Runs with the same settings and code are read from it.
    n_jobs : int
        Number of processes.  With more than 1, a script must be guarded by ``if __name__ == "__main__"``.
    n_threads : int
        Number of threads of all processes in total, divided evenly; 0 for all processors.
    metrics : sequence of str
        Names of metrics, as for `evaluation.evaluate`; fronts use the first one.
    candidates : Sampled or None
        Items that test items are ranked against, as for `evaluation.evaluate`; None for all unseen items.
    metrics_among_all : sequence of str
        Names of further metrics, with all unseen items as candidates; their results have the suffix "_all".
    n_tested : int
        Maximum number of tested users, drawn at random.
    delta : float
        Delta at which every ledger is read.
    with_baselines : bool
        Whether to add `baselines()`.
    validate : bool
        Whether to measure all settings on a validation split of train, and to fit only chosen settings on all of train
        and test them: the best setting of each system, and the fronts.  The validation split has the form of the
        split: by users if there are given items; by time if the test follows train, for all users or for each user;
        else at random.  It holds out one interaction of each user if the test does, else a share.
    source : str or None
        Name of the data, shown in the table.
    show_progress : bool
        Draw a progress bar with the remaining time (needs tqdm).

    Returns
    -------
    Sweep
        All cells.  If a run failed, its setting's cell has the remaining seeds, and the run is listed in `failures`.
        With `validate`, `cells` have the figures of validation, and `tested` has the cells of the chosen settings.

    Examples
    --------
    >>> from fastfedrec.studies.sweep.sweeps import GeneratedData, grid, sweep
    >>> found = sweep(grid("dp-gram", epsilon=[1.0, 4.0]), GeneratedData(2000, 60), seeds=2, with_baselines=False)
    >>> [round(cell.true_epsilon("central"), 2) for cell in found.cells]
    [1.76, 7.27]
    >>> found.front("local")
    []
    """
    if not isinstance(data, GeneratedData | Split):
        data = as_interactions("data", data)
    given_settings = list(settings)
    for setting in given_settings:
        check_instance("settings", setting, Setting, "use sweep.grid")
    seed_numbers = range(check_integer("seeds", seeds, low=1)) if isinstance(seeds, int) else seeds
    seed_numbers = [check_integer("seeds", seed, low=0) for seed in seed_numbers]
    for metric in parse_metrics(metrics):
        if metric.function is not None:
            raise TypeError(f"metrics must be names, for runs are stored by them, got the function {metric.name}")
    if metrics_among_all:
        parse_metrics(metrics_among_all)
    protocol = Protocol(
        tuple(metrics),
        None if candidates is None else check_instance("candidates", candidates, Sampled, "use Sampled(99)"),
        check_integer("n_tested", n_tested, low=1),
        check_real("delta", delta, low=0.0, high=1.0, exclusive=True),
        tuple(metrics_among_all),
    )
    n_jobs, n_threads = check_integer("n_jobs", n_jobs, low=1), resolve_n_threads(n_threads)
    added_baselines = (
        [s for s in baselines() if s not in given_settings] if check_flag("with_baselines", with_baselines) else []
    )
    show_progress, validate = check_flag("show_progress", show_progress), check_flag("validate", validate)
    common = {"code": code_version(), "data": describe_data(data), **plain(asdict(protocol))}
    plan = [
        (setting, [_job(setting, seed, common, validate) for seed in seed_numbers])
        for setting in [*given_settings, *added_baselines]
    ]
    results = _run(plan, data, protocol, folder, n_jobs, n_threads, show_progress)
    cells = _cells(plan, results, added_baselines)
    tested: tuple[Cell, ...] = ()
    if validate:
        # A setting is chosen by its figures of validation alone; only the chosen settings are tested.
        chosen = {cell.label for cell in chosen_cells(cells, metrics[0])}
        test_plan = [
            (setting, [_job(setting, seed, common) for seed in seed_numbers])
            for setting, _ in plan
            if _label(setting) in chosen
        ]
        test_results = _run(test_plan, data, protocol, folder, n_jobs, n_threads, show_progress)
        tested = _cells(test_plan, test_results, added_baselines)
        plan, results = [*plan, *test_plan], results | test_results
    jobs = [job for _, jobs_of in plan for job in jobs_of]
    failures = [
        {"system": job.system, "parameters": plain(job.parameters), "seed": job.seed, "error": error}
        for job in jobs
        if (error := results[job.name].get("error"))
    ]
    validation = {"validation": repr(validation_splitter(data))} if validate else {}
    # A note states whether the list of items comes from private data.
    fitted_on = data.train if isinstance(data, Split) else data
    note = catalogue_note(fitted_on) if isinstance(fitted_on, Interactions) else None
    notes = [note] if note else []
    return Sweep(
        source or str(data),
        {**common, **validation, "seeds": seed_numbers, "machine": machine(), "n_jobs": n_jobs, "n_threads": n_threads},
        cells,
        tuple(failures),
        (*notes, *dict.fromkeys(text for job in jobs for text in results[job.name].get("warnings", ()))),
        tested,
    )


# Each setting with its runs.
_Plan = list[tuple[Setting, list[Job]]]


def _run(
    plan: _Plan,
    data: Any,
    protocol: Protocol,
    folder: str | Path | None,
    n_jobs: int,
    n_threads: int,
    show_progress: bool,
) -> dict[str, dict[str, Any]]:
    """Do the runs of a plan, and return their figures by name."""
    # Jobs are ordered by seed, so that all runs on one split follow each other.
    jobs = {job.name: job for of_seed in zip(*(jobs for _, jobs in plan), strict=True) for job in of_seed}
    runs = run_all(
        list(jobs.values()), data, protocol, None if folder is None else Path(folder), n_jobs=n_jobs,
        n_threads=n_threads,
    )  # fmt: skip
    bar = progress_rounds(len(jobs), show=show_progress, description="sweep", unit="run")
    results = {}
    for _, (job, run) in zip(bar, runs, strict=False):
        results[job.name] = run
    runs.close()
    return results


def _cells(plan: _Plan, results: Mapping[str, dict[str, Any]], added_baselines: Sequence[Setting]) -> tuple[Cell, ...]:
    cells = [_cell(setting, jobs_of, results, setting in added_baselines) for setting, jobs_of in plan]
    return tuple(cell for cell in cells if cell is not None)


def _label(setting: Setting) -> str:
    """Return the label of the setting's cell."""
    return label_of(setting.system, plain(dict(setting.parameters)))


def _job(setting: Setting, seed: int, common: dict[str, Any], is_validation: bool = False) -> Job:
    # Settings include all defaults, so that a changed default leads to a new run.
    parameters = make_system(setting.system, dict(setting.parameters)).get_params()
    settings = {**common, "system": setting.system, "parameters": plain(parameters), "seed": seed}
    if is_validation:
        settings["part"] = "validation"
    return Job(setting.system, dict(setting.parameters), seed, settings, is_validation)


def _cell(
    setting: Setting, jobs: Sequence[Job], results: Mapping[str, dict[str, Any]], is_baseline: bool
) -> Cell | None:
    """Return the cell of one setting, or None if every run failed."""
    finished = [(job.seed, results[job.name]) for job in jobs if "error" not in results[job.name]]
    if not finished:
        return None
    runs = [run for _, run in finished]
    costs = {
        view: [epsilon_from_json(run["privacy"]["epsilon"][view]) for run in runs] for view in TRUST_VIEWS.values()
    }
    return Cell(
        setting.system,
        plain(dict(setting.parameters)),
        tuple(seed for seed, _ in finished),
        {name: tuple(run["metrics"][name] for run in runs) for name in runs[0]["metrics"]},
        min(run["n_tested"] for run in runs),
        {view: max(values) for view, values in costs.items()},
        runs[0]["privacy"]["delta"],
        tuple(sorted({trust for run in runs for trust in run["privacy"]["trust"]})),
        _max_bytes(run["bytes_per_client"] for run in runs),
        sum(run["seconds"] for run in runs) / len(runs),
        is_baseline,
    )


def _max_bytes(byte_counts: Iterable[dict[str, int] | None]) -> dict[str, int] | None:
    """Return the maximum number of bytes in each direction over the runs."""
    # A release may choose the number of rounds, so runs of one setting may differ in their traffic.
    counted = [counts for counts in byte_counts if counts is not None]
    return {way: max(counts[way] for counts in counted) for way in counted[0]} if counted else None
