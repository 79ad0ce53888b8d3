"""DPSubspace on generated data of many items, and DPGram on MovieLens 1M's people: hit ratios beside popularity.

Nothing of these tables is in a paper; both systems are our own (docs/explanation/systems/subspace/dp-subspace.md and
docs/explanation/systems/gram/dp-gram.md).  Each seed draws data or users, split and noise anew.
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
from fastfedrec.studies.reproduce._trials import accuracy, each, generated_split, mean_and_deviation
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
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, kept
from fastfedrec.systems.baselines.item_models import EASE
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.gram.dp_gram import DPGram
from fastfedrec.systems.subspace.model import DPSubspace

__all__ = ["HitRatioCell", "HitRatioTable", "movielens_table", "subspace_table"]

SIZES, MOVIELENS = "sizes", "movielens"  # names of the tables
# Users and items of generated data; with 20,000 and 10,000 users of 10,000 items DPSubspace releases popularity.
N_USERS_AND_ITEMS = (
    (100_000, 10_000), (50_000, 10_000), (100_000, 30_000), (20_000, 10_000), (10_000, 10_000), (10_000, 3_000),
)  # fmt: skip
ROW_LENGTH = 30.0
MOST_TESTED = 20_000
QUICK_SIZES = ((20_000, 2_000), (2_000, 2_000))
DRAWN, QUICK_DRAWN = 50_000, 5_000
EPSILONS = {
    HELD_OUT_FIRST: (0.5, 1.0, 2.0), RESAMPLED_FIRST: (0.5, 1.0, 2.0), HALF: (1.0,), OTHER_PEOPLE: (1.0,),
    THEMSELVES: (0.5, 1.0, 2.0, 4.0),
}  # fmt: skip
_KNOWN = "DPGram, genres and years"
_PROTOCOL = "an item of each user held out"


@dataclass(frozen=True)
class HitRatioCell:
    """One model at one epsilon on one kind of data.

    Parameters
    ----------
    model : str
        Which.
    data : str
        Users, items and rows.
    protocol : str
        How people become those who are trained on and tested.
    epsilon : float or None
        Of the whole run, for all data of one user against none; None where there is no guarantee.
    replaced : float or None
        Of the same run, for replacing one user.
    signal : float or None
        The model's public number.
    is_personal : tuple of bool
        Whether users received lists of their own, for each seed.
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
        """How many seeds had lists for each user: "personal", "popularity", or both numbers."""
        n_personal, n_seeds = sum(self.is_personal), len(self.is_personal)
        return {n_seeds: "personal", 0: "popularity"}.get(n_personal, f"personal in {n_personal} of {n_seeds}")

    @property
    def gain(self) -> float:
        """HR@10 among 99 items less that of exact popularity, on average."""
        return statistics.fmean(self.hit_ratios) - statistics.fmean(self.popularity)


