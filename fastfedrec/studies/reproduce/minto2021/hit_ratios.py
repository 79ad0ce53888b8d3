"""Minto et al. 2021 (FMF-LDP): Figures 2, 3 and 5."""

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fastfedrec.accounting.views import SHORT_NAMES
from fastfedrec.core.check import check_choice, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_from_json, format_epsilon
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation import LeaveOneOut, Split
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import cache_last, evaluate_quietly, mean_and_deviation
from fastfedrec.studies.reproduce.minto2021.figure_4 import (
    AS_PUBLISHED,
    DP_POPULARITY,
    N_NEGATIVES,
    NOT_PRIVATE,
    OURS,
    POPULARITY,
    _paper_data,
    _subset_of,
)
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity, Random
from fastfedrec.systems.dplcf import DPLCF
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP

__all__ = ["FIGURES", "hit_ratio_figure"]

FIGURES = ("2", "3", "5")
EPSILONS = (0.5, 1.0, 2.5, 5.0)
N_REPORTS = {"2": (1, 50, 100, 250), "3": (50, 100), "5": (100, 250)}
# Numbers of users and items; Figure 5 has the whole data set.
SIZES = {"2": ((1_000, 1_000), (10_000, 1_000), (50_000, 1_000)), "3": ((10_000, 1_000), (50_000, 1_000))}
ROUNDS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30)  # rounds at which a learning curve is evaluated
CUTOFFS = (2, 5, 10)
# The table under Figure 5: HR@2, HR@5 and HR@10.
DPLCF_, RANDOM = "DPLCF", "random"
PUBLISHED = {
    NOT_PRIVATE: (0.4310, 0.6700, 0.8179), DPLCF_: (0.4203, 0.5969, 0.7000), RANDOM: (0.0200, 0.0500, 0.1000),
    f"{AS_PUBLISHED}, k = 100": (0.2163, 0.3755, 0.5131), f"{AS_PUBLISHED}, k = 250": (0.2315, 0.3980, 0.5384),
}  # fmt: skip
PAPER_CLAIMS = {
    "2": "The paper: at k = 1 no better than random; from 1,000 to 10,000 users about 150% more, to 50,000 about 50% "
    "more; from k = 50 to 100 about 10% more, to 250 about 5%; .7 and higher in some cases. It prints no points.",
    "3": "The paper: HR@10 above .5 after 5 to 10 epochs; k decides how fast, the number of users where it ends.",
    "5": "The paper: five times random, below its non-private twin and DPLCF.",
}
_EPSILON, _N_ROUNDS = 2.5, 20  # values for figures that do not vary them
_QUICK_SIZE = (1_000, 1_000)
_VARIANTS = {OURS: "guaranteed", AS_PUBLISHED: "published"}

_OVER = {"2": "epsilon of a report", "3": "rounds", "5": "K"}

_Point = dict[str, Any]


def _measured(report: Report) -> str:
    return "HR@K" if report.figure == "5" else "HR@10"


def _means(line: Record) -> list[float]:
    """Return the means over seeds at each x."""
    return [statistics.fmean(values) for values in line.hit_ratios]


def _line_of(report: Report, panel: str, model: str) -> dict[float, float]:
    """Return the mean of one model in one panel at each x."""
    (match,) = (line for line in report.lines if (line.panel, line.model) == (panel, model))
    return dict(zip(match.x, _means(match), strict=True))


def _summarise(report: Report) -> str:
    """Summarise the figures that the paper makes a claim about, in one sentence for each variant and panel."""
    summarise_panel = {"2": _over_epsilons, "3": _over_rounds, "5": _over_cutoffs}[report.figure]
    sentences = []
    for panel, variant in itertools.product(dict.fromkeys(line.panel for line in report.lines), _VARIANTS):
        ours = {k: _line_of(report, panel, f"{variant}, k = {k}") for k in report.settings["n_reports"]}
        sentences.append(f"{panel}, {variant}: {summarise_panel(ours, _line_of(report, panel, POPULARITY))}.")
    return "\n".join(sentences)


def _over_epsilons(ours: dict[int, dict[float, float]], other: dict[float, float]) -> str:
    points = [(value, k, x) for k, line in ours.items() for x, value in line.items()]
    best, k, x = max(points)
    best_at_min_k = max(ours[min(ours)].values())
    n_above = sum(value > other[x] for value, _, x in points)
    return (
        f"at most {best:.3f} (k = {k}, epsilon {x:g}), {best_at_min_k:.3f} with k = {min(ours)}; above popularity "
        f"at {n_above} of {len(points)} points"
    )


def _over_rounds(ours: dict[int, dict[float, float]], other: dict[float, float]) -> str:
    parts = []
    for k, line in ours.items():
        reached = [x for x, value in line.items() if value > 0.5]
        crossing = f"above .5 after {min(reached):g} rounds" if reached else "never above .5"
        parts.append(f"k = {k} {crossing}, {line[max(line)]:.3f} at the end")
    return "; ".join(parts) + f"; popularity {other[max(other)]:.3f}"


