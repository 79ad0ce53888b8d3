"""Hit ratios of DPSubspace on generated data of many items, and of DPGram on MovieLens 1M, compared with popularity.

Both systems are this package's own, and no paper has these tables (docs/explanation/systems/subspace/dp-subspace.md and
docs/explanation/systems/gram/dp-gram.md).  Each seed has its own data or users, split and noise.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastfedrec.core.check import check_integer
from fastfedrec.core.old_names import refuse_old_names
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.drawings import draw_bars
from fastfedrec.studies.files import Case, checksum, measure_cases
from fastfedrec.studies.report import Record, Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import (
    accuracy,
    brief_table,
    format_cost,
    generated_split,
    means,
    movie_features,
)
from fastfedrec.studies.reproduce.movielens_users import (
    HALF,
    HELD_OUT_FIRST,
    OTHER_PEOPLE,
    PROTOCOLS,
    RESAMPLED_FIRST,
    THEMSELVES,
    TestedUsers,
    users_of_the_thousand,
)
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.subspace.model import DPSubspace

__all__ = ["brief", "movielens_table", "subspace_table"]

SIZES, MOVIELENS = "sizes", "movielens"  # names of the tables
# Numbers of users and items of generated data.  With 20,000 and 10,000 users of 10,000 items DPSubspace releases
# popularity.
N_USERS_AND_ITEMS = (
    (100_000, 10_000), (50_000, 10_000), (100_000, 30_000), (20_000, 10_000), (10_000, 10_000), (10_000, 3_000),
)  # fmt: skip
ROW_LENGTH = 30.0
MAX_TESTED = 20_000  # maximum number of tested users
QUICK_SIZES = ((20_000, 2_000), (2_000, 2_000))
# Numbers of users that are drawn from the original ones.
DRAWN, QUICK_DRAWN = 50_000, 5_000
EPSILONS = {
    HELD_OUT_FIRST: (0.5, 1.0, 2.0), RESAMPLED_FIRST: (0.5, 1.0, 2.0), HALF: (1.0,), OTHER_PEOPLE: (1.0,),
    THEMSELVES: (0.5, 1.0, 2.0, 4.0),
}  # fmt: skip
_WITH_FEATURES = "DPGram, genres and years"
_PROTOCOL = "an item of each user held out"


def _choice(cell: Record) -> str:
    """Describe the choice of the model over the seeds: "personal", "popularity", or the numbers of both."""
    n_personal, n_seeds = sum(cell.is_personal), len(cell.is_personal)
    return {n_seeds: "personal", 0: "popularity"}.get(n_personal, f"personal in {n_personal} of {n_seeds}")


def _compare_popularity(table: Report) -> str:
    """Count the rows above exact popularity, by the model's choice."""
    private = [cell for cell in table.cells if cell.epsilon is not None]
    lines = []
    # A cell counts as personal if at least one of its seeds is.
    for name, is_personal in (("Personal", True), ("Popularity", False)):
        cells = [cell for cell in private if any(cell.is_personal) is is_personal]
        # Mean differences of HR@10 among 99 items between the model and exact popularity.
        if gains := [statistics.fmean(cell.hit_ratios) - statistics.fmean(cell.popularity) for cell in cells]:
            n_above = sum(gain > 0 for gain in gains)
            lines.append(
                f"{name}: above exact popularity in {n_above} of {len(gains)} rows, {min(gains):+.3f} at least."
            )
    return "\n".join(lines)


def _draw(table: Report, figure: Any) -> None:
    bars, popularity = {}, {}
    for cell in table.cells:
        name = f"{cell.model}, {cell.data}, {cell.protocol}, {cell.epsilon or 'no privacy'}"
        bars[name], popularity[name] = statistics.fmean(cell.hit_ratios), statistics.fmean(cell.popularity)
    size = 9, 1 + 0.35 * len(bars)
    panel = draw_bars(figure, bars, size, "HR@10", title=table.title, label="the model")
    panel.plot(list(popularity.values())[::-1], list(popularity)[::-1], "k|", label="popularity")
    panel.legend(fontsize="small")


