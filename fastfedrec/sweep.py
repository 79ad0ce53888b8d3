"""Sweeps: any parameters of any systems on one data set, and what utility costs in true epsilon.

The cost of every cell is that of its ledger, for replacing all data of one user, against the adversary that a trust
model leaves; the number that a system was asked for, or that a paper states, is not used.
"""

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastfedrec._check import check_flag, check_instance, check_integer, check_real
from fastfedrec._progress import progress_rounds
from fastfedrec._sweep_cells import TRUST_VIEWS, TRUST_WORDS, Cell, is_better, margin, pareto_front
from fastfedrec._sweep_runs import (
    Job,
    Protocol,
    code_version,
    describe_data,
    machine,
    plain,
    run_all,
)
from fastfedrec._table import format_epsilon
from fastfedrec._threads import resolve_n_threads
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import parse_metrics
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key
from fastfedrec.reproduce._side_by_side import SideBySide
from fastfedrec.systems._names import make_system, system_class

__all__ = [
    "Cell",
    "GeneratedData",
    "Setting",
    "Sweep",
    "baselines",
    "grid",
    "is_better",
    "margin",
    "pareto_front",
    "sweep",
]

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
    """

    n_users: int
    n_items: int
    row_length: float | None = None

    def __post_init__(self) -> None:
        check_integer("n_users", self.n_users, low=2)
        check_integer("n_items", self.n_items, low=31)
        if self.row_length is not None:
            check_real("row_length", self.row_length, low=0.0, exclusive=True)

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
            Nobody's data.
        """
        return generate_implicit(
            self.n_users, self.n_items, key=key, mean_interactions=self.row_length, n_threads=n_threads
        )

    def __str__(self) -> str:
        rows = "" if self.row_length is None else f", {self.row_length:g} items a user"
        return f"GENERATED DATA: {self.n_users:,} users x {self.n_items:,} items{rows}, drawn anew for each seed"


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
    >>> from fastfedrec.sweep import Setting
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
    >>> from fastfedrec.sweep import grid
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


