"""DPGram and ShuffledSketchGram on generated data: gains over popularity, and their choice of a personal model.

No paper has these figures; both systems are this package's own (docs/explanation/systems/gram/dp-gram.md).
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastfedrec.accounting import ShuffledReports, calibrate_n_reports
from fastfedrec.core.check import check_choice, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.reproduce._trials import Accuracy, accuracy, generated_split, track_progress
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, run_or_load
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, ShuffledSketchGram

__all__ = ["GainMap", "MapCell", "gain_map"]

FIGURES = ("map", "order")
DP_GRAM, SKETCH = "DPGram", "ShuffledSketchGram"
EPSILONS = (0.5, 1.0, 2.0)
# Numbers of users and items, and mean row lengths, of each figure.
SIZES = {
    "map": ((1_000, 10_000, 100_000, 1_000_000), (300, 1_000, 3_000, 10_000, 30_000), (30.0, 100.0)),
    "order": ((10_000, 50_000), (1_000, 3_000), (100.0,)),
}
QUICK_USERS = 10_000
MAX_TESTED = 20_000  # maximum number of tested users of a cell; the standard error of a share is below .004
# Limits of one cell, so that the map takes a few hours on two cores with 12 GB.
MAX_INTERACTIONS = 110_000_000
MAX_PAIRS = 2**30  # items squared; half of the pairs take two numbers of 8 bytes each
MAX_SKETCH_CELLS = 2**28  # cells of one rotation; each takes 4 bytes per thread and 16 on the server
MAX_REPORTS = 500_000_000  # users times reports
TOTAL_SKETCH_CELLS = 2**26  # cells of all rotations, which limits their number to between 1 and 8
LEGEND = (
    "gain: HR@10 minus the HR@10 of exact popularity, leave one out among 99 unseen items; in brackets the same among "
    "all unseen items.  signal: the public number n_users mu / sqrt(n_items) of DPGram, or the signal of the sketch.  "
    "popularity: the model chose popularity by its own release.  epsilon of the whole run, for all of a user's data "
    "against none, at delta 1e-6."
)


@dataclass(frozen=True)
class MapCell:
    """One model at one epsilon on one data set.

    Parameters
    ----------
    model : str
        Name of the model: "DPGram" or "ShuffledSketchGram".
    n_users, n_items : int
        Numbers of users and items of the data.
    row_length : float
        Mean number of items per user.
    latest : bool
        Whether each user's last drawn item was held out, instead of a random one.
    epsilon : float
        Epsilon of the whole run.
    signal : float
        Public signal of the model.
    is_personal : bool
        Whether the model is personalised.
    popularity, hit_ratio : float
        HR@10 among 99 unseen items, of exact popularity and of the model.
    popularity_all, hit_ratio_all : float
        HR@10 among all unseen items, of exact popularity and of the model.
    popularity_ndcg_all, ndcg_all : float
        nDCG@10 among all unseen items, of exact popularity and of the model.
    n_tested : int
        Number of tested users.
    """

    model: str
    n_users: int
    n_items: int
    row_length: float
    latest: bool
    epsilon: float
    signal: float
    is_personal: bool
    popularity: float
    hit_ratio: float
    popularity_all: float
    hit_ratio_all: float
    popularity_ndcg_all: float
    ndcg_all: float
    n_tested: int

    @property
    def gain(self) -> float:
        """Difference of HR@10 among 99 items between the model and exact popularity."""
        return self.hit_ratio - self.popularity

    @property
    def gain_all(self) -> float:
        """Difference of HR@10 among all unseen items between the model and exact popularity."""
        return self.hit_ratio_all - self.popularity_all

    @property
    def margin(self) -> float:
        """Two standard errors of the hit ratio among 99 items, due to the draw of tested users."""
        return 2 * math.sqrt(self.popularity * (1 - self.popularity) / self.n_tested)


@dataclass(frozen=True)
class GainMap(SideBySide):
    """Gain over popularity by size and epsilon, with the model's own choice.

    Parameters
    ----------
    source, settings : object
        Parameters of `SideBySide`.
    figure : {"map", "order"}
        Name of the figure.
    cells : tuple of MapCell
        Cells by size, split, model and epsilon.
    skipped : tuple of str
        Omitted cells, with a line for each rule.
    """

    figure: str
    cells: tuple[MapCell, ...]
    skipped: tuple[str, ...]

    legend = LEGEND

    @property
    def title(self) -> str:
        """Title of the figure."""
        if self.figure == "map":
            return "DPGram and ShuffledSketchGram: gain over popularity, and their choice"
        return "DPGram and ShuffledSketchGram: a random item held out, and the last one drawn"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Omitted cells, with a line for each rule."""
        return self.skipped

    def verdict(self) -> str:
        """Count for each model and choice the cells with a gain, a tie and a loss against exact popularity.

        Returns
        -------
        str
            Two sentences for each model.
        """
        sentences = []
        for name in dict.fromkeys(cell.model for cell in self.cells):
            cells = [cell for cell in self.cells if cell.model == name]
            personal = [cell for cell in cells if cell.is_personal]
            popular = [cell for cell in cells if not cell.is_personal]
            sentences += [
                f"{name}, personal in {len(personal)} cells: {_count(personal)} than exact popularity.",
                f"{name}, popularity in {len(popular)} cells: {_count(popular)} than exact popularity.",
            ]
        return "\n".join(sentences)

    def _draw(self, figure: Any) -> None:
        """Draw the gain over the signal, with a panel for each model and a colour for each number of items."""
        names = list(dict.fromkeys(cell.model for cell in self.cells))
        figure.set_size_inches(5.5 * len(names) + 1, 4.5)
        for panel, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
            model_cells = [cell for cell in self.cells if cell.model == name]
            for n_items, latest in sorted({(cell.n_items, cell.latest) for cell in model_cells}):
                cells = [cell for cell in model_cells if (cell.n_items, cell.latest) == (n_items, latest)]
                label = f"{n_items:,} items" + (", last drawn" if latest else "")
                (line,) = panel.plot(
                    [c.signal for c in cells], [c.gain for c in cells], "x" if latest else "o", label=label
                )
                popular = [c for c in cells if not c.is_personal]
                signals, gains = [c.signal for c in popular], [c.gain for c in popular]
                # Squares mark the cells with popularity chosen by the model.
                panel.plot(signals, gains, "s", mfc="none", ms=10, color=line.get_color())
            panel.plot([], [], "ks", mfc="none", ms=10, label="chose popularity")
            panel.axhline(0.0, color="k", linewidth=0.5)
            panel.set(title=name, xlabel="signal", ylabel="gain in HR@10", xscale="log")
            panel.legend(fontsize="small")
        figure.suptitle(self.source, fontsize="small")

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        header = ["model", "users x items", "row", "held out", "popularity"]
        header += [f"gain at {epsilon:g} (among all; signal)" for epsilon in EPSILONS]
        rows: dict[tuple[Any, ...], dict[float, str]] = {}
        for cell in self.cells:
            size = f"{cell.n_users:,} x {cell.n_items:,}", f"{cell.row_length:g}", "last" if cell.latest else "random"
            note = "" if cell.is_personal else ", popularity"
            shown = f"{cell.gain:+.3f} ({cell.gain_all:+.3f}; {cell.signal:.3g}{note})"
            popularity = f"{cell.popularity:.3f} ({cell.popularity_all:.3f})"
            rows.setdefault((cell.model, *size, popularity), {})[cell.epsilon] = shown
        return header, [
            [*row, *(shown_gains.get(epsilon, "") for epsilon in EPSILONS)] for row, shown_gains in rows.items()
        ]