_COLUMNS = [
    ("model", "{.model}"), ("data", "{.data}"), ("protocol", "{.protocol}"), ("epsilon", format_cost),
    ("signal", lambda cell: "" if cell.signal is None else f"{cell.signal:.3g}"),
    ("choice", lambda cell: "" if cell.epsilon is None else _choice(cell)),
    ("popularity", means("popularity", deviation="")), ("HR@10", means("hit_ratios")),
    ("popularity, all", means("popularity_all", deviation="")), ("HR@10, all", means("hit_ratios_all")),
    ("nDCG@10, all", means("ndcgs_all")), ("seeds", lambda cell: str(len(cell.hit_ratios))),
]  # fmt: skip
_LEGEND = (
    "HR@10, leave one out, ranked among 99 items that the user does not have; the mean over seeds, and the standard "
    "deviation if there are several.  epsilon: of the whole run, for all data of one user against none, the user still "
    "counted (zero_out), the number of users public, at delta 1e-6; in brackets the same run's for replacing one user."
    "  signal: n_users mu over the number of items, of DPGram over its root.  all: the same among all unseen items.  "
    "choice: whether the model released personal lists or popularity."
)
_PEOPLE = (
    "  People are the original users.  held out, then resampled: an item of each of the people is held out, and then "
    "users are drawn, each with 70% of a person's remaining row, so that no train row has the test item of the same "
    "person.  resampled, then held out: an item of each drawn user is held out, which further draws of the same person "
    "may have.  half of the people: the same, with half of the people.  disjoint people: train users are drawn from "
    "half of the people, and tested users from the other half.  the people themselves: no resampling."
)
STUDIES = {
    name: Study(title, legend, _COLUMNS, _compare_popularity, _draw, records="cells")
    for name, title, legend in (
        (SIZES, "DPSubspace: many items", _LEGEND),
        (MOVIELENS, "DPGram: MovieLens 1M's 1,000 most rated items", _LEGEND + _PEOPLE),
    )
}


def brief(table: Report) -> str:
    """Return the table of means with a column for each epsilon, as on the system's page.

    Parameters
    ----------
    table : Report
        Table of this module.

    Returns
    -------
    str
        Markdown table of HR@10 among 99 items, and in brackets among all unseen items.  A star marks cells with
        popularity chosen under at least one seed.  A model without a guarantee has the last column, in the row of the
        first model on the same data.
    """
    labels = {SIZES: ["data", "signal"], MOVIELENS: ["protocol", "model"]}[table.name]
    # Epsilons in ascending order with the cost of replacing a user; None, without privacy, is last.
    bounds = {cell.epsilon: cell.replaced for cell in sorted(table.cells, key=lambda cell: cell.epsilon or math.inf)}
    rows: dict[tuple[str, ...], dict[float | None, str]] = {}
    for cell in table.cells:
        # A model without a guarantee is shown in the row of the first model of its protocol.
        reference_cell = cell if cell.epsilon else next(c for c in table.cells if c.protocol == cell.protocol)
        label_values = {label: getattr(reference_cell, label) for label in labels}
        start = [f"{value:.3g}" if label == "signal" else value for label, value in label_values.items()]
        row = rows.setdefault((*start, _both(cell.popularity, cell.popularity_all)), {})
        star = "" if cell.epsilon is None or all(cell.is_personal) else " *"
        row[cell.epsilon] = _both(cell.hit_ratios, cell.hit_ratios_all) + star
    names = ["no privacy" if e is None else f"{e:g} ({r:.2f})" for e, r in bounds.items()]
    cells = ([*start, *(row.get(epsilon, "") for epsilon in bounds)] for start, row in rows.items())
    return brief_table([*labels, "popularity", *names], cells)


def subspace_table(*, n_seeds: int = 3, **options: Any) -> Report:
    """Measure DPSubspace over numbers of items and users, at epsilon 1.

    Parameters
    ----------
    n_seeds : int
        Number of seeds; they are 0 to n_seeds - 1.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: two small sizes.

    Returns
    -------
    Report
        Table of generated data.  A cell has `model`, `data`, `protocol`, `epsilon`, `replaced` (epsilon for replacing
        one user), `signal`, and of each seed `is_personal` and the hit ratios.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    cases = []
    for n_users, n_items in QUICK_SIZES if how.quick else N_USERS_AND_ITEMS:
        data = functools.partial(_generated, n_users, n_items, how.n_threads)
        models = [("DPSubspace", DPSubspace(1.0, n_users=n_users))]
        label = f"{n_items:,} items x {n_users:,} users, rows of {ROW_LENGTH:g}"
        cases.append(_Population(label, _PROTOCOL, data, models))
    source = "GENERATED DATA (generate_implicit, movielens-1m preset), not MovieLens"
    return _table(source, SIZES, cases, {}, n_seeds, how)


def movielens_table(data: Interactions, *, n_seeds: int = 3, **options: Any) -> Report:
    """Measure DPGram on the original users of MovieLens 1M, and on users resampled from them.

    Parameters
    ----------
    data : Interactions
        MovieLens 1M.
    n_seeds : int
        Number of seeds; they are 0 to n_seeds - 1.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: 5,000 drawn users and epsilon 1.

    Returns
    -------
    Report
        Table of the given data, with the cells of `subspace_table`.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    people = users_of_the_thousand(data)
    item_features, cases = movie_features(people), []
    for protocol, draw in PROTOCOLS.items():
        n_users = people.n_users if protocol == THEMSELVES else QUICK_DRAWN if how.quick else DRAWN
        epsilons = (1.0,) if how.quick else EPSILONS[protocol]
        models: list[tuple[str, Any]] = [("DPGram", DPGram(epsilon, n_users=n_users)) for epsilon in epsilons]
        if protocol == HELD_OUT_FIRST and not how.quick:
            models += [(f"DPGram, {score}", DPGram(1.0, score=score, n_users=n_users)) for score in ("ridge", "knn")]
        if protocol != THEMSELVES:
            models.append(("EASE", EASE()))
        if protocol == THEMSELVES and item_features is not None:
            models += [
                (_WITH_FEATURES, DPGram(epsilon, n_users=n_users, item_features=item_features)) for epsilon in epsilons
            ]
        label = f"{people.n_users:,} people" + ("" if protocol == THEMSELVES else f", {n_users:,} users drawn")
        cases.append(_Population(label, protocol, functools.partial(_drawn, draw, people, n_users), models))
    source = f"The data given: {people.n_users:,} users x {people.n_items:,} items, {people.n_interactions:,} ratings"
    return _table(source, MOVIELENS, cases, {"data": checksum([data])}, n_seeds, how)


