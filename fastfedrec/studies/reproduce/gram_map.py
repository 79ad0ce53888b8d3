"""DPGram and ShuffledSketchGram on generated data: gains over popularity, and their choice of a personal model.

No paper has these figures; both systems are this package's own (docs/explanation/systems/gram/dp-gram.md).
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from fastfedrec.accounting import ShuffledReports, calibrate_n_reports
from fastfedrec.core.check import check_choice, check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.drawings import draw_panels
from fastfedrec.studies.files import Case, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import Accuracy, accuracy, cache_last, generated_split
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.gram.shuffled_sketch import N_CANDIDATES, ShuffledSketchGram

__all__ = ["gain_map"]

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


def _gain(cell: Record) -> float:
    """Return the difference of HR@10 among 99 items between the model and exact popularity."""
    return cell.hit_ratio - cell.popularity


def _margin(cell: Record) -> float:
    """Return two standard errors of the hit ratio among 99 items, due to the draw of tested users."""
    return 2 * math.sqrt(cell.popularity * (1 - cell.popularity) / cell.n_tested)


def _count_gains(report: Report) -> str:
    """Count for each model and choice the cells with a gain, a tie and a loss against exact popularity."""
    sentences = []
    for name in dict.fromkeys(cell.model for cell in report.cells):
        for choice, is_personal in (("personal", True), ("popularity", False)):
            cells = [cell for cell in report.cells if cell.model == name and cell.is_personal is is_personal]
            n_better = sum(_gain(cell) > _margin(cell) for cell in cells)
            n_worse = sum(_gain(cell) < -_margin(cell) for cell in cells)
            sentences.append(
                f"{name}, {choice} in {len(cells)} cells: better in {n_better}, about even in "
                f"{len(cells) - n_better - n_worse}, worse in {n_worse} than exact popularity."
            )
    return "\n".join(sentences)


def _draw(report: Report, figure: Any) -> None:
    """Draw the gain over the signal, with a panel for each model and a colour for each number of items."""
    names = dict.fromkeys(cell.model for cell in report.cells)
    for panel, name in draw_panels(figure, names, 5.5, 4.5, sharey=True):
        model_cells = [cell for cell in report.cells if cell.model == name]
        for n_items, latest in sorted({(cell.n_items, cell.latest) for cell in model_cells}):
            cells = [cell for cell in model_cells if (cell.n_items, cell.latest) == (n_items, latest)]
            label = f"{n_items:,} items" + (", last drawn" if latest else "")
            signals, gains = [c.signal for c in cells], [_gain(c) for c in cells]
            (line,) = panel.plot(signals, gains, "x" if latest else "o", label=label)
            popular = [c for c in cells if not c.is_personal]
            signals, gains = [c.signal for c in popular], [_gain(c) for c in popular]
            # Squares mark the cells with popularity chosen by the model.
            panel.plot(signals, gains, "s", mfc="none", ms=10, color=line.get_color())
        panel.plot([], [], "ks", mfc="none", ms=10, label="chose popularity")
        panel.axhline(0.0, color="k", linewidth=0.5)
        panel.set(title=name, xlabel="signal", ylabel="gain in HR@10", xscale="log")
        panel.legend(fontsize="small")
    figure.suptitle(report.source, fontsize="small")


def _cells_by_row(report: Report) -> list[tuple[Record, dict[float, Record]]]:
    """Return the first cell of each row, and the cells of the row by epsilon."""
    rows: dict[tuple[Any, ...], dict[float, Record]] = {}
    for cell in report.cells:
        figures = cell.popularity, cell.popularity_all
        row = (cell.model, cell.n_users, cell.n_items, cell.row_length, cell.latest, *(f"{f:.3f}" for f in figures))
        rows.setdefault(row, {})[cell.epsilon] = cell
    return [(next(iter(row.values())), row) for row in rows.values()]


def _format_gain(epsilon: float, row: tuple[Record, dict[float, Record]]) -> str:
    """Format the cell of a row at `epsilon`, or return "" if there is none."""
    cell = row[1].get(epsilon)
    if cell is None:
        return ""
    note = "" if cell.is_personal else ", popularity"
    gain_all = cell.hit_ratio_all - cell.popularity_all
    return f"{_gain(cell):+.3f} ({gain_all:+.3f}; {cell.signal:.3g}{note})"


def _columns(report: Report) -> list[Any]:
    gains = [
        (f"gain at {epsilon:g} (among all; signal)", functools.partial(_format_gain, epsilon)) for epsilon in EPSILONS
    ]
    return [
        ("model", "{0[0].model}"), ("users x items", "{0[0].n_users:,} x {0[0].n_items:,}"),
        ("row", "{0[0].row_length:g}"), ("held out", lambda row: "last" if row[0].latest else "random"),
        ("popularity", "{0[0].popularity:.3f} ({0[0].popularity_all:.3f})"), *gains,
    ]  # fmt: skip


STUDY = Study(
    title=lambda report: (
        "DPGram and ShuffledSketchGram: gain over popularity, and their choice"
        if report.figure == "map"
        else "DPGram and ShuffledSketchGram: a random item held out, and the last one drawn"
    ),
    legend=(
        "gain: HR@10 minus the HR@10 of exact popularity, leave one out among 99 unseen items; in brackets the same "
        "among all unseen items.  signal: the public number n_users mu / sqrt(n_items) of DPGram, or the signal of the "
        "sketch.  popularity: the model chose popularity by its own release.  epsilon of the whole run, for all of a "
        "user's data against none, at delta 1e-6."
    ),
    columns=_columns,
    verdict=_count_gains,
    draw=_draw,
    records=_cells_by_row,
    remarks=lambda report: report.skipped,
)


def gain_map(figure: str = "map", *, seed: int = 0, **options: Any) -> Report:
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
    Report
        The figure.  A cell of `cells` is one model at one epsilon on one data set: its size, signal and choice, HR@10
        and nDCG@10 of popularity and of the model among 99 and among all unseen items, and the number of tested users.
        Cells above the limits of this module are omitted, and `skipped` lists them.
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
    cases = _cases(_plans(figure, how.quick, skipped), settings, how.n_threads)
    measured = measure_cases(cases, how, figure, "model")
    # `sorted` is stable, so the cells of a model keep the order of sizes and epsilons.
    cells = sorted((Record(**cell) for cells in measured.values() for cell in cells), key=lambda cell: cell.model)
    omitted = tuple(f"left out, {rule}: {', '.join(dict.fromkeys(sizes))}" for rule, sizes in skipped.items())
    source = "GENERATED DATA (generate_implicit, movielens-1m preset), not MovieLens"
    return Report(STUDY, source, settings, figure=figure, cells=tuple(cells), skipped=omitted)


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


def _cases(plans: Iterator[_Plan], settings: dict[str, Any], n_threads: int) -> dict[str, Case]:
    """Return the case of each model on each data set."""
    seed, cases = settings["seed"], {}
    # Cases of one data set follow each other, and it is drawn only if the cells of some model are not stored yet.
    draw: Callable[[_Size, bool], _Data] = cache_last(functools.partial(_data, seed=seed, n_threads=n_threads))
    for size, latest, epsilons_by_model in plans:
        n_users, n_items, length = size
        for name, epsilons in epsilons_by_model.items():
            title = f"{name}-{n_users}x{n_items}x{length:g}-{'last' if latest else 'random'}-seed-{seed}"
            measure = functools.partial(_run, name, epsilons, size, latest, draw, seed, n_threads)
            cases[title] = Case(title, settings | {"epsilons": epsilons}, measure)
    return cases


_Data = tuple[Interactions, Interactions, Accuracy]


def _data(size: _Size, latest: bool, seed: int, n_threads: int) -> _Data:
    """Return one split of one data set, and popularity's figures on it."""
    key = Key.from_seed(seed)
    train, test = generated_split(*size, key, MAX_TESTED, latest=latest, n_threads=n_threads)
    return train, test, accuracy(Popularity().fit(train), train, test, key, n_threads)