def gain_map(figure: str = "map", *, seed: int = 0, **options: Any) -> GainMap:
    """Measure the gain over popularity of both systems over sizes, row lengths and epsilons.

    Parameters
    ----------
    figure : {"map", "order"}
        "map": users x items x row length x epsilon, a random item of each user held out.  "order": fewer sizes, each
        with a random item held out and with the last one drawn.
    seed : int
        Seed of data, split and noise: the runs are simulations.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: at most 10,000 users and 1,000 items.

    Returns
    -------
    GainMap
        The figure.  Cells above the limits of this module are omitted, and `skipped` lists them.
    """
    check_choice("figure", figure, FIGURES)
    how = RunOptions(**options)
    seed = check_integer("seed", seed, low=0, high=None)
    settings = {
        "version": __version__,
        "seed": seed,
        "models": {name: repr(_model(name, 1.0, 300)) for name in (DP_GRAM, SKETCH)},
        "epsilons": list(EPSILONS),
        "most_tested": MAX_TESTED,
    }
    skipped: dict[str, list[str]] = {}
    plans = track_progress(_plans(figure, how.quick, skipped), how, figure, "data set")
    model_cells = (cells for plan in plans for cells in _run_or_load_cells(plan, settings, how.folder, how.n_threads))
    # `sorted` is stable, so the cells of a model keep the order of sizes and epsilons.
    cells = sorted(
        (MapCell(**cell) for cells_of_model in model_cells for cell in cells_of_model), key=lambda cell: cell.model
    )
    return GainMap(
        "GENERATED DATA (generate_implicit, movielens-1m preset), not MovieLens",
        settings,
        figure,
        tuple(cells),
        tuple(f"left out, {rule}: {', '.join(dict.fromkeys(sizes))}" for rule, sizes in skipped.items()),
    )


_Size = tuple[int, int, float]
_Plan = tuple[_Size, bool, dict[str, list[float]]]