def _over_cutoffs(ours: dict[int, dict[float, float]], other: dict[float, float]) -> str:
    parts = [f"k = {k} {line[max(line)]:.3f} at K = {max(line):g}" for k, line in ours.items()]
    return "; ".join(parts) + f"; popularity {other[max(other)]:.3f}"


def _format_point(n: int, line: Record) -> str:
    values, cost = line.hit_ratios[n], line.epsilon[n]["public"]
    # Square brackets hold the paper's figure, and round brackets hold the cost.
    paper = f" [{line.published[n]:.4f}]" if line.published else ""
    return f"{mean_and_deviation(values)}{paper}" + ("" if cost is None else f" ({_show(cost)})")


def _format_cost(view: str, line: Record) -> str:
    return _show(line.epsilon[-1][view])


def _columns(report: Report) -> list[Any]:
    return [
        ("users", lambda line: line.panel.removesuffix(" users")), ("model", "{.model}"),
        *((f"{x:g}", functools.partial(_format_point, n)) for n, x in enumerate(report.lines[0].x)),
        *((f"epsilon, {SHORT_NAMES[v]}", functools.partial(_format_cost, v)) for v in ("server", "shuffled_server")),
    ]  # fmt: skip


def _draw(report: Report, figure: Any) -> None:
    """Draw the lines, with the paper's variant dashed and its printed figures as black crosses."""
    names = dict.fromkeys(line.panel for line in report.lines)
    for axes, panel in draw_panels(figure, names, 4, 4.5, sharey=True):
        for line in (line for line in report.lines if line.panel == panel):
            axes.plot(line.x, _means(line), "--" if AS_PUBLISHED in line.model else "-", marker=".", label=line.model)
            if line.published:
                axes.plot(line.x, line.published[: len(line.x)], "kx")
        axes.set(title=panel, xlabel=_OVER[report.figure], ylim=(0, 1))
        axes.set_xscale("log" if report.figure == "2" else "linear")
        axes.legend(fontsize="x-small")
    figure.supylabel(_measured(report))
    figure.suptitle(report.source, fontsize="small")


def _legend(report: Report) -> str:
    held_out = "the last item drawn or rated" if report.figure == "5" else "an item at random"
    return (
        f"{_measured(report)} by {_OVER[report.figure]}, among {N_NEGATIVES} unseen items, {held_out} held out; mean "
        "over seeds (simulations); the paper's in square brackets.\n"
        "In brackets: the proven cost of the run up to that point, for replacing all data of one user, in nats, "
        "against\nadversaries who see the model and no message.  Last columns: cost of the whole run against a "
        "server that links\nreports to users, and behind a shuffler."
    )


STUDY = Study(
    title=lambda report: f"FMF-LDP, Figure {report.figure}: {_measured(report)} over {_OVER[report.figure]}",
    legend=_legend,
    columns=_columns,
    verdict=_summarise,
    draw=_draw,
    records="lines",
    remarks=lambda report: [PAPER_CLAIMS[report.figure]],
)


def _show(epsilon: float | str) -> str:
    return format_epsilon(epsilon_from_json(epsilon))


def hit_ratio_figure(figure: str, data: Interactions | None = None, *, n_seeds: int = 1, **options: Any) -> Report:
    """Compute Figure 2, 3 or 5 of the FMF-LDP paper.

    Parameters
    ----------
    figure : {"2", "3", "5"}
        "2": HR@10 over epsilon and the number of reports k, for 1,000 to 50,000 users and 1,000 items.  "3": HR@10
        over rounds.  "5": HR@K on all data, with the last interaction of each user held out.
    data : Interactions or None
        Data as in `minto2021.figure_4`; with timestamps for "5".
    n_seeds : int
        Number of seeds for subsets, splits and noise: the runs are simulations.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: 1,000 users and items and few points,
        as a test that everything runs.

    Returns
    -------
    Report
        The figure.  A line of `lines` is one model in one panel: `panel`, `model`, `x` (epsilon of a report, rounds or
        K), at each x the `hit_ratios` of all seeds and the `epsilon` of a user by view of the ledger, and the
        `published` hit ratios, None if they are not printed.

    Raises
    ------
    ValueError
        If data without timestamps are given for "5".

    References
    ----------
    .. [1] Minto, Haller, Haddadi, Livshits, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021, Figures 2, 3 and 5.
    """
    check_choice("figure", figure, FIGURES)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    how = RunOptions(**options)
    data, source = _paper_data(data, how.n_threads, timestamps=figure == "5")
    sizes = ((data.n_users, data.n_items),) if figure == "5" else SIZES[figure]
    sizes = (_QUICK_SIZE,) if how.quick else sizes
    settings = {"version": __version__, "data": checksum([data]), "figure": figure, "quick": how.quick}
    n_reports = N_REPORTS[figure][-1:] if how.quick else N_REPORTS[figure]

    # Tasks are ordered by seed and size, so one cached split serves all models.
    def split(size: tuple[int, int], seed: int) -> Split:
        key = Key.from_seed(seed)
        return next(LeaveOneOut(latest=figure == "5").split(_subset_of(data, size, key), key=key))

    split_cached = cache_last(split)
    plans = _plans(figure, n_reports, how.quick)
    cases = {}
    for seed, size, (name, model, x_values) in itertools.product(range(n_seeds), sizes, plans):
        # The first x value distinguishes the runs of Figure 2, which have one point each.
        title = f"figure-{figure}-{size[0]}x{size[1]}-{name}-{x_values[0]:g}-seed-{seed}".replace(" ", "-")
        part_settings = settings | {"model": repr(model), "where": list(x_values)}
        measure = functools.partial(_run, figure, model, x_values, split_cached, size, seed, how.n_threads)
        cases[f"{size[0]:,} users", name, x_values[0], seed] = Case(title, part_settings, measure)
    lines: dict[tuple[str, str], dict[float, list[_Point]]] = {}
    for (panel, name, *_), points in measure_cases(cases, how, f"Figure {figure}", "run").items():
        for point in points:
            lines.setdefault((panel, name), {}).setdefault(point["x"], []).append(point)
    described = settings | {"n_seeds": n_seeds, "n_reports": list(n_reports)}
    records = tuple(_line(figure, *panel_and_model, line) for panel_and_model, line in lines.items())
    return Report(STUDY, source, described, figure=figure, lines=records)