def _run(
    name: str,
    epsilons: list[float],
    size: _Size,
    latest: bool,
    draw: Callable[[_Size, bool], _Data],
    seed: int,
    n_threads: int,
) -> list[dict[str, Any]]:
    """Fit and evaluate one model at every epsilon on one data set and one split."""
    key = Key.from_seed(seed)
    n_users, n_items, length = size
    train, test, popular = draw(size, latest)
    cells = []
    for epsilon in epsilons:
        model = _model(name, epsilon, n_items).fit(train, key=key, n_threads=n_threads)
        figures = accuracy(model, train, test, key, n_threads)
        cells.append(
            {
                "model": name, "n_users": n_users, "n_items": n_items, "row_length": length, "latest": latest,
                "epsilon": epsilon, "signal": model.signal_, "is_personal": model.is_personal_,
                "popularity": popular.hit_ratio, "hit_ratio": figures.hit_ratio,
                "popularity_all": popular.hit_ratio_all, "hit_ratio_all": figures.hit_ratio_all,
                "popularity_ndcg_all": popular.ndcg_all, "ndcg_all": figures.ndcg_all, "n_tested": test.n_interactions,
            }
        )  # fmt: skip
    return cells


refuse_old_names(__name__, GainMap="studies.report.Report", MapCell="studies.report.Record")
