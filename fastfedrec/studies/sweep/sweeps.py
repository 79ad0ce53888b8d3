"""Sweeps: any parameters of any systems on one data set, and what utility costs in true epsilon.

The cost of every cell is that of its ledger, for replacing all data of one user, against the adversary that a trust
model leaves; the number that a system was asked for, or that a paper states, is not used.
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
from fastfedrec.studies.sweep.cells import Cell
from fastfedrec.studies.sweep.runs import Job, Protocol, code_version, describe_data, machine, run_all
from fastfedrec.studies.sweep.table import Sweep
from fastfedrec.systems.claims import catalogue_note
from fastfedrec.systems.registry import make_system, system_class

__all__ = ["GeneratedData", "Setting", "baselines", "grid", "sweep"]

_KEPT = "sweep.kept"
MOST_TESTED = 20_000  # a share's standard error is then below .004
_BASELINE_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of DP popularity, for adding or removing a user


@dataclass(frozen=True)
class GeneratedData:
    """Data that `datasets.generate_implicit` draws anew for every seed: other users, and other items.

    Parameters
    ----------
    n_users, n_items : int
        Of each draw.
    row_length : float or None
        Items of a user, on average; None takes the generator's own.
    preset : str
        As for `datasets.generate_implicit`.
    share_kept : float
        Share of the interactions that is kept, each drawn by itself, in (0, 1]: for shorter rows than the generator's.
        `row_length` is what is left.
    n_held_out : int
        Further people of the same draw, who take no part and are tested in place of those who do: as many can be
        tested as one likes, however few take part.  0 tests those who take part.
    """

    n_users: int
    n_items: int
    row_length: float | None = None
    preset: str = "movielens-1m"
    share_kept: float = 1.0
    n_held_out: int = 0

    def __post_init__(self) -> None:
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
        """Generate them.

        Parameters
        ----------
        key : Key
            Names the draw.
        n_threads : int
            Changes nothing.

        Returns
        -------
        Interactions
            Nobody's data; the last `n_held_out` rows are of those who take no part.
        """
        mean = None if self.row_length is None else self.row_length / self.share_kept
        data = generate_implicit(
            self.n_users + self.n_held_out, self.n_items, key=key, preset=self.preset, mean_interactions=mean,
            n_threads=n_threads,
        )  # fmt: skip
        if self.share_kept == 1:
            return data
        return data.keep_interactions(key.uniform(_KEPT, size=data.n_interactions) < self.share_kept)

    def split(self, key: Key, n_threads: int) -> Split:
        """Draw them, and leave one interaction out of each row that is tested.

        Parameters
        ----------
        key : Key
            Names the draw and the split.
        n_threads : int
            Changes nothing.

        Returns
        -------
        Split
            With held-out people, `given` is what is left of their rows.
        """
        whole = self.draw(key, n_threads)
        if not self.n_held_out:
            return next(LeaveOneOut().split(whole, key=key))
        takes_part = np.arange(whole.n_users) < self.n_users
        given, test = next(LeaveOneOut().split(whole.select_users(~takes_part), key=key))
        return Split(whole.select_users(takes_part), test, given)

    def __str__(self) -> str:
        rows = "" if self.row_length is None else f", {self.row_length:g} items a user"
        how = "" if (self.preset, self.share_kept) == ("movielens-1m", 1.0) else f" ({self.preset} preset)"
        others = f", tested on {self.n_held_out:,} others" if self.n_held_out else ""
        size = f"{self.n_users:,} users x {self.n_items:,} items"
        return f"GENERATED DATA{how}: {size}{rows}{others}, drawn anew for each seed"


@dataclass(frozen=True)
class Setting:
    """One system with some parameters.

    Parameters
    ----------
    system : str
        As "dp-gram" or "DPGram".
    parameters : mapping
        Of its constructor; all others keep their defaults.

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
        make_system(self.system, dict(self.parameters))  # a bad value is named now, not after hours


def grid(system: str, **values: Any) -> list[Setting]:
    """Every combination of some parameters' values.

    Parameters
    ----------
    system : str
        As "dp-gram" or "DPGram".
    **values : list or object
        For each parameter a list of values, or one value.

    Returns
    -------
    list of Setting
        The last parameter varies fastest.

    Examples
    --------
    >>> from fastfedrec.studies.sweep.sweeps import grid
    >>> [setting.parameters for setting in grid("dp-gram", epsilon=[0.5, 1.0], score="ridge")]
    [{'epsilon': 0.5, 'score': 'ridge'}, {'epsilon': 1.0, 'score': 'ridge'}]
    """
    lists = [value if isinstance(value, list) else [value] for value in values.values()]
    return [Setting(system, dict(zip(values, row, strict=True))) for row in itertools.product(*lists)]


