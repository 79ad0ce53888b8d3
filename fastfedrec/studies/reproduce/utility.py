"""PrivateRecommender over epsilon on four kinds of data, compared with popularity and a model without privacy.

No paper has this table (docs/explanation/systems/private_recommender/private-recommender.md).
"""

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import accuracy, means, over_seeds
from fastfedrec.studies.reproduce.movielens_users import users_of_the_thousand
from fastfedrec.systems.baselines.implicit_als import ImplicitALS
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.private_recommender.model import PrivateRecommender

__all__ = ["TABLE", "utility_table"]

TABLE = "utility"
EPSILONS = (0.5, 1.0, 2.0, 4.0)
TRUSTS = ("central", "shuffle", "local")
MOVIES = "movies"  # MovieLens 1M, or data generated like it
# Generated data by kind: the preset, and numbers of users and items if they differ from the preset's.
SIZES: dict[str, tuple[str, int | None, int | None]] = {
    MOVIES: ("movielens-1m", None, 1_000), "check-ins": ("check-ins", None, None),
    "purchases": ("purchases", None, None), "catalogue": ("catalogue", None, None),
}  # fmt: skip
QUICK_SIZE = 1_500, 150
MAX_TESTED = 10_000  # maximum number of tested users
MAX_EASE_ITEMS = 10_000  # maximum number of items for EASE, which inverts a dense matrix of all pairs


def _compare_popularity(table: Report) -> str:
    """Compare each private run with exact popularity, in one sentence for each trust model."""
    # Each kind of data has its own popularity baseline.
    popular = {cell.data: statistics.fmean(cell.hit_ratios) for cell in table.cells if cell.model == "popularity"}
    lines = []
    for trust in TRUSTS:
        gains = [statistics.fmean(cell.hit_ratios) - popular[cell.data] for cell in table.cells if cell.model == trust]
        if gains:
            n_above = sum(gain > 0 for gain in gains)
            lines.append(
                f"{trust}: above exact popularity in {n_above} of {len(gains)} rows, from {min(gains):+.3f} to "
                f"{max(gains):+.3f}."
            )
    return "\n".join(lines)


def _draw(table: Report, figure: Any) -> None:
    """Draw a panel for each kind of data and each set of candidates."""
    kinds = list(dict.fromkeys(cell.data for cell in table.cells))
    figure.set_size_inches(4 * len(kinds), 7)
    panels = figure.subplots(2, len(kinds), squeeze=False)
    for (row, ratios), (column, kind) in itertools.product(
        enumerate(("hit_ratios", "hit_ratios_all")), enumerate(kinds)
    ):
        panel, kind_cells = panels[row][column], [cell for cell in table.cells if cell.data == kind]
        for model in dict.fromkeys(cell.model for cell in kind_cells):
            cells = [cell for cell in kind_cells if cell.model == model]
            values = [statistics.fmean(getattr(cell, ratios)) for cell in cells]
            if cells[0].epsilon is None:
                panel.axhline(values[0], linestyle="--", color="k" if model == "popularity" else "0.6", label=model)
            else:
                panel.plot([cell.epsilon for cell in cells], values, "o-", label=model)
        candidates = "99 sampled" if row == 0 else "all unseen"
        panel.set(title=kind, xlabel="epsilon", ylabel=f"HR@10 among {candidates} items", xscale="log", ylim=(0, None))
        panel.legend(fontsize="small")


_COLUMNS = [
    ("data", "{.data}"), ("model", "{.model}"),
    ("epsilon", lambda cell: "none" if cell.epsilon is None else f"{cell.epsilon:g}"),
    ("system", lambda cell: " / ".join(dict.fromkeys(cell.systems))),
    ("HR@10", means("hit_ratios")), ("HR@10, all", means("hit_ratios_all")), ("nDCG@10, all", means("ndcgs_all")),
    ("seeds", lambda cell: str(len(cell.hit_ratios))),
]  # fmt: skip
STUDY = Study(
    title="PrivateRecommender: utility over epsilon on four kinds of data",
    legend=(
        "Leave one out; the mean over seeds, and the standard deviation where there are several.  HR@10: among 99 "
        "sampled items that the user does not have.  all: among all unseen items.  epsilon: of the whole run, for "
        "replacing all data of one user, at delta 1e-6, the number of users public.  central, shuffle, local: the "
        "trust model.  system: the system that PrivateRecommender fitted, and whether it is personalised."
    ),
    columns=_COLUMNS,
    verdict=_compare_popularity,
    draw=_draw,
    records="cells",
)


