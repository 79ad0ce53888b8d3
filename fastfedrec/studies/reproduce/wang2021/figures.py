"""Wang et al. 2021 (PrivRec): Figures 3 to 9, each compared with the paper's claim about it.

The paper's figures print no numbers, so each one is compared with a sentence of the paper.  Figure 1 is a drawing, and
Figure 2 is in `activity`.  The cost of private runs is the upper bound that the ledger proves, not the paper's epsilon.
"""

import functools
from typing import Any

from fastfedrec.core.check import check_choice, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.evaluation.new_users import personalization_split
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce.wang2021._runs import (
    COHORT,
    DP_POPULARITY,
    EPOCHS,
    FIRST_ORDER,
    METHODS,
    NN_SELF,
    ONE,
    POPULARITY,
    PRIVREC,
    ROUNDS,
    SGD,
    START,
    Point,
    Runs,
    curve_name,
    describe_split,
    first_test_users,
    private_models,
)
from fastfedrec.studies.reproduce.wang2021.accuracy import _paper_models

__all__ = ["FIGURES", "privrec_figure"]

FIGURES = ("3", "4", "5", "6", "7", "8", "9")
# Figures on Frappe, and figures on either data set; all remaining ones are on MovieLens 1M.
OF_LOG, OF_EITHER = ("5", "7"), ("3",)
PAPER_CLAIMS = {
    "3": "The paper: rises steeply up to 40 rounds and is flat after, rises up to 100 local epochs, and depends least "
    "on the cohort size, which is best above 25.",
    "4": "The paper: DP-PrivRec is within 10% of PrivRec at every k, and above DP-PrivRec-One.",
    "6": "The paper: rises with epsilon like a logarithm, up to PrivRec's.",
    "8": "The paper: on users with fewer than 20 items, PrivRec is 20% to 40% above PrivRec-SGD.",
    "9": "The paper: second-order meta-learning takes 10% to 30% longer a round than first-order.",
}
PAPER_CLAIMS |= {"5": PAPER_CLAIMS["4"], "7": PAPER_CLAIMS["6"]}
SWEEPS = {
    ROUNDS: (5, 20, 40, 60, 80, 100), EPOCHS: (5, 20, 40, 60, 80, 100, 120), COHORT: (2, 5, 10, 15, 20, 25, 30, 35, 40)
}  # fmt: skip
QUICK_SWEEPS = {ROUNDS: (1, 2), EPOCHS: (1, 2), COHORT: (2, 4)}
EPSILONS = {"4": (2.0,), "5": (5.0,), "6": (0.5, 1.0, 2.0, 5.0, 10.0, 20.0), "7": (2.0, 5.0, 10.0, 20.0, 40.0)}
_TEST_USERS = 300  # test users of Figure 3; each of its 22 points fine-tunes them for up to 120 epochs


def _panels(report: Report) -> list[str]:
    return list(dict.fromkeys(point["panel"] for point in report.points))


def _models(report: Report, panel: str) -> list[str]:
    return list(dict.fromkeys(point["model"] for point in report.points if point["panel"] == panel))


def _measured(report: Report) -> str:
    return {"4": "Hits@k", "5": "Hits@k", "9": "Milliseconds a round"}.get(report.figure, "Hits@20")


def _curve(report: Report, panel: str, model: str) -> dict[float, float]:
    """Return the values of one model in one panel by x."""
    chosen = (point for point in report.points if (point["panel"], point["model"]) == (panel, model))
    return {point["x"]: point["value"] for point in chosen}


def _legend(report: Report) -> str:
    if report.figure == "9":
        return (
            "Milliseconds: processor time of a round with one thread; with more threads the smallest wall-clock "
            "time of three rounds."
        )
    return (
        f"{_measured(report)}; a simulation on one split.  epsilon: proven cost of the run at delta 1e-6, for\n"
        "replacing all data of one user, against everyone who sees the released model; - without a guarantee."
    )


