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
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.movielens import release_year
from fastfedrec.studies.reproduce._trials import accuracy, generated_split, mean_and_deviation, track_progress
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
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, run_or_load
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.subspace.model import DPSubspace

__all__ = ["HitRatioCell", "HitRatioTable", "movielens_table", "subspace_table"]

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


@dataclass(frozen=True)
class HitRatioCell:
    """One model at one epsilon on one kind of data.

    Parameters
    ----------
    model : str
        Name of the model.
    data : str
        Description of users, items and rows.
    protocol : str
        Name of the function that makes train and tested users from the original ones.
    epsilon : float or None
        Epsilon of the whole run, for all data of one user against none; None without a guarantee.
    replaced : float or None
        Epsilon of the same run for replacing one user.
    signal : float or None
        Public signal of the model.
    is_personal : tuple of bool
        Whether the model is personalised, for each seed.
    popularity, hit_ratios : tuple of float
        HR@10 among 99 unseen items, of exact popularity and of the model, for each seed.
    popularity_all, hit_ratios_all, ndcgs_all : tuple of float
        HR@10 of both and nDCG@10 of the model among all unseen items.
    """

    model: str
    data: str
    protocol: str
    epsilon: float | None
    replaced: float | None
    signal: float | None
    is_personal: tuple[bool, ...]
    popularity: tuple[float, ...]
    hit_ratios: tuple[float, ...]
    popularity_all: tuple[float, ...]
    hit_ratios_all: tuple[float, ...]
    ndcgs_all: tuple[float, ...]

    @property
    def choice(self) -> str:
        """Choice of the model over the seeds: "personal", "popularity", or the numbers of both."""
        n_personal, n_seeds = sum(self.is_personal), len(self.is_personal)
        return {n_seeds: "personal", 0: "popularity"}.get(n_personal, f"personal in {n_personal} of {n_seeds}")

    @property
    def gain(self) -> float:
        """Mean difference of HR@10 among 99 items between the model and exact popularity."""
        return statistics.fmean(self.hit_ratios) - statistics.fmean(self.popularity)