def utility_table(movies: Interactions | None = None, *, n_seeds: int = 3, **options: Any) -> Report:
    """Measure PrivateRecommender with each trust model over epsilons, on movies, check-ins, purchases and a catalogue.

    Without `movies` (MovieLens 1M), similar data are generated.  `options` are the ones of `RunOptions`; no hit ratio
    depends on `n_threads`, and `quick` generates 1,500 users and 150 items.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    people = None if movies is None else users_of_the_thousand(movies)
    settings: dict[str, Any] = {"version": __version__, "quick": how.quick, "epsilons": list(EPSILONS)}
    if people is not None:
        settings["movies"] = checksum([people])
    kinds = _kinds(people, how)
    cases = {}
    for (kind, draw), seed in itertools.product(kinds.items(), range(n_seeds)):
        measure = functools.partial(_run, draw, seed, how.n_threads)
        cases[kind, seed] = Case(f"{TABLE}-{kind}-seed-{seed}", settings | {"kind": kind, "seed": seed}, measure)
    runs = measure_cases(cases, how, TABLE, "part")
    source = "GENERATED DATA (generate_implicit)" + ("" if people is None else f", except for {MOVIES}: the data given")
    cells = tuple(cell for kind in kinds for cell in _cells(kind, [runs[kind, seed] for seed in range(n_seeds)]))
    return Report(STUDY, source, settings | {"seeds": n_seeds}, cells=cells)


def _kinds(people: Interactions | None, how: RunOptions) -> dict[str, Callable[[Key], Interactions]]:
    """Return the kinds of data, each with a function that draws a data set with a key."""
    draws: dict[str, Callable[[Key], Interactions]] = {}
    for kind, (preset, *size) in SIZES.items():
        n_users, n_items = QUICK_SIZE if how.quick else size
        draws[kind] = functools.partial(_generated, preset, n_users, n_items, how.n_threads)
    if people is not None:
        # Given data are the same for all seeds, with different splits and noise.
        draws[MOVIES] = lambda _: people
    return draws


def _generated(preset: str, n_users: int | None, n_items: int | None, n_threads: int, key: Key) -> Interactions:
    return generate_implicit(n_users, n_items, key=key, preset=preset, n_threads=n_threads)


def _run(draw: Callable[[Key], Interactions], seed: int, n_threads: int) -> list[dict[str, Any]]:
    """Fit and evaluate every model under one seed, and return the figures of their cells."""
    key = Key.from_seed(seed)
    train, test = next(LeaveOneOut().split(draw(key), key=key))
    # All models are tested on the same random users.
    tested_rows = np.sort(key.permutation("reproduce.tested", size=test.n_users)[:MAX_TESTED])
    test = test.select_users(tested_rows)
    not_private = EASE() if train.n_items <= MAX_EASE_ITEMS else ImplicitALS()
    models: list[tuple[str, float | None, Any]] = [
        ("popularity", None, Popularity()),
        (f"{type(not_private).__name__}, not private", None, not_private),
    ]
    models += [
        (trust, epsilon, PrivateRecommender(epsilon, trust=trust, n_users=train.n_users))
        for trust, epsilon in itertools.product(TRUSTS, EPSILONS)
    ]
    rows = []
    for name, epsilon, model in models:
        fitted = model.fit(train, key=key, n_threads=n_threads)
        # PrivateRecommender reports the system that it chose.
        system = type(model).__name__
        if isinstance(fitted, PrivateRecommender):
            system = type(fitted.model_).__name__ + ("" if fitted.is_personal_ else ", popularity")
        figures = accuracy(fitted, train, test, key, n_threads)._asdict()
        rows.append({"model": name, "epsilon": epsilon, "system": system, **figures})
    return rows


def _cells(kind: str, runs: Sequence[list[dict[str, Any]]]) -> Iterator[Record]:
    """Join the rows of all seeds into one cell for each model."""
    for rows in zip(*runs, strict=True):
        figures = over_seeds(rows)
        yield Record(
            data=kind, model=rows[0]["model"], epsilon=rows[0]["epsilon"], systems=figures["system"],
            hit_ratios=figures["hit_ratio"], hit_ratios_all=figures["hit_ratio_all"], ndcgs_all=figures["ndcg_all"],
        )  # fmt: skip


refuse_old_names(__name__, UtilityTable="studies.report.Report", UtilityCell="studies.report.Record")
