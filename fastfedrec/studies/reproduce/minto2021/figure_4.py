"""Minto et al. 2021 (FMF-LDP): Figure 4, the hit ratio over numbers of users and items."""

import functools
import statistics
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.accounting.views import SHORT_NAMES, View
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.text import epsilon_from_json, format_epsilon
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut
from fastfedrec.studies.reproduce._trials import each, evaluate_quietly, mean_and_deviation
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, kept
from fastfedrec.systems.baselines.popularity import DPPopularity, Popularity
from fastfedrec.systems.fmf.fmf_ldp import FMFLDP

__all__ = ["Cell", "Figure4", "figure_4"]

# HR@10 by (users, items), read off the table under Figure 4; its "10K" items are the 9,781 of section 4.1.
PUBLISHED = {
    (1_000, 1_000): 0.1160, (10_000, 1_000): 0.6325, (50_000, 1_000): 0.6972,
    (1_000, 5_000): 0.1010, (10_000, 5_000): 0.1988, (50_000, 5_000): 0.6801,
    (1_000, 9_781): 0.1090, (10_000, 9_781): 0.1216, (50_000, 9_781): 0.5654,
}  # fmt: skip
N_USERS, N_ITEMS = 75_040, 9_781  # of the paper's whole data set
MIN_INTERACTIONS = 60  # of a user and of an item
ENOUGH = 0.95  # a user's copy may have a few items less after the filter than the paper counts
METRIC, N_NEGATIVES = "hr@10", 99
QUICK_USERS = 10_000
OURS = "FMF-LDP"
AS_PUBLISHED = "FMF-LDP, as published"
TWIN = "without privacy"
POPULARITY = "popularity"
DP_POPULARITY = "DP popularity, epsilon 1"
GENERATED = (
    f"GENERATED DATA of the paper's shape (movielens-20m preset, {N_USERS:,} users x {N_ITEMS:,} items), not MovieLens"
)
LEGEND = (
    "HR@10 by leave one out among 99 unseen items; mean and standard deviation over seeds, each with a subset, a split "
    "and noise of its own (simulations).\n"
    "epsilon: of a user in the whole run of FMF-LDP, in nats: against a server that sees who sent what, and the same "
    "behind a shuffler."
)


def _models() -> dict[str, Any]:
    """The figure's setting, which is FMFLDP's default, and what must stand beside it."""
    return {
        AS_PUBLISHED: FMFLDP(5, 2.5, n_reports=100, n_rounds=20, variant="published"),
        OURS: FMFLDP(5, 2.5, n_reports=100, n_rounds=20),
        TWIN: FMFLDP(5, None, n_rounds=20),
        POPULARITY: Popularity(),
        DP_POPULARITY: DPPopularity(1.0),
    }


@dataclass(frozen=True)
class Cell:
    """One number of users and of items.

    Parameters
    ----------
    n_users, n_items : int
        As they ran.
    published : float
        The paper's HR@10.
    hit_ratios, fit_seconds : dict of str to list of float
        By model, one figure a seed.
    epsilon : dict of str to (float or "infinite")
        What one run of FMF-LDP costs a user, in nats, by adversary as in `Ledger.epsilon`; "infinite" is no guarantee.
    """

    n_users: int
    n_items: int
    published: float
    hit_ratios: dict[str, list[float]]
    fit_seconds: dict[str, list[float]]
    epsilon: dict[str, float | str]


