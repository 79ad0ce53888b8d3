"""DP-ALS (Chien et al. 2021): recall of held-out users, for DPALS with its options and for DPGram.

The paper and its successors use MovieLens 20M.  Here the data are MovieLens 1M, or generated data of the size of 20M.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import Split, UserHoldout, evaluate
from fastfedrec.studies.drawings import draw_bars
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import (
    brief_table,
    cache_last,
    format_cost,
    means,
    movie_features,
    over_seeds,
    select_models,
)
from fastfedrec.systems.baselines.implicit_als import ImplicitALS
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.dp_als.model import DPALS
from fastfedrec.systems.gram.dp_gram import DPGram

__all__ = ["brief", "recall_table"]

TABLE = "recall"
EPSILONS = (1.0, 5.0)  # epsilons of the whole run, zero_out
LIKED = 3.5  # ratings above it count as liked: 4 and more, with or without half stars
# Users, items and mean row length of MovieLens 20M's ratings of 4 and more.
N_USERS, N_ITEMS, ROW_LENGTH = 136_677, 20_108, 73.0
QUICK_SIZE = (2_000, 600, 40.0)
# A tenth of the users is held out, and 80% of their items are given to the model.
SPLIT = UserHoldout(0.1, given=0.8)
METRICS = ("recall@20", "ndcg@100")


def _recall(cell: Record) -> float:
    """Return the mean Recall@20 over seeds."""
    return statistics.fmean(cell.recalls)


def _compare_epsilons(table: Report) -> str:
    """Name the best private model at each epsilon, and the best DPALS."""
    lines = []
    for epsilon in sorted({cell.epsilon for cell in table.cells if cell.epsilon is not None}):
        cells = [cell for cell in table.cells if cell.epsilon == epsilon]
        best = max(cells, key=_recall)
        line = f"Epsilon {epsilon:g}: {best.model} has the largest Recall@20, {_recall(best):.3f}"
        rivals = [cell for cell in cells if cell.model.startswith("DPALS")]
        if rivals and not best.model.startswith("DPALS"):
            rival = max(rivals, key=_recall)
            line += f"; DPALS has {_recall(rival):.3f} ({rival.model})"
        lines.append(f"{line}.")
    return "\n".join(lines) or "No private model was run."


def _draw(table: Report, figure: Any) -> None:
    bars = {
        f"{cell.model}, {'no privacy' if cell.epsilon is None else f'{cell.epsilon:g}'}": _recall(cell)
        for cell in table.cells
    }
    draw_bars(figure, bars, (9, 1 + 0.35 * len(bars)), "Recall@20", title=table.title)


_COLUMNS = [
    ("model", "{.model}"), ("epsilon", format_cost), ("Recall@20", means("recalls")), ("NDCG@100", means("ndcgs")),
    ("seeds", lambda cell: str(len(cell.recalls))),
]  # fmt: skip
STUDY = Study(
    title="DP-ALS: Recall@20 and NDCG@100 of held-out users",
    legend=(
        "Liked items have a rating of 4 or more.  A tenth of the users is held out; 80% of such a user's liked items "
        "are given to the model, and the remaining ones are ranked among all items that are not given.  Recall@20 is "
        "divided by the number of tested items.  Means over seeds, each with its own split and noise, and the standard "
        "deviation.  epsilon: of the whole run, for all data of one user against none (zero_out), the number of users "
        "public, at delta 1e-6; in brackets for replacing one user."
    ),
    columns=_COLUMNS,
    verdict=_compare_epsilons,
    draw=_draw,
    records="cells",
    remarks=[
        "The paper's data are MovieLens 20M, and its hyperparameters were tuned for each epsilon; ours are the "
        "defaults."
    ],
)


def brief(table: Report) -> str:
    """Return the Markdown table of means with a column for each epsilon, as on the system's page."""
    epsilons = sorted({cell.epsilon for cell in table.cells}, key=lambda epsilon: epsilon or math.inf)
    rows: dict[str, dict[float | None, str]] = {}
    for cell in table.cells:
        means = "/".join(f"{statistics.fmean(values):.3f}" for values in (cell.recalls, cell.ndcgs))
        rows.setdefault(cell.model, {})[cell.epsilon] = means
    names = []
    for epsilon in epsilons:
        costs = [cell.replaced for cell in table.cells if cell.epsilon == epsilon and cell.replaced is not None]
        # Models of one epsilon may differ in the cost of replacing a user, so the header shows the range.
        ends = dict.fromkeys(f"{cost:.2f}" for cost in (min(costs, default=0.0), max(costs, default=0.0)))
        names.append("no privacy" if epsilon is None else f"{epsilon:g} ({' to '.join(ends)})")
    cells = ([model, *(row.get(epsilon, "") for epsilon in epsilons)] for model, row in rows.items())
    return brief_table(["model", *names], cells)