def _remarks(report: Report) -> list[str]:
    """Return the claims of the paper, and omitted models with the reasons."""
    lines = [PAPER_CLAIMS[report.figure]]
    if report.figure in EPSILONS:
        lines.append(
            "DP-PrivRec itself is omitted: its first stage trains on private sequences without noise, so that it "
            "has no user-level guarantee at any epsilon."
        )
        lines.append(
            "With the paper's z = 1 and S = {clip_norm}, M = 30: {ends}.".format(**report.settings["published"])
        )
    if report.figure == "9":
        lines.append(
            "NN-SELF is MAML: it differentiates through all local steps (second order), on half of a client's "
            "positives; it is therefore compared with first-order MAML.  PrivRec (Reptile) steps on all of them."
        )
    return lines


def _summarise(report: Report) -> str:
    """Summarise the figures that the paper makes a claim about, by panel or by pair of models."""
    lines = []
    if report.figure in ("3", "9"):
        for panel in _panels(report):
            for model in _models(report, panel):
                curve = _curve(report, panel, model)
                best = (min if report.figure == "9" else max)(curve, key=lambda x: curve[x])
                ends = ", ".join(f"{curve[x]:.3g} at {x:g}" for x in (min(curve), best, max(curve)))
                lines.append(f"{model} over {panel}: {ends}.")
        return "\n".join([*lines, *_compare_second_order(report)])
    # Each model is paired with a baseline.
    pairs = [(PRIVREC, SGD), (PRIVREC, POPULARITY)] if report.figure == "8" else [(ONE, PRIVREC), (START, PRIVREC)]
    pairs += [] if report.figure == "8" else [(ONE, DP_POPULARITY), (START, DP_POPULARITY), (START, POPULARITY)]
    (panel,) = _panels(report)
    for model, baseline in pairs:
        ours, theirs = _curve(report, panel, model), _curve(report, panel, baseline)
        gains = [ours[x] / theirs[x] - 1 for x in ours if theirs[x] > 0]
        if gains:
            lines.append(f"{model}: {min(gains):+.0%} to {max(gains):+.0%} compared with {baseline}.")
    return "\n".join(lines)


def _compare_second_order(report: Report) -> list[str]:
    """Compare the time of second-order MAML with first-order MAML and Reptile, for each number of threads."""
    lines = []
    for n_threads in report.settings.get("threads", ()) if report.figure == "9" else ():
        second = _curve(report, COHORT, curve_name(NN_SELF, n_threads))
        for baseline in (FIRST_ORDER, PRIVREC):
            name = curve_name(baseline, n_threads)
            first = _curve(report, COHORT, name)
            ratios = [value / first[x] - 1 for x, value in second.items()]
            lines.append(f"{NN_SELF} takes {min(ratios):+.0%} to {max(ratios):+.0%} longer than {name}.")
    return lines


def _format_epsilon(point: Point) -> str:
    return "-" if point["epsilon"] in (None, "infinite") else f"{point['epsilon']:.3f}"


def _columns(report: Report) -> list[Any]:
    value = "{[value]:.1f}" if report.figure == "9" else "{[value]:.3f}"
    return [
        ("over", "{[panel]}"), ("", "{[x]:g}"), ("model", "{[model]}"), (_measured(report), value),
        ("epsilon", _format_epsilon),
    ]  # fmt: skip


def _draw(report: Report, figure: Any) -> None:
    for axes, panel in draw_panels(figure, _panels(report), 4, 4, sharey=True):
        for model in _models(report, panel):
            curve = _curve(report, panel, model)
            axes.plot(list(curve), list(curve.values()), ".-", label=model)
        axes.set(xlabel=panel)
        axes.set_xscale("log" if panel == "epsilon" else "linear")
        axes.set_yscale("log" if report.figure == "9" else "linear")
        axes.legend(fontsize="x-small")
    figure.supylabel(_measured(report))


STUDY = Study(
    title=lambda report: f"PrivRec, Figure {report.figure}: {_measured(report)} over {' and '.join(_panels(report))}",
    legend=_legend,
    columns=_columns,
    verdict=_summarise,
    draw=_draw,
    records="points",
    remarks=_remarks,
)


