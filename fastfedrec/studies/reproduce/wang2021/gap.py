"""Wang et al. 2021 (PrivRec): why are its Tables 2 and 3 not reached?  Features, evaluation and optimiser, one by one.

What is tried is judged on train users alone: some of them play the test users.  Only what was chosen so, and what it
replaces, is run on the test users.
"""

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.compute.ranking import sample_unseen
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.data.times import MISSING_TIMESTAMP
from fastfedrec.evaluation.new_users import (
    METRICS,
    PersonalizationSplit,
    evaluate_personalized,
    personalization_split,
    score_rows,
)
from fastfedrec.studies.reproduce._trials import each, mean_and_deviation, selected
from fastfedrec.studies.reproduce.side_by_side import RunOptions, SideBySide, checksum, kept
from fastfedrec.studies.reproduce.wang2021._runs import CUTOFFS, first_test_users, fit_devices
from fastfedrec.studies.reproduce.wang2021.accuracy import PUBLISHED
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["GapTable", "gap_table", "largest_ndcg"]

TABLE = "gap"
TEXT = "unvisited items (the text)"
ALL_HELD_OUT = "and other held-out items"
BEFORE, ADAM = "Reptile, server by SGD", "Reptile, server by Adam"
CHOSEN = "first-order MAML, server by Adam"
_FINALISTS = (ADAM, CHOSEN)  # so near each other that one seed does not choose
TRIED, JUDGED = "train users", "test users"
_INNER = 1000  # added to a seed: which train users play the test users
_SAMPLED = 99
_QUICK_ROUNDS, _QUICK_TEST_USERS = 2, 30


@dataclass(frozen=True)
class GapTable(SideBySide):
    """Hits of every trial, and of one model by every reading of the evaluation.

    Parameters
    ----------
    source, settings : object
        As for `SideBySide`.
    table : {"2", "3"}
        Of the paper, whose PrivRec or NCF stands beside.
    rows : tuple of dict
        "what", "on", "ranked", and by cutoff Hits@k, one a seed.
    """

    table: str
    rows: tuple[dict[str, Any], ...]

    title = "PrivRec: trials to reach the published accuracy"
    legend = (
        "Hits@k; means over seeds, with the standard deviation where there are several.  train users: some of them\n"
        "play the test users, and nothing is known of the real ones.  ranked: what the held-out positive stands among."
    )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What no evaluation by the paper's equations can give."""
        rows = {(table, name): largest_ndcg(row) for table in PUBLISHED for name, row in PUBLISHED[table].items()}
        above = sum(most < PUBLISHED[table][name][-1] for (table, name), most in rows.items())
        return (
            f"Of the {len(rows)} printed rows of Tables 2 and 3, {above} have an nDCG@30 above the most that equations "
            "12 and 13 allow with the Hits printed beside it: no model and no split give them.",
        )

    def verdict(self) -> str:
        """Say how far the published figure is.

        Returns
        -------
        str
            A sentence for each row on the test users.
        """
        lines = []
        for row in self.rows:
            if row["on"] == JUDGED:
                name = "NCF" if row["what"].startswith("NCF") else "PrivRec"
                gap = statistics.fmean(row["hits"]["10"]) - PUBLISHED[self.table][name][1]
                lines.append(f"{row['what']}, {row['ranked']}: Hits@10 {gap:+.3f} beside {name} as published.")
        return "\n".join(lines)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        body = [
            [
                row["what"],
                row["on"],
                str(len(row["hits"]["10"])),
                row["ranked"],
                *(mean_and_deviation(row["hits"][str(k)]) for k in CUTOFFS),
            ]
            for row in self.rows
        ]
        return ["what", "judged on", "seeds", "ranked", *(f"Hits@{k}" for k in CUTOFFS)], body

    def _draw(self, figure: Any) -> None:
        figure.set_size_inches(8, 1 + 0.25 * len(self.rows))
        panel = figure.subplots()
        rows = self.rows[::-1]
        names = [f"{row['what']}, {row['on']}, {row['ranked']}" for row in rows]
        panel.barh(names, [statistics.fmean(row["hits"]["10"]) for row in rows])
        panel.axvline(PUBLISHED[self.table]["PrivRec"][1], linestyle="--", color="black")
        figure.suptitle(self.title)  # of the panel, it would be cut: names of rows are long
        panel.set(xlabel="Hits@10 (dashed: PrivRec as published)")
        panel.tick_params(axis="y", labelsize="x-small")


def largest_ndcg(row: tuple[float, ...]) -> float:
    """The most that nDCG@30 can be by equations 12 and 13, beside these Hits.

    A hit at rank i adds 1 to Hits and 1 / log2(i + 1) to nDCG.  So Hits@5 can add no more than itself, and what Hits
    gain from one cutoff to the next, no more than all at the first rank beyond the former.

    Parameters
    ----------
    row : tuple of float
        Hits@5, 10, 20 and 30 first.

    Returns
    -------
    float
        An upper bound, whatever the model, the split and the candidates.
    """
    total = row[0]
    for number, cutoff in enumerate(CUTOFFS[:-1]):
        total += max(row[number + 1] - row[number], 0.0) / math.log2(cutoff + 2)
    return total