@dataclass(frozen=True)
class _Population:
    """One kind of data with the models that are fitted to it."""

    data: str
    protocol: str
    draw: Callable[[Key], TestedUsers]
    models: list[tuple[str, Any]]

    def run(self, seed: int, n_threads: int) -> list[dict[str, Any]]:
        """Fit and evaluate every model on one draw, and return the figures of their cells."""
        key = Key.from_seed(seed)
        train, served, test = self.draw(key)

        def evaluate_model(model: Any) -> dict[str, float]:
            fitted = model.fit(train, key=key, n_threads=n_threads)
            # A model fitted on different users answers for the tested ones by their rows.
            fitted = fitted if served is train else fitted.with_users(served)
            return accuracy(fitted, served, test, key, n_threads)._asdict()

        popularity, rows = evaluate_model(Popularity()), []
        for _, model in self.models:
            row: dict[str, Any] = {"popularity": popularity, "model": evaluate_model(model), "is_personal": True}
            if isinstance(model, DPGram | DPSubspace):
                row |= {"replaced": model.ledger_.epsilon("public"), "signal": model.signal_}
                row["is_personal"] = model.is_personal_
            rows.append(row)
        return rows


def _table(
    source: str, name: str, cases: Sequence[_Population], data_settings: dict[str, Any], n_seeds: int, how: RunOptions
) -> Report:
    settings = data_settings | {"version": __version__, "quick": how.quick}
    # A part is one kind of data with one seed, and it has its own file.
    parts = {}
    for (number, case), seed in itertools.product(enumerate(cases), range(n_seeds)):
        models = [repr(model) for _, model in case.models]
        part_settings = settings | {"data": case.data, "protocol": case.protocol, "models": models, "seed": seed}
        parts[number, seed] = Case(
            f"{name}-{number}-seed-{seed}", part_settings, functools.partial(case.run, seed, how.n_threads)
        )
    runs = measure_cases(parts, how, name, "part")
    cells = tuple(
        cell
        for number, case in enumerate(cases)
        for cell in _cells(case, [runs[number, seed] for seed in range(n_seeds)])
    )
    described = {f"{case.data}; {case.protocol}": [repr(model) for _, model in case.models] for case in cases}
    return Report(STUDIES[name], source, settings | {"seeds": n_seeds, "models": described}, name=name, cells=cells)


def _cells(case: _Population, runs: list[list[dict[str, Any]]]) -> Iterator[Record]:
    """Join the runs of all seeds into one cell for each model."""
    for (label, model), *rows in zip(case.models, *runs, strict=True):
        # HR@10 among 99 unseen items, and HR@10 and nDCG@10 among all unseen items, of each seed.
        figures = {
            (role, figure): tuple(row[role][figure] for row in rows)
            for role in ("popularity", "model")
            for figure in ("hit_ratio", "hit_ratio_all", "ndcg_all")
        }
        yield Record(
            model=label, data=case.data, protocol=case.protocol, epsilon=getattr(model, "epsilon", None),
            replaced=rows[0].get("replaced"), signal=rows[0].get("signal"),
            is_personal=tuple(row["is_personal"] for row in rows), popularity=figures["popularity", "hit_ratio"],
            hit_ratios=figures["model", "hit_ratio"], popularity_all=figures["popularity", "hit_ratio_all"],
            hit_ratios_all=figures["model", "hit_ratio_all"], ndcgs_all=figures["model", "ndcg_all"],
        )  # fmt: skip


def _both(sampled: Sequence[float], unseen: Sequence[float]) -> str:
    """Return the means of a hit ratio among 99 items and, in brackets, among all unseen items."""
    return f"{statistics.fmean(sampled):.3f} ({statistics.fmean(unseen):.3f})"


def _generated(n_users: int, n_items: int, n_threads: int, key: Key) -> TestedUsers:
    train, test = generated_split(n_users, n_items, ROW_LENGTH, key, MAX_TESTED, n_threads=n_threads)
    return TestedUsers(train, train, test)


def _drawn(draw: Callable[..., TestedUsers], people: Interactions, n_users: int, key: Key) -> TestedUsers:
    return draw(people, n_users, key)


refuse_old_names(__name__, HitRatioTable="studies.report.Report", HitRatioCell="studies.report.Record")