def _plans(figure: str, quick: bool, skipped: dict[str, list[str]]) -> Iterator[_Plan]:
    """Yield data sets from small to large with the fits on each, and add the omitted ones to `skipped`."""
    users, items, lengths = SIZES[figure]
    # Data sets are ordered by number of interactions, so that first results appear early.
    for size in sorted(itertools.product(users, items, lengths), key=lambda size: (size[0] * size[2], size)):
        n_users, n_items, length = size
        if quick and (n_users > QUICK_USERS or n_items > 1_000):
            continue
        label = f"{n_users:,} x {n_items:,}"
        # Too many interactions exclude the whole data set, and the remaining limits exclude single models.
        if n_users * length > MAX_INTERACTIONS:
            skipped.setdefault(f"more than {MAX_INTERACTIONS:,} interactions", []).append(f"{label} x {length:g}")
            continue
        epsilons_by_model: dict[str, list[float]] = {}
        for name, epsilon in itertools.product((DP_GRAM, SKETCH), EPSILONS):
            rule = _too_large(name, size, epsilon)
            if rule is None:
                epsilons_by_model.setdefault(name, []).append(epsilon)
            else:
                # Limits on the number of items do not depend on epsilon, so their label has none.
                skipped.setdefault(rule, []).append(label if "items" in rule else f"{label} at {epsilon:g}")
        for latest in (False, True) if figure == "order" else (False,):
            if epsilons_by_model:
                yield size, latest, epsilons_by_model


@functools.cache
def _too_large(name: str, size: _Size, epsilon: float) -> str | None:
    """Return the limit that a cell exceeds, or None."""
    n_users, n_items, _ = size
    if name == DP_GRAM:
        cells, limit, quantity = n_items**2, MAX_PAIRS, "items squared"
    else:
        cells, limit, quantity = _length(n_items) ** 2, MAX_SKETCH_CELLS, "cells of one rotation of the items"
    if cells > limit:
        return f"{name}, {quantity} beyond {limit:,}"
    if name == DP_GRAM:
        return None
    n_reports = _n_reports(n_users, epsilon)
    if n_reports == 0:
        return f"{name}, not one report fits epsilon"
    return f"{name}, more than {MAX_REPORTS:,} reports" if n_users * n_reports > MAX_REPORTS else None


@functools.cache
def _n_reports(n_users: int, epsilon: float) -> int:
    model = ShuffledSketchGram(epsilon)
    # The number of reports is the largest one within epsilon, and it depends on public numbers alone.
    event = ShuffledReports(
        "largest response", model.epsilon_0, 1, n_users, 1.0, neighboring="zero_out", n_candidates=N_CANDIDATES
    )
    return calibrate_n_reports(event, epsilon=epsilon, delta=model.delta)


def _length(n_items: int) -> int:
    # The sketch pads the items to the next power of two.
    return 1 << (n_items - 1).bit_length()


def _model(name: str, epsilon: float, n_items: int) -> DPGram | ShuffledSketchGram:
    if name == DP_GRAM:
        return DPGram(epsilon)
    # More rotations reduce the error of the sketch, as far as memory allows.
    n_rotations = max(1, min(8, TOTAL_SKETCH_CELLS // _length(n_items) ** 2))
    return ShuffledSketchGram(epsilon, n_rotations=n_rotations)


def _run_or_load_cells(
    plan: _Plan, settings: dict[str, Any], folder: str | Path | None, n_threads: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the cells of each model on one data set."""
    size, latest, epsilons_by_model = plan
    n_users, n_items, length = size
    # The cached function draws the data only if the cells of some model are not stored yet.
    data: Callable[[], _Data] = functools.cache(functools.partial(_data, size, latest, settings["seed"], n_threads))
    for name, epsilons in epsilons_by_model.items():
        title = f"{name}-{n_users}x{n_items}x{length:g}-{'last' if latest else 'random'}-seed-{settings['seed']}"
        fit = functools.partial(_run, plan, name, data, settings["seed"], n_threads)
        yield run_or_load(folder, title, settings | {"epsilons": epsilons}, fit)


_Data = tuple[Interactions, Interactions, Accuracy]


def _data(size: _Size, latest: bool, seed: int, n_threads: int) -> _Data:
    """Return one split of one data set, and popularity's figures on it."""
    key = Key.from_seed(seed)
    train, test = generated_split(*size, key, MAX_TESTED, latest=latest, n_threads=n_threads)
    return train, test, accuracy(Popularity().fit(train), train, test, key, n_threads)


def _run(plan: _Plan, name: str, data: Callable[[], _Data], seed: int, n_threads: int) -> list[dict[str, Any]]:
    """Fit and evaluate one model at every epsilon on one data set and one split."""
    key = Key.from_seed(seed)
    (n_users, n_items, length), latest, epsilons_by_model = plan
    train, test, popular = data()
    cells = []
    for epsilon in epsilons_by_model[name]:
        model = _model(name, epsilon, n_items).fit(train, key=key, n_threads=n_threads)
        figures = accuracy(model, train, test, key, n_threads)
        cell = MapCell(
            name, n_users, n_items, length, latest, epsilon, model.signal_, model.is_personal_, popular.hit_ratio,
            figures.hit_ratio, popular.hit_ratio_all, figures.hit_ratio_all, popular.ndcg_all, figures.ndcg_all,
            test.n_interactions,
        )  # fmt: skip
        cells.append(asdict(cell))
    return cells


def _count(cells: list[MapCell]) -> str:
    """Count the cells with a gain beyond chance, about none, and a loss."""
    n_better = sum(cell.gain > cell.margin for cell in cells)
    n_worse = sum(cell.gain < -cell.margin for cell in cells)
    return f"better in {n_better}, about even in {len(cells) - n_better - n_worse}, worse in {n_worse}"