def gap_table(
    data: Interactions | InteractionLog, *, n_seeds: int = 3, only: Sequence[str] | None = None, **options: Any
) -> GapTable:
    """Try what may explain the published accuracy of PrivRec (of NCF on Frappe), and run what was chosen.

    Parameters
    ----------
    data : Interactions or InteractionLog
        MovieLens 100K: all trials, the first stage included, which needs every timestamp.  MovieLens 1M: what was
        chosen there, by every reading of the evaluation.  Frappe: NCF.
    n_seeds : int
        Seeds 0 to n_seeds - 1, on the test users, and for the two best on train users; other trials take seed 0.
    only : sequence of str or None
        Run these models alone; None for all.
    **options : object
        As for `RunOptions`; no figure depends on `n_threads`.  `quick`: few rounds and users: to see that it runs.

    Returns
    -------
    GapTable
        A row a trial.

    References
    ----------
    .. [1] Wang, Yin, Chen, et al., "Fast-adapting and privacy-preserving federated recommender system", The VLDB
       Journal, 2021, section 3.3, Tables 2 and 3.
    """
    n_seeds = check_integer("n_seeds", n_seeds, low=1)
    how = RunOptions(**options)
    is_log = isinstance(data, InteractionLog)
    if not is_log:
        check_instance("data", data, Interactions, "use a reader of fastfedrec.datasets")
    trials, judged = models_of(data, quick=how.quick)
    if only is not None:
        chosen = selected(trials | judged, only)
        trials, judged = ({name: model for name, model in part.items() if name in chosen} for part in (trials, judged))
    visited = data.interactions if isinstance(data, InteractionLog) else data
    settings = {"version": __version__, "data": checksum([visited]), "quick": how.quick}
    tasks = [
        (TRIED, seed, *trial) for trial in trials.items() for seed in range(n_seeds if trial[0] in _FINALISTS else 1)
    ]
    tasks += [(JUDGED, seed, *model) for model in judged.items() for seed in range(n_seeds)]
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for on, seed, name, model in each(tasks, how, "gap", "model"):
        key = Key.from_seed(seed)
        split = personalization_split(data, threshold=0.0 if is_log else 3.0, key=key)
        if on == TRIED:
            split = personalization_split(split.train, threshold=split.threshold, key=Key.from_seed(_INNER + seed))
        if how.quick:
            split = first_test_users(split, _QUICK_TEST_USERS)
        run = functools.partial(_run, model, split, key, how.n_threads, every=on == JUDGED)
        own = settings | {"model": repr(model), "seed": seed, "on": on}
        file = f"gap-{on}-{name}-{seed}".replace(" ", "-").replace(",", "")
        for ranked, hits in kept(how.folder, file, own, run).items():
            row = found.setdefault((name, on, ranked), {})
            for cutoff, value in hits.items():
                row.setdefault(cutoff, []).append(value)
    rows = tuple({"what": w, "on": on, "ranked": ranked, "hits": hits} for (w, on, ranked), hits in found.items())
    described = settings | {"seeds": n_seeds, "models": {name: repr(model) for _, _, name, model in tasks}}
    return GapTable(f"The data given: {visited!r}", described, "3" if is_log else "2", rows)