@dataclass(frozen=True)
class HitRatioTable(SideBySide):
    """A table with a row for each cell.

    Parameters
    ----------
    source, settings : object
        Parameters of `SideBySide`.
    name : {"sizes", "movielens"}
        Name of the table.
    cells : tuple of HitRatioCell
        Cells in the order of the table.
    """

    name: str
    cells: tuple[HitRatioCell, ...]

    @property
    def title(self) -> str:
        """Title of the table."""
        return {SIZES: "DPSubspace: many items", MOVIELENS: "DPGram: MovieLens 1M's 1,000 most rated items"}[self.name]

    @property
    def legend(self) -> str:
        """Meaning of the columns."""
        ranking = "leave one out, ranked among 99 items that the user does not have"
        text = (
            f"HR@10, {ranking}; the mean over seeds, and the standard deviation if there are several.  epsilon: of the "
            "whole run, for all data of one user against none, the user still counted (zero_out), the number of users "
            "public, at delta 1e-6; in brackets the same run's for replacing one user.  signal: n_users mu over the "
            "number of items, of DPGram over its root.  all: the same among all unseen items.  choice: whether the "
            "model released personal lists or popularity."
        )
        if self.name == SIZES:
            return text
        return text + (
            "  People are the original users.  held out, then resampled: an item of each of the people is held out, "
            "and then users are drawn, each with 70% of a person's remaining row, so that no train row has the test "
            "item of the same person.  resampled, then held out: an item of each drawn user is held out, which "
            "further draws of the same person may have.  half of the people: the same, with half of the people.  "
            "disjoint people: train users are drawn from half of the people, and tested users from the other half.  "
            "the people themselves: no resampling."
        )

    def verdict(self) -> str:
        """Count the rows above exact popularity, by the model's choice.

        Returns
        -------
        str
            One sentence for each choice that occurs.
        """
        private = [cell for cell in self.cells if cell.epsilon is not None]
        lines = []
        # A cell counts as personal if at least one of its seeds is.
        for name, is_personal in (("Personal", True), ("Popularity", False)):
            if gains := [cell.gain for cell in private if any(cell.is_personal) is is_personal]:
                n_above = sum(gain > 0 for gain in gains)
                lines.append(
                    f"{name}: above exact popularity in {n_above} of {len(gains)} rows, {min(gains):+.3f} at least."
                )
        return "\n".join(lines)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        header = ["model", "data", "protocol", "epsilon", "signal", "choice", "popularity", "HR@10"]
        header += ["popularity, all", "HR@10, all", "nDCG@10, all", "seeds"]
        return header, [
            [
                cell.model, cell.data, cell.protocol,
                "none" if cell.epsilon is None else f"{cell.epsilon:g} ({cell.replaced:.2f})",
                "" if cell.signal is None else f"{cell.signal:.3g}",
                cell.choice if cell.epsilon is not None else "",
                mean_and_deviation(cell.popularity, deviation=""), mean_and_deviation(cell.hit_ratios),
                mean_and_deviation(cell.popularity_all, deviation=""), mean_and_deviation(cell.hit_ratios_all),
                mean_and_deviation(cell.ndcgs_all), str(len(cell.hit_ratios)),
            ]
            for cell in self.cells
        ]  # fmt: skip

    def brief(self) -> str:
        """Return the table of means with a column for each epsilon, as on the system's page.

        Returns
        -------
        str
            Markdown table of HR@10 among 99 items, and in brackets among all unseen items.  A star marks cells with
            popularity chosen under at least one seed.  A model without a guarantee has the last column, in the row of
            the first model on the same data.
        """
        labels = {SIZES: ["data", "signal"], MOVIELENS: ["protocol", "model"]}[self.name]
        # Epsilons in ascending order with the cost of replacing a user; None, without privacy, is last.
        bounds = {cell.epsilon: cell.replaced for cell in sorted(self.cells, key=lambda cell: cell.epsilon or math.inf)}
        rows: dict[tuple[str, ...], dict[float | None, str]] = {}
        for cell in self.cells:
            # A model without a guarantee is shown in the row of the first model of its protocol.
            reference_cell = cell if cell.epsilon else next(c for c in self.cells if c.protocol == cell.protocol)
            label_values = {label: getattr(reference_cell, label) for label in labels}
            start = [f"{value:.3g}" if label == "signal" else value for label, value in label_values.items()]
            row = rows.setdefault((*start, _both(cell.popularity, cell.popularity_all)), {})
            star = "" if cell.epsilon is None or all(cell.is_personal) else " *"
            row[cell.epsilon] = _both(cell.hit_ratios, cell.hit_ratios_all) + star
        names = ["no privacy" if e is None else f"{e:g} ({r:.2f})" for e, r in bounds.items()]
        header = [*labels, "popularity", *names]
        cells = [[*start, *(row.get(epsilon, "") for epsilon in bounds)] for start, row in rows.items()]
        lines = ["| " + " | ".join(row) + " |" for row in (header, *cells)]
        return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])

    def _draw(self, figure: Any) -> None:
        figure.set_size_inches(9, 1 + 0.35 * len(self.cells))
        panel = figure.subplots()
        cells = self.cells[::-1]
        names = [f"{cell.model}, {cell.data}, {cell.protocol}, {cell.epsilon or 'no privacy'}" for cell in cells]
        panel.barh(names, [statistics.fmean(cell.hit_ratios) for cell in cells], label="the model")
        panel.plot([statistics.fmean(cell.popularity) for cell in cells], names, "k|", label="popularity")
        panel.set(xlabel="HR@10", title=self.title)
        panel.tick_params(axis="y", labelsize="x-small")
        panel.legend(fontsize="small")