@dataclass(frozen=True)
class HitRatioTable(SideBySide):
    """A row for each cell.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    name : {"sizes", "movielens"}
        Which table it is.
    cells : tuple of HitRatioCell
        In the order of the table.
    """

    name: str
    cells: tuple[HitRatioCell, ...]

    @property
    def title(self) -> str:
        """Which table it is."""
        return {SIZES: "DPSubspace: many items", MOVIELENS: "DPGram: MovieLens 1M's 1,000 most rated items"}[self.name]

    @property
    def legend(self) -> str:
        """What the columns mean."""
        how = "leave one out, ranked among 99 items that the user does not have"
        said = (
            f"HR@10, {how}; the mean over seeds, and the standard deviation where there are several.  epsilon: of the "
            "whole run, for all data of one user against none, the user still counted (zero_out), the number of users "
            "public, at delta 1e-6; in brackets the same run's for replacing one user.  signal: n_users mu over the "
            "number of items, of DPGram over its root.  all: the same among all unseen items.  choice: whether the "
            "model gave users lists of their own, or popularity."
        )
        if self.name == SIZES:
            return said
        return said + (
            "  held out, then resampled: an item of each of the people is held out, and then users are drawn, each "
            "with 70% of what is left of a person's row, so nobody who is trained on has the item that the same "
            "person is tested on.  resampled, then held out: an item of each drawn user, which others drawn of the "
            "same person may have.  half of the people: the same, of half as many.  disjoint people: half of the "
            "people are drawn from and trained on, and users drawn of the others tested.  the people themselves: no "
            "resampling."
        )

    def verdict(self) -> str:
        """Count where popularity is beaten, by the model's choice.

        Returns
        -------
        str
            A sentence or two.
        """
        private = [cell for cell in self.cells if cell.epsilon is not None]
        lines = []
        for name, of in (("Personal", True), ("Popularity", False)):
            if gains := [cell.gain for cell in private if any(cell.is_personal) is of]:
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
        """The means alone, and a column for each epsilon: what the system's page shows.

        Returns
        -------
        str
            A table in Markdown of HR@10 among 99 items, in brackets among all unseen items; a star where popularity was
            chosen with some seed.  A model without a guarantee has the last column, in the row of the first model on
            the same data.
        """
        labels = {SIZES: ["data", "signal"], MOVIELENS: ["protocol", "model"]}[self.name]
        bounds = {cell.epsilon: cell.replaced for cell in sorted(self.cells, key=lambda cell: cell.epsilon or math.inf)}
        rows: dict[tuple[str, ...], dict[float | None, str]] = {}
        for cell in self.cells:
            beside = cell if cell.epsilon else next(c for c in self.cells if c.protocol == cell.protocol)
            said = {label: getattr(beside, label) for label in labels}
            start = [f"{value:.3g}" if label == "signal" else value for label, value in said.items()]
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
    """DPSubspace over numbers of items and users, at epsilon 1.

    Parameters
    ----------
    n_seeds : int
        Seeds 0 to n_seeds - 1.
    **options : object
        As for `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: two small sizes.

    Returns
    -------
    HitRatioTable
        Of generated data.
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
    """DPGram on MovieLens 1M's people, resampled and as they are.

    Parameters
    ----------
    data : Interactions
        MovieLens 1M.
    n_seeds : int
        Seeds 0 to n_seeds - 1.
    **options : object
        As for `RunOptions`; no hit ratio depends on `n_threads`.  `quick`: 5,000 users are drawn, and epsilon is 1.

    Returns
    -------
    HitRatioTable
        Of the data given.
    """
    how = RunOptions(**options)
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    people = users_of_the_thousand(data)
    known, cases = _genres_and_years(people), []
    for protocol, draw in PROTOCOLS.items():
        n_users = people.n_users if protocol == THEMSELVES else QUICK_DRAWN if how.quick else DRAWN
        epsilons = (1.0,) if how.quick else EPSILONS[protocol]
        models: list[tuple[str, Any]] = [("DPGram", DPGram(epsilon, n_users=n_users)) for epsilon in epsilons]
        if protocol == HELD_OUT_FIRST and not how.quick:
            models += [(f"DPGram, {score}", DPGram(1.0, score=score, n_users=n_users)) for score in ("ridge", "knn")]
        if protocol != THEMSELVES:
            models.append(("EASE", EASE()))
        if protocol == THEMSELVES and known is not None:
            models += [(_KNOWN, DPGram(epsilon, n_users=n_users, item_features=known)) for epsilon in epsilons]
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
        """Every model on one draw: fields of its cell."""
        key = Key.from_seed(seed)
        train, served, test = self.draw(key)

        def tested(model: Any) -> dict[str, float]:
            fitted = model.fit(train, key=key, n_threads=n_threads)
            fitted = fitted if served is train else fitted.with_users(served)
            return accuracy(fitted, served, test, key, n_threads)._asdict()

        popularity, found = tested(Popularity()), []
        for _, model in self.models:
            row: dict[str, Any] = {"popularity": popularity, "model": tested(model), "is_personal": True}
            if isinstance(model, DPGram | DPSubspace):
                row |= {"replaced": model.ledger_.epsilon("public"), "signal": model.signal_}
                row["is_personal"] = model.is_personal_
            found.append(row)
        return found


def _table(
    source: str, name: str, cases: Sequence[_Case], given: dict[str, Any], n_seeds: int, how: RunOptions
) -> HitRatioTable:
    settings = given | {"version": __version__, "quick": how.quick}
    parts = list(itertools.product(range(len(cases)), range(n_seeds)))
    runs: list[list[list[dict[str, Any]]]] = [[] for _ in cases]
    for place, seed in each(parts, how, name, "part"):
        case = cases[place]
        models = [repr(model) for _, model in case.models]
        of_part = settings | {"data": case.data, "protocol": case.protocol, "models": models, "seed": seed}
        run = functools.partial(case.run, seed, how.n_threads)
        runs[place].append(kept(how.folder, f"{name}-{place}-seed-{seed}", of_part, run))
    cells = [cell for case, of_case in zip(cases, runs, strict=True) for cell in _cells(case, of_case)]
    described = {f"{case.data}; {case.protocol}": [repr(model) for _, model in case.models] for case in cases}
    return HitRatioTable(source, settings | {"seeds": n_seeds, "models": described}, name, tuple(cells))


def _cells(case: _Case, runs: list[list[dict[str, Any]]]) -> Iterator[HitRatioCell]:
    """Of the runs with each seed."""
    for (label, model), *rows in zip(case.models, *runs, strict=True):

        def of(who: str, figure: str, rows: list[dict[str, Any]] = rows) -> tuple[float, ...]:
            return tuple(row[who][figure] for row in rows)

        yield HitRatioCell(
            label, case.data, case.protocol, getattr(model, "epsilon", None), rows[0].get("replaced"),
            rows[0].get("signal"), tuple(row["is_personal"] for row in rows), of("popularity", "hit_ratio"),
            of("model", "hit_ratio"), of("popularity", "hit_ratio_all"), of("model", "hit_ratio_all"),
            of("model", "ndcg_all"),
        )  # fmt: skip


def _both(sampled: Sequence[float], unseen: Sequence[float]) -> str:
    """Return the means of a hit ratio among 99 items and, in brackets, among all unseen items."""
    return f"{statistics.fmean(sampled):.3f} ({statistics.fmean(unseen):.3f})"


def _generated(n_users: int, n_items: int, n_threads: int, key: Key) -> TestedUsers:
    train, test = generated_split(n_users, n_items, ROW_LENGTH, key, MOST_TESTED, n_threads=n_threads)
    return TestedUsers(train, train, test)


def _genres_and_years(people: Interactions) -> dict[str, Any] | None:
    """What is publicly known of the items, where the data have it."""
    columns = people.item_features
    if not {"genres", "title"} <= columns.keys():
        return None
    return {"genres": columns["genres"], "year": [release_year(title) for title in columns["title"].tolist()]}


def _drawn(draw: Callable[..., TestedUsers], people: Interactions, n_users: int, key: Key) -> TestedUsers:
    return draw(people, n_users, key)