def models_of(data: Interactions | InteractionLog, *, quick: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is tried on train users, and what is run on the test users.

    Parameters
    ----------
    data : Interactions or InteractionLog
        See `gap_table`.
    quick : bool
        Train hardly at all.

    Returns
    -------
    trials, judged : dict of str to Recommender
        By name.
    """
    if isinstance(data, InteractionLog):
        models = {
            f"NCF, {kind}, {n_epochs} epochs, rate {rate:g}": NCF(
                n_factors=16, kind=kind, n_epochs=1 if quick else n_epochs, learning_rate=rate, pretrain=False
            )
            for kind, n_epochs, rate in NCF_TRIALS
        }
        return models, {name: models[name] for name in list(models)[-1:]}
    features = {
        "user": {name: np.unique(column).tolist() for name, column in data.user_features.items() if name in USER},
        "item": [name for name in ("genres",) if name in data.item_features],
    }
    few: dict[str, Any] = {"n_rounds": _QUICK_ROUNDS, "local_epochs": 1, "cohort_size": 10} if quick else {}
    rounds: dict[str, Any] = {"cohort_size": 100, "n_rounds": 200}  # of 100K, with fewer people

    def model(given: Any = features, **parameters: Any) -> PrivRec:
        return PrivRec(given, threshold=3.0, **(parameters | few))

    by_sgd = {"server_optimizer": "sgd"}
    judged = {
        CHOSEN: model(meta="first-order-maml"), "popularity": Popularity(), ADAM: model(), BEFORE: model(**by_sgd),
    }  # fmt: skip
    stamps = data.timestamps
    if stamps is None or np.any(stamps == MISSING_TIMESTAMP):
        return {}, judged
    sgd, adam = {**rounds, **by_sgd, "local_epochs": 5}, rounds
    long_sgd = sgd | {"server_learning_rate": 2.0}
    trials = {
        BEFORE: model(**sgd | {"n_rounds": 50}),
        f"{BEFORE}, 200 rounds": model(**sgd),
        f"{BEFORE}, twice the rate": model(**long_sgd),
        f"{BEFORE}, 20 epochs": model(**sgd | {"n_rounds": 50, "local_epochs": 20}),
        f"{BEFORE}, 128 factors": model(**sgd | {"n_rounds": 50, "n_factors": 128, "hidden": (256, 128, 64, 32)}),
        f"{BEFORE}, no features": model(None, **sgd | {"n_rounds": 50}),
        f"{BEFORE}, first stage": model(**sgd | {"n_rounds": 50, "stage1": "published"}),
        ADAM: model(**adam),
        f"{ADAM}, 128 factors": model(**adam, n_factors=128, hidden=(256, 128, 64, 32)),
        f"{ADAM}, no features": model(None, **adam),
        f"{ADAM}, first stage": model(**adam, stage1="published"),
        CHOSEN: model(**adam, meta="first-order-maml"),
        "MAML, server by Adam": model(**adam, meta="maml"),
        "popularity": Popularity(),
    }
    return trials, {}


USER = ("gender", "age", "occupation")
NCF_TRIALS = (("neumf", 20, 0.001), ("gmf", 20, 0.01), ("gmf", 300, 0.01), ("neumf", 20, 0.01), ("neumf", 100, 0.01))


# ---- how a held-out positive is ranked -------------------------------------------------------------------------------


def _run(
    model: Any, split: PersonalizationSplit, key: Key, n_threads: int, *, every: bool
) -> dict[str, dict[str, float]]:
    if isinstance(model, NCF):  # it knows what was seen and not liked
        known = split.known.interactions if isinstance(split.known, InteractionLog) else split.known
        fitted: Any = model.fit(known.binarize(), key=key, n_threads=n_threads)
    else:
        fitted = fit_devices(model, split, key, n_threads)
    found = evaluate_personalized(fitted, split, metrics=METRICS[:4], n_threads=n_threads)["all"]
    hits = {TEXT: {metric.removeprefix("hr@"): value for metric, value in found.items()}}
    if every and isinstance(split.held_out, Interactions):
        hits |= other_readings(fitted, split, key)
    return hits


def other_readings(model: Any, split: PersonalizationSplit, key: Key) -> dict[str, dict[str, float]]:
    """Hits@k of a model where its held-out positives are ranked among other items, or averaged in another way.

    Parameters
    ----------
    model : object
        As for `evaluate_personalized`.
    split : PersonalizationSplit
        From `personalization_split`.
    key : Key
        Of the negatives that are sampled.

    Returns
    -------
    dict of str to dict of str to float
        By reading, then by cutoff.
    """
    held, known, visited = split.held_out, split.known, split.visited
    assert isinstance(held, Interactions)
    assert isinstance(known, Interactions)
    users = np.flatnonzero(held.interactions_per_user())
    drawn, counts = sample_unseen(visited, users, min(_SAMPLED, visited.n_items), key=key, purpose="gap.negatives")
    everything = np.arange(visited.n_items)
    sampled = f"{_SAMPLED} of the unvisited items"
    ranks: dict[str, list[np.ndarray]] = {}
    for number, user in enumerate(users.tolist()):
        scores = score_rows(model, visited, users[number : number + 1])[0]
        own = scores[_row(held, user)][:, None]
        candidates = {
            TEXT: np.setdiff1d(everything, _row(visited, user)),
            ALL_HELD_OUT: np.setdiff1d(everything, _row(known, user)),
            "all items": everything,
            sampled: drawn[number, : counts[number]],
        }
        for name, items in candidates.items():
            others = scores[items]
            itself = np.isin(_row(held, user), items)
            above = (others > own).sum(axis=1) + 0.5 * ((others == own).sum(axis=1) - itself)
            ranks.setdefault(name, []).append(1 + above)
    readings: dict[str, tuple[list[np.ndarray], Callable[[np.ndarray], Any]]] = {
        name: (ranks[name], np.mean) for name in (ALL_HELD_OUT, "all items", sampled)
    }
    readings["unvisited items, mean over positives"] = [np.concatenate(ranks[TEXT])], np.mean
    readings[f"{ALL_HELD_OUT}, any hit of a user"] = ranks[ALL_HELD_OUT], np.any
    return {
        name: {str(k): float(np.mean([of_user(rank <= k) for rank in rows])) for k in CUTOFFS}
        for name, (rows, of_user) in readings.items()
    }


def _row(data: Interactions, user: int) -> np.ndarray:
    return data.indices[data.indptr[user] : data.indptr[user + 1]]