def baselines() -> list[Setting]:
    """What every sweep is compared with.

    Returns
    -------
    list of Setting
        Popularity; DP popularity, with a trusted server and from reports, at several epsilons; EASE and matrix
        factorisation by ALS, without privacy.
    """
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
    n_tested: int = MOST_TESTED,
    delta: float = 1e-6,
    with_baselines: bool = True,
    source: str | None = None,
    show_progress: bool = False,
) -> Sweep:
    """Fit every setting under every seed, and rank one interaction of each user that is left out, or a given test.

    Parameters
    ----------
    settings : iterable of Setting
        As from `grid`; of any systems, which then share one front.
    data : Interactions, matrix, frame, Split or GeneratedData
        The first are the same for all seeds, and split anew for each; the second are the same train and test for all;
        the third are drawn and split anew for each.
    seeds : int or sequence of int
        Of split, noise and sampled items; a number stands for 0, 1, ...
    folder : str, Path or None
        Keep every finished run there as a file, and read those that were made with the same settings and code.
    n_jobs : int
        Processes.  A script must then be guarded by ``if __name__ == "__main__"``, as for any of Python's own.
    n_threads : int
        Of all processes together, divided evenly; 0 for all processors.
    metrics : sequence of str
        As for `evaluation.evaluate`; fronts go by the first.
    candidates : Sampled or None
        As for `evaluation.evaluate`: what test items are ranked against; None for all unseen items.
    n_tested : int
        Users who are tested, at most, drawn at random.
    delta : float
        At which every ledger is read.
    with_baselines : bool
        Whether to add `baselines()`.
    source : str or None
        Name of the data, for people.
    show_progress : bool
        Draw a progress bar, with the time left (needs tqdm).

    Returns
    -------
    Sweep
        A setting of which a run failed has those of its seeds that did not, and is listed among the failures.

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
    asked = list(settings)
    for setting in asked:
        check_instance("settings", setting, Setting, "use sweep.grid")
    numbers = range(check_integer("seeds", seeds, low=1)) if isinstance(seeds, int) else seeds
    numbers = [check_integer("seeds", seed, low=0) for seed in numbers]
    parse_metrics(metrics)
    protocol = Protocol(
        tuple(metrics),
        None if candidates is None else check_instance("candidates", candidates, Sampled, "use Sampled(99)"),
        check_integer("n_tested", n_tested, low=1),
        check_real("delta", delta, low=0.0, high=1.0, exclusive=True),
    )
    n_jobs, n_threads = check_integer("n_jobs", n_jobs, low=1), resolve_n_threads(n_threads)
    added = [s for s in baselines() if s not in asked] if check_flag("with_baselines", with_baselines) else []
    show_progress = check_flag("show_progress", show_progress)
    common = {"code": code_version(), "data": describe_data(data), **plain(asdict(protocol))}
    plan = [(setting, [_job(setting, seed, common) for seed in numbers]) for setting in [*asked, *added]]
    jobs = {job.name: job for of_seed in zip(*(jobs for _, jobs in plan), strict=True) for job in of_seed}
    runs = run_all(
        list(jobs.values()), data, protocol, None if folder is None else Path(folder), n_jobs=n_jobs,
        n_threads=n_threads,
    )  # fmt: skip
    bar = progress_rounds(len(jobs), show=show_progress, description="sweep", unit="run")
    found = {}
    for _, (job, run) in zip(bar, runs, strict=False):
        found[job.name] = run
    runs.close()
    failures = [
        {"system": job.system, "parameters": plain(job.parameters), "seed": job.seed, "error": found[name]["error"]}
        for name, job in jobs.items()
        if "error" in found[name]
    ]
    fitted_on = data.train if isinstance(data, Split) else data
    note = catalogue_note(fitted_on) if isinstance(fitted_on, Interactions) else None
    notes = [note] if note else []
    cells = [_cell(setting, jobs_of, found, setting in added) for setting, jobs_of in plan]
    return Sweep(
        source or str(data),
        {**common, "seeds": numbers, "machine": machine(), "n_jobs": n_jobs, "n_threads": n_threads},
        tuple(cell for cell in cells if cell is not None),
        tuple(failures),
        (*notes, *dict.fromkeys(text for name in jobs for text in found[name].get("warnings", ()))),
    )


def _job(setting: Setting, seed: int, common: dict[str, Any]) -> Job:
    parameters = make_system(setting.system, dict(setting.parameters)).get_params()
    settings = {**common, "system": setting.system, "parameters": plain(parameters), "seed": seed}
    return Job(setting.system, dict(setting.parameters), seed, settings)


def _cell(setting: Setting, jobs: Sequence[Job], found: Mapping[str, dict[str, Any]], is_baseline: bool) -> Cell | None:
    """None where every run failed."""
    done = [(job.seed, found[job.name]) for job in jobs if "error" not in found[job.name]]
    if not done:
        return None
    runs = [run for _, run in done]
    costs = {
        view: [epsilon_from_json(run["privacy"]["epsilon"][view]) for run in runs] for view in TRUST_VIEWS.values()
    }
    return Cell(
        setting.system,
        plain(dict(setting.parameters)),
        tuple(seed for seed, _ in done),
        {name: tuple(run["metrics"][name] for run in runs) for name in runs[0]["metrics"]},
        min(run["n_tested"] for run in runs),
        {view: max(values) for view, values in costs.items()},
        runs[0]["privacy"]["delta"],
        tuple(sorted({trust for run in runs for trust in run["privacy"]["trust"]})),
        _most_bytes(run["bytes_per_client"] for run in runs),
        sum(run["seconds"] for run in runs) / len(runs),
        is_baseline,
    )


def _most_bytes(of_runs: Iterable[dict[str, int] | None]) -> dict[str, int] | None:
    """Return the most bytes of each way: a release may choose how many rounds a run has."""
    counted = [each for each in of_runs if each is not None]
    return {way: max(each[way] for each in counted) for way in counted[0]} if counted else None