def _plans(figure: str, n_reports: Sequence[int], quick: bool) -> list[tuple[str, Any, tuple[float, ...]]]:
    """Return the name of each model, the model, and the x values that one run of it yields."""
    x_values: tuple[float, ...] = {"2": EPSILONS, "3": ROUNDS, "5": CUTOFFS}[figure]
    x_values = x_values[:2] if quick else x_values
    # The learning curve of Figure 3 ends with its last round.
    n_rounds = int(max(x_values)) if figure == "3" else _N_ROUNDS
    plans: list[tuple[str, Any, tuple[float, ...]]] = []
    for (name, variant), k in itertools.product(_VARIANTS.items(), n_reports):
        ours = functools.partial(FMFLDP, 5, n_reports=k, n_rounds=n_rounds, variant=variant)
        # Each epsilon of Figure 2 needs its own run; one run has all rounds of Figure 3 and all cutoffs of Figure 5.
        if figure == "2":
            plans += [(f"{name}, k = {k}", ours(epsilon=epsilon), (epsilon,)) for epsilon in x_values]
        else:
            plans.append((f"{name}, k = {k}", ours(epsilon=_EPSILON), x_values))
    plans += [(NOT_PRIVATE, FMFLDP(5, None, n_rounds=n_rounds), x_values), (POPULARITY, Popularity(), x_values)]
    plans.append((DP_POPULARITY, DPPopularity(1.0), x_values))
    return plans if figure != "5" else [*plans, (DPLCF_, DPLCF(_EPSILON), x_values), (RANDOM, Random(), x_values)]


def _run(
    figure: str,
    model: Any,
    x_values: tuple[float, ...],
    split: Callable[[tuple[int, int], int], Split],
    size: tuple[int, int],
    seed: int,
    n_threads: int,
) -> list[_Point]:
    """Fit one model on one split, and return its points."""
    train, test = split(size, seed)
    key = Key.from_seed(seed)

    def evaluate_model(fitted: Any, metrics: list[str]) -> tuple[dict[str, float], dict[str, float | None]]:
        ratios = evaluate_quietly(fitted, train, test, metrics, N_NEGATIVES, key, n_threads)
        return ratios, fitted.ledger_.to_dict()["epsilon"]

    points: list[_Point] = []

    def after_round(fitted: FMFLDP, number: int) -> None:
        if number + 1 in x_values:
            ratios, cost = evaluate_model(fitted, ["hr@10"])
            points.append({"x": number + 1, "hit_ratio": ratios["hr@10"], "epsilon": cost})

    if figure == "3" and isinstance(model, FMFLDP):
        model.fit(train, key=key, n_threads=n_threads, callback=after_round)
        return points
    # One fit has all cutoffs K of Figure 5, and all epsilons of a model that does not depend on them.
    metric_at = {x: f"hr@{x:g}" if figure == "5" else "hr@10" for x in x_values}
    ratios, cost = evaluate_model(model.fit(train, key=key, n_threads=n_threads), sorted(set(metric_at.values())))
    return [{"x": x, "hit_ratio": ratios[metric], "epsilon": cost} for x, metric in metric_at.items()]


def _line(figure: str, panel: str, name: str, points: dict[float, list[_Point]]) -> Record:
    return Record(
        panel=panel,
        model=name,
        x=tuple(points),
        hit_ratios=tuple([point["hit_ratio"] for point in seed_points] for seed_points in points.values()),
        # The cost does not depend on the seed.
        epsilon=tuple(seed_points[0]["epsilon"] for seed_points in points.values()),
        published=PUBLISHED.get(name) if figure == "5" else None,
    )


refuse_old_names(__name__, HitRatioFigure="studies.report.Report", Line="studies.report.Record")
