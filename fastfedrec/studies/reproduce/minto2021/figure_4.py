"""Minto et al. 2021 (FMF-LDP): Figure 4, the hit ratio over numbers of users and items."""

import functools
import itertools
import statistics
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.accounting.views import SHORT_NAMES, View
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_from_json, format_epsilon
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import Case, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import evaluate_quietly, mean_and_deviation
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP

__all__ = ["figure_4"]

# HR@10 by (users, items), from the table under Figure 4; its "10K" items are the 9,781 of section 4.1.
PUBLISHED = {
    (1_000, 1_000): 0.1160, (10_000, 1_000): 0.6325, (50_000, 1_000): 0.6972,
    (1_000, 5_000): 0.1010, (10_000, 5_000): 0.1988, (50_000, 5_000): 0.6801,
    (1_000, 9_781): 0.1090, (10_000, 9_781): 0.1216, (50_000, 9_781): 0.5654,
}  # fmt: skip
N_USERS, N_ITEMS = 75_040, 9_781  # size of the paper's whole data set
MIN_INTERACTIONS = 60  # minimum number of interactions of a user and of an item
MIN_ITEM_SHARE = 0.95  # accepted share of the paper's items, since copies of the data have a few items less
METRIC, N_NEGATIVES = "hr@10", 99
QUICK_USERS = 10_000
OURS = "FMF-LDP"
AS_PUBLISHED = "FMF-LDP, as published"
NOT_PRIVATE = "without privacy"
POPULARITY = "popularity"
DP_POPULARITY = "DP popularity, epsilon 1"
GENERATED = (
    f"GENERATED DATA of the paper's shape (movielens-20m preset, {N_USERS:,} users x {N_ITEMS:,} items), not MovieLens"
)


def _models() -> dict[str, Any]:
    """Return FMFLDP at the figure's setting, which is its default, and the models that it is compared with."""
    return {
        AS_PUBLISHED: FMFLDP(5, 2.5, n_reports=100, n_rounds=20, variant="published"),
        OURS: FMFLDP(5, 2.5, n_reports=100, n_rounds=20),
        NOT_PRIVATE: FMFLDP(5, None, n_rounds=20),
        POPULARITY: Popularity(),
        DP_POPULARITY: DPPopularity(1.0),
    }


def _mean(cell: Record, name: str) -> float:
    return statistics.fmean(cell.hit_ratios[name])


def _count_cells(report: Report) -> str:
    """Count the cells with each variant of FMF-LDP above popularity, by the means."""
    sentences = []
    for name in (OURS, AS_PUBLISHED):
        n_above = sum(_mean(cell, name) > _mean(cell, POPULARITY) for cell in report.cells)
        sentences.append(f"{name}: above popularity in {n_above} of {len(report.cells)} cells.")
    return "\n".join(sentences)


def _draw(report: Report, figure: Any) -> None:
    """Draw a panel for each number of users."""
    users = sorted({cell.n_users for cell in report.cells})
    for panel, n_users in draw_panels(figure, users, 4, 4.5, sharey=True):
        cells = [cell for cell in report.cells if cell.n_users == n_users]
        x = [cell.n_items for cell in cells]
        panel.plot(x, [cell.published for cell in cells], "k--o", label="the paper")
        for name in cells[0].hit_ratios:
            ratios = [cell.hit_ratios[name] for cell in cells]
            spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in ratios]
            panel.errorbar(x, [_mean(cell, name) for cell in cells], spread, marker=".", label=name)
        panel.set(title=f"{n_users:,} users", xlabel="items", ylim=(0, 1))
        if n_users == users[0]:
            panel.set_ylabel(METRIC.upper())
            panel.legend(fontsize="small")
    figure.suptitle(report.source, fontsize="small")


def _columns(report: Report) -> list[Any]:
    def ratios(name: str) -> Any:
        return name, lambda cell: mean_and_deviation(cell.hit_ratios[name])

    def cost(view: View) -> Any:
        return f"epsilon, {SHORT_NAMES[view]}", lambda cell: format_epsilon(epsilon_from_json(cell.epsilon[view]))

    return [
        ("users x items", "{0.n_users:,} x {0.n_items:,}"), ("the paper", "{.published:.4f}"),
        *map(ratios, report.cells[0].hit_ratios), cost("server"), cost("shuffled_server"),
        ("seconds of training", lambda cell: f"{max(cell.fit_seconds[OURS]):.2f}"),
    ]  # fmt: skip


STUDY = Study(
    title="FMF-LDP, Figure 4: the paper beside ours",
    legend=(
        "HR@10 by leave one out among 99 unseen items; mean and standard deviation over seeds, each with a subset, a "
        "split and noise of its own (simulations).\n"
        "epsilon: of a user in the whole run of FMF-LDP, in nats: against a server that links reports to users, and "
        "the same behind a shuffler."
    ),
    columns=_columns,
    verdict=_count_cells,
    draw=_draw,
    records="cells",
    remarks=lambda report: report.skipped,
)