@dataclass(frozen=True)
class Sweep(SideBySide):
    """All cells of a sweep.

    Parameters
    ----------
    source : str
        Which data these are.
    settings : dict
        What every figure was computed with.
    cells : tuple of Cell
        In the order asked for, baselines last.
    failures : tuple of dict
        Runs that failed, each with its reason.
    """

    cells: tuple[Cell, ...]
    failures: tuple[dict[str, Any], ...]

    legend = (
        "epsilon: true cost of the whole run from the ledger, in nats, for replacing all data of one user, against the "
        "server\n(trust: local), the server behind a shuffler (shuffle), and who sees what is released (central); "
        "none: no guarantee.\n+-: two standard errors, over seeds and over tested users, whichever is more.  *: added "
        "for comparison.  Noise came from\nseeds, so that these are simulations: the guarantee is that of the same run "
        "with a key from entropy."
    )

    @property
    def title(self) -> str:
        """What it is."""
        return "Utility and true privacy cost"

    @property
    def metric(self) -> str:
        """The first metric, by which fronts are drawn."""
        return self.settings["metrics"][0]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What failed."""
        return tuple(
            f"failed: {failure['system']} {failure['parameters']}, seed {failure['seed']}: {failure['error']}"
            for failure in self.failures
        )

    def front(self, trust: str, metric: str | None = None) -> list[Cell]:
        """The Pareto front across systems in one trust model.

        Parameters
        ----------
        trust : {"local", "shuffle", "central"}
            Whom one trusts.
        metric : str or None
            None takes the first one.

        Returns
        -------
        list of Cell
            As `pareto_front`.
        """
        return pareto_front(self.cells, trust, metric or self.metric)

    def verdict(self) -> str:
        """Say what is on each front.

        Returns
        -------
        str
            A line for each trust model.
        """
        lines = []
        for trust, words in TRUST_WORDS.items():
            front = [f"{cell.label} at {format_epsilon(cell.true_epsilon(trust) or 0.0)}" for cell in self.front(trust)]
            lines.append(f"Front, {trust} ({words}): {'; '.join(front) or 'nothing has a guarantee'}.")
        apart = [cell.label for cell in self.cells if not cell.is_private]
        return "\n".join([*lines, f"No guarantee in any of them: {'; '.join(apart) or 'none'}."])

    def to_csv(self) -> str:
        """A line for each cell.

        Returns
        -------
        str
            With a header; empty where there is nothing, as for an epsilon that is not guaranteed.
        """
        rows = self._records()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["system"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            A row for each cell.

        Raises
        ------
        ImportError
            Without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use to_csv()") from None
        return pandas.DataFrame(self._records())

    def write(self, folder: str | Path) -> list[str]:
        """Write the table as JSON, CSV and a page, and the curves where matplotlib is installed.

        Parameters
        ----------
        folder : str or Path
            Made where it is not there.

        Returns
        -------
        list of str
            Names of the files.
        """
        import importlib.util
        import json

        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        plot = "sweep.png" if importlib.util.find_spec("matplotlib") else None
        (out / "sweep.json").write_text(json.dumps(self.to_dict(), indent=2, allow_nan=False))
        (out / "sweep.csv").write_text(self.to_csv())
        (out / "sweep.md").write_text(self.to_markdown(plot=plot))
        if plot:
            self.plot(out / plot)
        return ["sweep.json", "sweep.csv", "sweep.md", *filter(None, [plot])]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings.

        Returns
        -------
        dict
            The fields; "fronts", the labels on each; "verdict".
        """
        fronts = {trust: [cell.label for cell in self.front(trust)] for trust in TRUST_VIEWS}
        return plain(asdict(self) | {"fronts": fronts, "verdict": self.verdict()})

    def _records(self) -> list[dict[str, Any]]:
        on = {trust: {id(cell) for cell in self.front(trust)} for trust in TRUST_VIEWS}
        return [
            {
                "system": cell.system,
                "parameters": ", ".join(f"{name}={value!r}" for name, value in cell.parameters.items()),
                "is_baseline": cell.is_baseline,
                "n_seeds": len(cell.seeds),
                "n_tested": cell.n_tested,
                **{name: cell.mean(name) for name in cell.metrics},
                **{f"{name}_std": cell.std(name) for name in cell.metrics},
                **{f"epsilon_{trust}": cell.true_epsilon(trust) for trust in TRUST_VIEWS},
                "delta": cell.delta,
                **{f"front_{trust}": id(cell) in on[trust] for trust in TRUST_VIEWS},
                "download_per_client": cell.bytes_per_client and cell.bytes_per_client["download"],
                "upload_per_client": cell.bytes_per_client and cell.bytes_per_client["upload"],
                "seconds": cell.seconds,
            }
            for cell in self.cells
        ]

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        names = list(self.settings["metrics"])
        header = ["", *(text for name in names for text in (name, "+-")), *(f"epsilon, {t}" for t in TRUST_VIEWS)]
        header += ["on the front", "bytes a client", "seconds"]
        rows = []
        for cell, record in zip(self.cells, self._records(), strict=True):
            fronts = [trust for trust in TRUST_VIEWS if record[f"front_{trust}"]]
            sizes = cell.bytes_per_client
            rows.append(
                [
                    cell.label + "*" * cell.is_baseline,
                    *(f"{v:.3f}" for name in names for v in (cell.mean(name), 2 * cell.error(name))),
                    *(
                        "none" if epsilon is None else format_epsilon(epsilon)
                        for epsilon in map(cell.true_epsilon, TRUST_VIEWS)
                    ),
                    ", ".join(fronts),
                    f"{sizes['download'] + sizes['upload']:,}" if sizes else "-",
                    f"{cell.seconds:.2f}",
                ]
            )
        return header, rows

    def _draw(self, new_figure: Callable[..., Any]) -> Any:
        """Utility over true epsilon, a panel for each trust model; what has no guarantee there is a level."""
        figure = new_figure(figsize=(5 * len(TRUST_VIEWS) + 1, 4.5))
        systems = list(dict.fromkeys(cell.system for cell in self.cells))
        panels = figure.subplots(1, len(TRUST_VIEWS), sharey=True)
        for panel, trust in zip(panels, TRUST_VIEWS, strict=True):
            for number, system in enumerate(systems):
                cells = [cell for cell in self.cells if cell.system == system and cell.true_epsilon(trust) is not None]
                points = [(c.true_epsilon(trust), c.mean(self.metric), 2 * c.error(self.metric)) for c in cells]
                if points:
                    panel.errorbar(*zip(*points, strict=True), fmt="o", color=f"C{number}", markersize=4, label=system)
            front = self.front(trust)
            steps = [(cell.true_epsilon(trust), cell.mean(self.metric)) for cell in front]
            panel.step(
                [x for x, _ in steps], [y for _, y in steps], where="post", color="k", linewidth=1, label="front"
            )
            for number, cell in enumerate(cell for cell in self.cells if not cell.is_private):
                style = ("--", ":", "-.")[number % 3]
                panel.axhline(cell.mean(self.metric), color="0.5", linestyle=style, label=f"{cell.label}, no guarantee")
            if front:
                panel.set_xscale("log")
            panel.set(title=f"trust: {trust}", xlabel="true epsilon (nats), replacing a user")
            panel.legend(fontsize="x-small")
        panels[0].set_ylabel(self.metric)
        figure.suptitle(self.source, fontsize="small")
        return figure