def privrec_figure(data: Interactions | InteractionLog, figure: str, *, seed: int = 0, **options: Any) -> Report:
    """Compute one of Figures 3 to 9 of the paper.

    Parameters
    ----------
    data : Interactions or InteractionLog
        MovieLens 1M with its features; Frappe for "5" and "7"; either for "3".
    figure : {"3", "4", "5", "6", "7", "8", "9"}
        "3": Hits@20 over rounds, local epochs and cohort size, with all remaining parameters as in the paper.  "4",
        "5": Hits@k with and without privacy.  "6", "7": Hits@20 over epsilon.  "8": Hits@20 on users with few items.
        "9": time of a round.
    seed : int
        Seed of the split and of every draw: the runs are simulations.
    **options : object
        Options of `RunOptions`; `n_threads` changes Figure 9 alone.  `quick`: few points and rounds, as a test that
        everything runs.

    Returns
    -------
    Report
        The figure.  `points` have "panel", "model", "x", "value" (Hits, or milliseconds per round in Figure 9) and
        "epsilon", which is "infinite" without a guarantee, and None if the cost is not part of the figure.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, Figures 3 to 9.
    """
    check_choice("figure", figure, FIGURES)
    key = Key.from_seed(check_integer("seed", seed, low=0, high=None))
    how = RunOptions(**options)
    is_log = isinstance(data, InteractionLog)
    if not isinstance(data, Interactions | InteractionLog) or (
        figure not in OF_EITHER and is_log != (figure in OF_LOG)
    ):
        expected_type = "InteractionLog" if figure in OF_LOG else "Interactions"
        raise TypeError(f"data of figure {figure} must be {expected_type}, got {type(data).__name__}")
    split = personalization_split(data, threshold=0.0 if is_log else 3.0, key=key)
    if figure == "3":
        # Fine-tuning of all test users at each of the 22 points would take too long.
        split = first_test_users(split, _TEST_USERS)
    source, settings = describe_split(split, seed, quick=how.quick)
    described: dict[str, Any] = {}
    models = _paper_models(data, quick=how.quick)
    papers = models["PrivRec, the paper's E1, E2 and M"]
    runs = Runs(split, key, how.n_threads, how.folder, settings)
    sweeps = QUICK_SWEEPS if how.quick else SWEEPS
    if figure == "3":
        tasks = list(runs.sweeps(papers, sweeps))
    elif figure == "8":
        tasks = [functools.partial(runs.by_activity, name, models[name]) for name in (PRIVREC, SGD, POPULARITY)]
    elif figure == "9":
        # Numbers of threads: one thread is measured by processor time, more by wall-clock time.
        counts = sorted({1, how.n_threads})
        described = {"threads": counts}
        tasks = [
            functools.partial(runs.milliseconds, papers, name, size, n)
            for n in counts for name in METHODS for size in sweeps[COHORT]
        ]  # fmt: skip
    else:
        epsilons = EPSILONS[figure][-1:] if how.quick else EPSILONS[figure]
        panel = "k" if figure in ("4", "5") else "epsilon"
        tasks = [
            # A model without privacy has epsilon 0, and its one run is drawn at all epsilons.
            functools.partial(
                runs.at_epsilon, name, model, epsilon, panel=panel, x_values=None if epsilon else epsilons
            )
            for name, model, epsilon in private_models(models, epsilons)
        ]
        # The clip norms are the paper's S for each data set.
        described = {"published": runs.published(models[f"{ONE}, epsilon 2"], 35.0 if is_log else 40.0)}
    bar = progress_rounds(len(tasks), show=how.show_progress, description=f"Figure {figure}", unit="run")
    points = [point for _, task in zip(bar, tasks, strict=True) for point in task()]
    described |= settings | {"models": {name: repr(model) for name, model in models.items()}}
    return Report(STUDY, source, described, figure=figure, points=tuple(points))


refuse_old_names(__name__, PrivRecFigure="studies.report.Report")