@dataclass(frozen=True)
class Figure4(SideBySide):
    """The figure, side by side with ours.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    cells : tuple of Cell
        By users, then items.
    skipped : tuple of str
        What the data are too small for.
    """

    cells: tuple[Cell, ...]
    skipped: tuple[str, ...]

    title = "FMF-LDP, Figure 4: the paper beside ours"
    legend = LEGEND

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the data are too small for."""
        return self.skipped

    def verdict(self) -> str:
        """Say in how many cells FMF-LDP beats popularity, by the means.

        Returns
        -------
        str
            One sentence for each variant.
        """
        sentences = []
        for name in (OURS, AS_PUBLISHED):
            won = sum(_mean(cell, name) > _mean(cell, POPULARITY) for cell in self.cells)
            sentences.append(f"{name}: above popularity in {won} of {len(self.cells)} cells.")
        return "\n".join(sentences)

    def _draw(self, figure: Any) -> None:
        """A panel for each number of users."""
        users = sorted({cell.n_users for cell in self.cells})
        figure.set_size_inches(4 * len(users) + 1, 4.5)
        panels = figure.subplots(1, len(users), sharey=True, squeeze=False)[0]
        for panel, n_users in zip(panels, users, strict=True):
            cells = [cell for cell in self.cells if cell.n_users == n_users]
            x = [cell.n_items for cell in cells]
            panel.plot(x, [cell.published for cell in cells], "k--o", label="the paper")
            for name in cells[0].hit_ratios:
                found = [cell.hit_ratios[name] for cell in cells]
                spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in found]
                panel.errorbar(x, [_mean(cell, name) for cell in cells], spread, marker=".", label=name)
            panel.set(title=f"{n_users:,} users", xlabel="items", ylim=(0, 1))
        panels[0].set_ylabel(METRIC.upper())
        panels[0].legend(fontsize="small")
        figure.suptitle(self.source, fontsize="small")

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        names = list(self.cells[0].hit_ratios)
        views: tuple[View, ...] = ("server", "shuffled_server")
        header = ["users x items", "the paper", *names, *(f"epsilon, {SHORT_NAMES[view]}" for view in views)]
        rows = [
            [
                f"{cell.n_users:,} x {cell.n_items:,}",
                f"{cell.published:.4f}",
                *(mean_and_deviation(cell.hit_ratios[name]) for name in names),
                *(format_epsilon(epsilon_from_json(cell.epsilon[view])) for view in views),
                f"{max(cell.fit_seconds[OURS]):.2f}",
            ]
            for cell in self.cells
        ]
        return [*header, "seconds of training"], rows


def figure_4(data: Interactions | None = None, *, n_seeds: int = 3, **options: Any) -> Figure4:
    """Compute Figure 4 of the FMF-LDP paper: HR@10 over numbers of users and items.

    The paper samples its subsets from MovieLens 20M, of which it keeps users and items with at least 60 interactions.
    Here users and items of a subset are drawn uniformly, for each seed anew.

    Parameters
    ----------
    data : Interactions or None
        MovieLens 20M, or anything else; what is greater than 0 counts, and the filter is applied to it.  None
        generates data of the paper's shape.
    n_seeds : int
        Subsets, splits and noise from the seeds 0, 1, ...: these are simulations.
    **options : object
        As for `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: leave out the cells of more than 10,000
        users.

    Returns
    -------
    Figure4
        Cells that the data are too small for are left out, and named.

    Raises
    ------
    ValueError
        The data are too small for every cell.

    References
    ----------
    .. [1] Minto, Haller, Haddadi, Livshits, "Stronger privacy for federated collaborative filtering with implicit
       feedback", RecSys 2021.
    """
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    how = RunOptions(**options)
    data, source = paper_data(data, how.n_threads)
    sizes, skipped = _fitting_sizes(data, QUICK_USERS if how.quick else max(PUBLISHED)[0])
    settings = {
        "version": __version__,
        "source": source,
        "checksum": zlib.crc32(data.indices.tobytes(), zlib.crc32(data.indptr.tobytes())),
        "models": {name: repr(model) for name, model in _models().items()},
        "metric": METRIC,
        "n_negatives": N_NEGATIVES,
        "n_threads": how.n_threads,
    }
    runs = [(size, seed) for size in sizes for seed in range(n_seeds)]
    found: dict[tuple[int, int], list[dict[str, Any]]] = {size: [] for size in sizes}
    for size, seed in each(runs, how, "Figure 4", "run"):
        name, run = f"cell-{size[0]}x{size[1]}-seed-{seed}", functools.partial(_run, data, size, seed, how.n_threads)
        found[size].append(kept(how.folder, name, settings, run))
    cells = tuple(_join(size, found[size]) for size in sorted(sizes))
    return Figure4(source, settings | {"n_seeds": n_seeds}, cells, tuple(skipped))


def paper_data(data: Interactions | None, n_threads: int, *, timestamps: bool = False) -> tuple[Interactions, str]:
    """What is computed on, and a sentence that says which data these are.

    Parameters
    ----------
    data : Interactions or None
        Binarized and filtered as the paper does; None generates data of its shape.
    n_threads : int
        At least 1.
    timestamps : bool
        Generated data say which interaction of a user was drawn last.

    Returns
    -------
    data : Interactions
        As the paper keeps them.
    source : str
        The first line of a page.
    """
    if data is None:
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


def subset_of(data: Interactions, size: tuple[int, int], key: Key) -> Interactions:
    """So many users and items, drawn uniformly.

    Parameters
    ----------
    data : Interactions
        The whole.
    size : tuple of int
        Users and items; where there are fewer, all.
    key : Key
        Chooses them.

    Returns
    -------
    Interactions
        In the order of `data`.
    """
    users = key.permutation("reproduce.minto2021.users", size=data.n_users)[: size[0]]
    items = key.permutation("reproduce.minto2021.items", size=data.n_items)[: size[1]]
    return data.select_users(np.sort(users)).select_items(items)


def _fitting_sizes(data: Interactions, most_users: int) -> tuple[list[tuple[int, int]], list[str]]:
    """The published sizes that the data have, and why the others are left out."""
    sizes, skipped = [], []
    for n_users, n_items in sorted(PUBLISHED):
        if n_users > most_users:
            continue
        if n_users > data.n_users or ENOUGH * n_items > data.n_items:
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
    """Every model on one subset, one split and one set of negatives."""
    key = Key.from_seed(seed)
    subset = subset_of(data, size, key)
    train, test = next(LeaveOneOut().split(subset, key=key))
    hit_ratios, fit_seconds = {}, {}
    models = _models()
    for name, model in models.items():
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


def _join(size: tuple[int, int], runs: Sequence[dict[str, Any]]) -> Cell:
    def by_model(what: str) -> dict[str, list[float]]:
        return {name: [run[what][name] for run in runs] for name in runs[0][what]}

    users, items, epsilon = (runs[0][name] for name in ("n_users", "n_items", "epsilon"))
    return Cell(users, items, PUBLISHED[size], by_model("hit_ratios"), by_model("fit_seconds"), epsilon)


def _mean(cell: Cell, name: str) -> float:
    return statistics.fmean(cell.hit_ratios[name])