def sweep(
    settings: Iterable[Setting],
    data: Interactions | GeneratedData,
    *,
    seeds: int | Sequence[int] = 3,
    folder: str | Path | None = None,
    n_jobs: int = 1,
    n_threads: int = 0,
    metrics: Sequence[str] = ("hr@10", "ndcg@10"),
    n_negatives: int | None = 99,
    n_tested: int = MOST_TESTED,
    delta: float = 1e-6,
    with_baselines: bool = True,
    source: str | None = None,
    show_progress: bool = False,
) -> Sweep:
    """Fit every setting under every seed, leave one interaction of each user out, and rank it.

    Parameters
    ----------
    settings : iterable of Setting
        As from `grid`; of any systems, which then share one front.
    data : Interactions or GeneratedData
        The first are the same for all seeds, the second are drawn anew for each.
    seeds : int or sequence of int
        Of split, noise and negatives; a number stands for 0, 1, ...
    folder : str, Path or None
        Keep every finished run there as a file, and read those that were made with the same settings and code.
    n_jobs : int
        Processes.  A script must then be guarded by ``if __name__ == "__main__"``, as for any of Python's own.
    n_threads : int
        Of all processes together, divided evenly; 0 for all processors.
    metrics : sequence of str
        As for `evaluation.evaluate`; fronts go by the first.
    n_negatives : int or None
        Unseen items to rank against; None for all.
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
    >>> from fastfedrec.sweep import GeneratedData, grid, sweep
    >>> found = sweep(grid("dp-gram", epsilon=[1.0, 4.0]), GeneratedData(2000, 60), seeds=2, with_baselines=False)
    >>> [round(cell.true_epsilon("central"), 2) for cell in found.cells]
    [2.12, 8.9]
    >>> found.front("local")
    []
    """
    if not isinstance(data, GeneratedData):
        check_instance("data", data, Interactions, "or sweep.GeneratedData")
    asked = list(settings)
    for setting in asked:
        check_instance("settings", setting, Setting, "use sweep.grid")
    numbers = range(check_integer("seeds", seeds, low=1)) if isinstance(seeds, int) else seeds
    numbers = [check_integer("seeds", seed, low=0) for seed in numbers]
    parse_metrics(metrics)
    protocol = Protocol(
        tuple(metrics),
        None if n_negatives is None else check_integer("n_negatives", n_negatives, low=1),
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
    cells = [_cell(setting, jobs_of, found, setting in added) for setting, jobs_of in plan]
    return Sweep(
        source or str(data),
        {**common, "seeds": numbers, "machine": machine(), "n_jobs": n_jobs, "n_threads": n_threads},
        tuple(cell for cell in cells if cell is not None),
        tuple(failures),
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
    costs = {view: [run["privacy"]["epsilon"][view] for run in runs] for view in TRUST_VIEWS.values()}
    return Cell(
        setting.system,
        plain(dict(setting.parameters)),
        tuple(seed for seed, _ in done),
        {name: tuple(run["metrics"][name] for run in runs) for name in runs[0]["metrics"]},
        min(run["n_tested"] for run in runs),
        {view: None if None in values else max(values) for view, values in costs.items()},
        runs[0]["privacy"]["delta"],
        tuple(sorted({trust for run in runs for trust in run["privacy"]["trust"]})),
        runs[0]["bytes_per_client"],
        sum(run["seconds"] for run in runs) / len(runs),
        is_baseline,
    )