def figure_4(data: Interactions | None = None, *, n_seeds: int = 3, **options: Any) -> Report:
    """Compute Figure 4 of the FMF-LDP paper: HR@10 over numbers of users and items.

    The paper samples its subsets from the users and items of MovieLens 20M with at least 60 interactions.  Here each
    seed draws its users and items of a subset uniformly.

    Parameters
    ----------
    data : Interactions or None
        MovieLens 20M or similar data.  Values above 0 count as interactions, and the filter is applied.  None
        generates data of the paper's shape.
    n_seeds : int
        Number of seeds for subsets, splits and noise: the runs are simulations.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: omit cells of more than 10,000 users.

    Returns
    -------
    Report
        The figure.  A cell of `cells` has `n_users`, `n_items`, the `published` HR@10, by model `hit_ratios` and
        `fit_seconds` of each seed, and by view of the ledger the `epsilon` of a user in one run of FMF-LDP.  Cells that
        the data are too small for are omitted, and `skipped` lists them.

    Raises
    ------
    ValueError
        If the data are too small for every cell.

    References
    ----------
    .. [1] Minto, Haller, Haddadi, Livshits, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021.
    """
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    how = RunOptions(**options)
    data, source = _paper_data(data, how.n_threads)
    sizes, skipped = _fitting_sizes(data, QUICK_USERS if how.quick else max(PUBLISHED)[0])
    # The checksum covers the sparsity pattern alone, because the data are binarized.
    settings = {
        "version": __version__,
        "source": source,
        "checksum": zlib.crc32(data.indices.tobytes(), zlib.crc32(data.indptr.tobytes())),
        "models": {name: repr(model) for name, model in _models().items()},
        "metric": METRIC,
        "n_negatives": N_NEGATIVES,
        "n_threads": how.n_threads,
    }
    cases = {}
    for size, seed in itertools.product(sizes, range(n_seeds)):
        measure = functools.partial(_run, data, size, seed, how.n_threads)
        cases[size, seed] = Case(f"cell-{size[0]}x{size[1]}-seed-{seed}", settings, measure)
    runs = measure_cases(cases, how, "Figure 4", "run")
    cells = tuple(_join(size, [runs[size, seed] for seed in range(n_seeds)]) for size in sorted(sizes))
    return Report(STUDY, source, settings | {"n_seeds": n_seeds}, cells=cells, skipped=tuple(skipped))


def _paper_data(data: Interactions | None, n_threads: int, *, timestamps: bool = False) -> tuple[Interactions, str]:
    """Return the data, filtered as in the paper or generated in its shape, and their description."""
    if data is None:
        # Generated data are the same for all seeds; each seed draws its own subset of them.
        options: dict[str, Any] = {"preset": "movielens-20m", "timestamps": timestamps, "n_threads": n_threads}
        return generate_implicit(N_USERS, N_ITEMS, key=Key.from_seed(0), **options), GENERATED
    check_instance("data", data, Interactions, "use datasets.load_movielens")
    data = data.binarize().filter_core(
        min_interactions_per_user=MIN_INTERACTIONS, min_interactions_per_item=MIN_INTERACTIONS
    )
    return data, (
        f"The data given, users and items with at least {MIN_INTERACTIONS} interactions: {data.n_users:,} users x "
        f"{data.n_items:,} items, {data.n_interactions:,} interactions"
    )


def _subset_of(data: Interactions, size: tuple[int, int], key: Key) -> Interactions:
    """Draw a subset of users and items uniformly, all of them if there are fewer, and keep their order."""
    users = key.permutation("reproduce.minto2021.users", size=data.n_users)[: size[0]]
    items = key.permutation("reproduce.minto2021.items", size=data.n_items)[: size[1]]
    # Sorted rows keep the order of `data`.
    return data.select_users(np.sort(users)).select_items(items)


def _fitting_sizes(data: Interactions, max_users: int) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the published sizes that the data are large enough for, and a line for each omitted one."""
    sizes, skipped = [], []
    for n_users, n_items in sorted(PUBLISHED):
        if n_users > max_users:
            continue
        # After the filter, copies of the data may have a few items less than the paper counts.
        if n_users > data.n_users or MIN_ITEM_SHARE * n_items > data.n_items:
            skipped.append(f"{n_users:,} x {n_items:,}: left out, the data have {data.n_users:,} x {data.n_items:,}")
        else:
            sizes.append((n_users, n_items))
    if not sizes:
        n_users, n_items = min(PUBLISHED)
        raise ValueError(
            f"data must have at least {n_users:,} users and {n_items:,} items with {MIN_INTERACTIONS} interactions, "
            f"got {data.n_users} and {data.n_items}; pass MovieLens 20M, or None for generated data"
        )
    return sizes, skipped


def _run(data: Interactions, size: tuple[int, int], seed: int, n_threads: int) -> dict[str, Any]:
    """Fit and evaluate every model on one subset, one split and one set of negatives."""
    key = Key.from_seed(seed)
    subset = _subset_of(data, size, key)
    train, test = next(LeaveOneOut().split(subset, key=key))
    hit_ratios, fit_seconds = {}, {}
    models = _models()
    for name, model in models.items():
        # Only the fit is timed, without split and evaluation.
        started = time.perf_counter()
        model.fit(train, key=key, n_threads=n_threads)
        fit_seconds[name] = time.perf_counter() - started
        hit_ratios[name] = evaluate_quietly(model, train, test, [METRIC], N_NEGATIVES, key, n_threads)[METRIC]
    return {
        "n_users": subset.n_users,
        "n_items": subset.n_items,
        "hit_ratios": hit_ratios,
        "fit_seconds": fit_seconds,
        "epsilon": models[OURS].ledger_.to_dict()["epsilon"],
    }


def _join(size: tuple[int, int], runs: Sequence[dict[str, Any]]) -> Record:
    def by_model(field: str) -> dict[str, list[float]]:
        return {name: [run[field][name] for run in runs] for name in runs[0][field]}

    # Sizes and cost are equal for all seeds.
    return Record(
        n_users=runs[0]["n_users"], n_items=runs[0]["n_items"], published=PUBLISHED[size],
        hit_ratios=by_model("hit_ratios"), fit_seconds=by_model("fit_seconds"), epsilon=runs[0]["epsilon"],
    )  # fmt: skip


refuse_old_names(__name__, Figure4="studies.report.Report", Cell="studies.report.Record")