def recall_table(
    data: Interactions | None = None, *, n_seeds: int = 3, only: Sequence[str] | None = None, **options: Any
) -> Report:
    """Measure DPALS with its options, and DPGram, on held-out users.

    Without `data` (MovieLens with ratings), data of the size of MovieLens 20M are generated, where DPGram needs a
    matrix of 20,108 x 20,108 pairs.  `only` names models of the table.  `options` are the ones of `RunOptions`; no
    figure depends on `n_threads`, and `quick` runs epsilon 1 alone, on few users if they are generated.

    References
    ----------
    .. [1] Chien, Jain, Krichene, Rendle, Song, Thakurta, Zhang, "Private alternating least squares: practical private
       matrix completion with tighter rates", ICML 2021, Section 5.
    .. [2] Krichene, Jain, Song, Sundararajan, Thakurta, Zhang, "Multi-task differential privacy under distribution
       skew", ICML 2023.
    .. [3] Curmei, Krichene, Zhang, Sundararajan, "Private matrix factorization with public item features", RecSys 2023.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    if data is None:
        n_users, n_items, row_length = QUICK_SIZE if how.quick else (N_USERS, N_ITEMS, ROW_LENGTH)
        source = (
            f"GENERATED DATA (generate_implicit, movielens-1m preset), not MovieLens: {n_users:,} users x "
            f"{n_items:,} items, rows of {row_length:g}"
        )
        settings: dict[str, Any] = {"generated": [n_users, n_items, row_length]}
        item_features, draw = None, functools.partial(_generated, n_users, n_items, row_length, how.n_threads)
    else:
        liked = check_instance("data", data, Interactions, "use load_movielens").binarize(LIKED)
        source = (
            f"The data given, ratings of 4 and more: {liked.n_users:,} users x {liked.n_items:,} items, "
            f"{liked.n_interactions:,} ratings"
        )
        settings = {"data": checksum([data])}
        item_features, draw = movie_features(data), functools.partial(_split, liked)
    settings |= {"version": __version__, "split": repr(SPLIT)}
    # Parts are ordered by seed, so one cached split serves all models of a seed.
    draw_cached: Callable[[int], Split] = cache_last(draw)
    models = select_models(
        _models(EPSILONS[:1] if how.quick else EPSILONS, item_features, is_small=data is not None), only
    )
    cases = {}
    for seed, (name, named_models) in itertools.product(range(n_seeds), models.items()):
        for number, model in enumerate(named_models):
            measure = functools.partial(_run_model, model, draw_cached, seed, how.n_threads)
            part_settings = settings | {"model": repr(model), "seed": seed}
            cases[seed, name, number] = Case(f"{name}-{number}-seed-{seed}", part_settings, measure)
    runs = measure_cases(cases, how, "DP-ALS", "model")
    cells = []
    for name, named_models in models.items():
        for number, model in enumerate(named_models):
            recalls, ndcgs, replaced = over_seeds([runs[seed, name, number] for seed in range(n_seeds)]).values()
            # Epsilon of the whole run, for all data of one user against none; None without a guarantee.
            epsilon = getattr(model, "epsilon", None)
            cells.append(Record(model=name, epsilon=epsilon, replaced=replaced[0], recalls=recalls, ndcgs=ndcgs))
    described = {name: [repr(model) for model in named_models] for name, named_models in models.items()}
    return Report(STUDY, source, settings | {"seeds": n_seeds, "models": described}, cells=tuple(cells))


def _models(epsilons: Sequence[float], item_features: dict[str, Any] | None, *, is_small: bool) -> dict[str, list[Any]]:
    """Return the models of each row: one for each epsilon, or one without privacy."""
    models: dict[str, list[Any]] = {
        "DPALS": [DPALS(epsilon) for epsilon in epsilons],
        "DPALS, adaptive": [DPALS(epsilon, weights="adaptive") for epsilon in epsilons],
        "DPGram": [DPGram(epsilon) for epsilon in epsilons],
    }
    if item_features is not None:
        models["DPALS, adaptive, features"] = [
            DPALS(epsilon, weights="adaptive", item_features=item_features) for epsilon in epsilons
        ]
        models["DPGram, features"] = [DPGram(epsilon, item_features=item_features) for epsilon in epsilons]
    models |= {"popularity": [Popularity()], "ImplicitALS": [ImplicitALS()]}
    if is_small:  # EASE inverts a matrix of all pairs of items
        models["EASE"] = [EASE()]
    return models


def _run_model(model: Any, draw_split: Callable[[int], Split], seed: int, n_threads: int) -> dict[str, Any]:
    """Fit and evaluate one model with a seed's split and noise, and return both metrics and the cost."""
    train, test, given = draw_split(seed)
    fitted = model.fit(train, key=Key.from_seed(seed), n_threads=n_threads)
    metrics = evaluate(fitted, train, test, given=given, metrics=list(METRICS), n_threads=n_threads)
    # Models without an epsilon have no cost to report.
    replaced = fitted.ledger_.epsilon("public") if hasattr(model, "epsilon") else math.nan
    return {metric: metrics[metric] for metric in METRICS} | {"replaced": None if math.isnan(replaced) else replaced}


def _split(data: Interactions, seed: int) -> Split:
    return next(SPLIT.split(data, key=Key.from_seed(seed)))


def _generated(n_users: int, n_items: int, row_length: float, n_threads: int, seed: int) -> Split:
    key = Key.from_seed(seed)
    return _split(generate_implicit(n_users, n_items, key=key, mean_interactions=row_length, n_threads=n_threads), seed)


refuse_old_names(__name__, RecallTable="studies.report.Report", RecallCell="studies.report.Record")