def subspace_table(*, n_seeds: int = 3, **options: Any) -> HitRatioTable:
    """Measure DPSubspace over numbers of items and users, at epsilon 1.

    Parameters
    ----------
    n_seeds : int
        Number of seeds; they are 0 to n_seeds - 1.
    **options : object
        Options of `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: two small sizes.

    Returns
    -------
    HitRatioTable
        Table of generated data.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    cases = []
    for n_users, n_items in QUICK_SIZES if how.quick else N_USERS_AND_ITEMS:
        data = functools.partial(_generated, n_users, n_items, how.n_threads)
        models = [("DPSubspace", DPSubspace(1.0, n_users=n_users))]
        label = f"{n_items:,} items x {n_users:,} users, rows of {ROW_LENGTH:g}"
        cases.append(_Case(label, _PROTOCOL, data, models))
    source = "GENERATED DATA (generate_implicit, movielens-1m preset), not MovieLens"
    return _table(source, SIZES, cases, {}, n_seeds, how)


def movielens_table(data: Interactions, *, n_seeds: int = 3, **options: Any) -> HitRatioTable:
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
    HitRatioTable
        Table of the given data.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    people = users_of_the_thousand(data)
    item_features, cases = _genres_and_years(people), []
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
        cases.append(_Case(label, protocol, functools.partial(_drawn, draw, people, n_users), models))
    source = f"The data given: {people.n_users:,} users x {people.n_items:,} items, {people.n_interactions:,} ratings"
    return _table(source, MOVIELENS, cases, {"data": checksum([data])}, n_seeds, how)


@dataclass(frozen=True)
class _Case:
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
    source: str, name: str, cases: Sequence[_Case], data_settings: dict[str, Any], n_seeds: int, how: RunOptions
) -> HitRatioTable:
    settings = data_settings | {"version": __version__, "quick": how.quick}
    # A part is one case with one seed, and it has its own file.
    parts = list(itertools.product(range(len(cases)), range(n_seeds)))
    runs: list[list[list[dict[str, Any]]]] = [[] for _ in cases]
    for case_index, seed in track_progress(parts, how, name, "part"):
        case = cases[case_index]
        models = [repr(model) for _, model in case.models]
        part_settings = settings | {"data": case.data, "protocol": case.protocol, "models": models, "seed": seed}
        run = functools.partial(case.run, seed, how.n_threads)
        runs[case_index].append(run_or_load(how.folder, f"{name}-{case_index}-seed-{seed}", part_settings, run))
    cells = [cell for case, case_runs in zip(cases, runs, strict=True) for cell in _cells(case, case_runs)]
    described = {f"{case.data}; {case.protocol}": [repr(model) for _, model in case.models] for case in cases}
    return HitRatioTable(source, settings | {"seeds": n_seeds, "models": described}, name, tuple(cells))


def _cells(case: _Case, runs: list[list[dict[str, Any]]]) -> Iterator[HitRatioCell]:
    """Join the runs of all seeds into one cell for each model."""
    for (label, model), *rows in zip(case.models, *runs, strict=True):
        # The default argument binds the rows of this model, not those of the last one.
        def collect(role: str, figure: str, rows: list[dict[str, Any]] = rows) -> tuple[float, ...]:
            return tuple(row[role][figure] for row in rows)

        yield HitRatioCell(
            label, case.data, case.protocol, getattr(model, "epsilon", None), rows[0].get("replaced"),
            rows[0].get("signal"), tuple(row["is_personal"] for row in rows), collect("popularity", "hit_ratio"),
            collect("model", "hit_ratio"), collect("popularity", "hit_ratio_all"), collect("model", "hit_ratio_all"),
            collect("model", "ndcg_all"),
        )  # fmt: skip


def _both(sampled: Sequence[float], unseen: Sequence[float]) -> str:
    """Return the means of a hit ratio among 99 items and, in brackets, among all unseen items."""
    return f"{statistics.fmean(sampled):.3f} ({statistics.fmean(unseen):.3f})"


def _generated(n_users: int, n_items: int, n_threads: int, key: Key) -> TestedUsers:
    train, test = generated_split(n_users, n_items, ROW_LENGTH, key, MAX_TESTED, n_threads=n_threads)
    return TestedUsers(train, train, test)


def _genres_and_years(people: Interactions) -> dict[str, Any] | None:
    """Return the public features of the items, or None if the data have none."""
    columns = people.item_features
    if not {"genres", "title"} <= columns.keys():
        return None
    return {"genres": columns["genres"], "year": [release_year(title) for title in columns["title"].tolist()]}


def _drawn(draw: Callable[..., TestedUsers], people: Interactions, n_users: int, key: Key) -> TestedUsers:
    return draw(people, n_users, key)
