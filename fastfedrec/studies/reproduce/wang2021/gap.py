"""Wang et al. 2021 (PrivRec): trials of features, evaluation and optimiser that may explain the gap to Tables 2 and 3.

Trials are compared on train users alone; some of these serve as test users.  Only the chosen trial and the settings
that it replaces are run on the real test users.
"""

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfedrec.compute.ranking import sample_unseen
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.old_names import refuse_old_names
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
from fastfedrec.studies.drawings import draw_bars
from fastfedrec.studies.files import Case, checksum, file_name, measure_cases
from fastfedrec.studies.report import Report, RunOptions, Study
from fastfedrec.studies.reproduce._trials import mean_and_deviation, select_models
from fastfedrec.studies.reproduce.wang2021._runs import CUTOFFS, first_test_users, fit_devices
from fastfedrec.studies.reproduce.wang2021.accuracy import PUBLISHED
from fastfedrec.systems.baselines.popularity import Popularity
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.systems.privrec.model import PrivRec

__all__ = ["gap_table", "largest_ndcg"]

TEXT = "unvisited items (the text)"
ALL_HELD_OUT = "and other held-out items"
BEFORE, ADAM = "Reptile, server by SGD", "Reptile, server by Adam"
CHOSEN = "first-order MAML, server by Adam"
_FINALISTS = (ADAM, CHOSEN)  # two trials with a difference that one seed cannot decide
TRIED, JUDGED = "train users", "test users"
_INNER_SEED_OFFSET = 1000  # added to a seed to draw the train users that serve as test users
_SAMPLED = 99
_QUICK_ROUNDS, _QUICK_TEST_USERS = 2, 30


def largest_ndcg(row: tuple[float, ...]) -> float:
    """Return the largest nDCG@30 that equations 12 and 13 allow with these Hits@5, 10, 20 and 30."""
    # A hit at rank i adds 1 to Hits and 1 / log2(i + 1) to nDCG.  Hits@5 therefore adds at most itself, and the gain of
    # Hits from one cutoff to the next adds at most its value at the first rank above the former cutoff.
    total = row[0]
    for number, cutoff in enumerate(CUTOFFS[:-1]):
        total += max(row[number + 1] - row[number], 0.0) / math.log2(cutoff + 2)
    return total


def _count_impossible(_: Report) -> list[str]:
    """Return the number of printed rows that no evaluation by the paper's equations can yield."""
    rows = [row for printed in PUBLISHED.values() for row in printed.values()]
    n_above = sum(largest_ndcg(row) < row[-1] for row in rows)
    return [
        f"{n_above} of the {len(rows)} printed rows of Tables 2 and 3 have an nDCG@30 above the maximum that "
        "equations 12 and 13 allow with the Hits of the same row: no model and no split yield them."
    ]


def _compare_published(table: Report) -> str:
    """State the difference from the published figure for each row on the test users."""
    lines = []
    for row in table.rows:
        if row["on"] == JUDGED:
            name = "NCF" if row["what"].startswith("NCF") else "PrivRec"
            gap = statistics.fmean(row["hits"]["10"]) - PUBLISHED[table.table][name][1]
            lines.append(f"{row['what']}, {row['ranked']}: Hits@10 {gap:+.3f} compared with {name} as published.")
    return "\n".join(lines)


def _format_hits(cutoff: int, row: dict[str, Any]) -> str:
    return mean_and_deviation(row["hits"][str(cutoff)])


def _draw(table: Report, figure: Any) -> None:
    bars = {f"{row['what']}, {row['on']}, {row['ranked']}": statistics.fmean(row["hits"]["10"]) for row in table.rows}
    panel = draw_bars(figure, bars, (8, 1 + 0.25 * len(bars)), "Hits@10 (dashed: PrivRec as published)")
    panel.axvline(PUBLISHED[table.table]["PrivRec"][1], linestyle="--", color="black")
    # A title of the panel would be cut off, because the names of rows are long.
    figure.suptitle(table.title)


STUDY = Study(
    title="PrivRec: trials to reach the published accuracy",
    legend=(
        "Hits@k; means over seeds, with the standard deviation if there are several.  train users: some of them\n"
        "serve as test users, and the real test users are unseen.  ranked: the items that a held-out positive is\n"
        "ranked among."
    ),
    columns=[
        ("what", "{[what]}"),
        ("judged on", "{[on]}"),
        ("seeds", lambda row: str(len(row["hits"]["10"]))),
        ("ranked", "{[ranked]}"),
        *((f"Hits@{k}", functools.partial(_format_hits, k)) for k in CUTOFFS),
    ],
    verdict=_compare_published,
    draw=_draw,
    remarks=_count_impossible,
)


def gap_table(
    data: Interactions | InteractionLog, *, n_seeds: int = 3, only: Sequence[str] | None = None, **options: Any
) -> Report:
    """Run trials that may explain the published accuracy of PrivRec (of NCF on Frappe), and the chosen model.

    MovieLens 100K has all trials, including the first stage, which needs every timestamp.  MovieLens 1M has the model
    chosen there, by every reading of the evaluation.  Frappe has NCF.  Test users and the two finalists have `n_seeds`
    seeds, and all remaining trials have seed 0.  `only` names the models to run, and `options` are the ones of
    `RunOptions`.

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
        selected_models = select_models(trials | judged, only)
        trials, judged = (
            {name: model for name, model in models.items() if name in selected_models} for models in (trials, judged)
        )
    visited = data.interactions if isinstance(data, InteractionLog) else data
    settings = {"version": __version__, "data": checksum([visited]), "quick": how.quick}
    tasks = [
        (TRIED, seed, *trial) for trial in trials.items() for seed in range(n_seeds if trial[0] in _FINALISTS else 1)
    ]
    tasks += [(JUDGED, seed, *model) for model in judged.items() for seed in range(n_seeds)]
    cases = {}
    for user_set, seed, name, model in tasks:
        task_settings = settings | {"model": repr(model), "seed": seed, "on": user_set}
        measure = functools.partial(_measure, data, model, user_set, seed, how)
        cases[name, user_set, seed] = Case(file_name(f"gap-{user_set}-{name}-{seed}"), task_settings, measure)
    results: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for (name, user_set, _), hits_by_reading in measure_cases(cases, how, "gap", "model").items():
        for ranked, hits in hits_by_reading.items():
            row = results.setdefault((name, user_set, ranked), {})
            for cutoff, value in hits.items():
                row.setdefault(cutoff, []).append(value)
    rows = tuple(
        {"what": w, "on": user_set, "ranked": ranked, "hits": hits} for (w, user_set, ranked), hits in results.items()
    )
    described = settings | {"seeds": n_seeds, "models": {name: repr(model) for _, _, name, model in tasks}}
    return Report(STUDY, f"The data given: {visited!r}", described, table="3" if is_log else "2", rows=rows)


def _measure(
    data: Interactions | InteractionLog, model: Any, user_set: str, seed: int, how: RunOptions
) -> dict[str, dict[str, float]]:
    """Fit and evaluate one model on the split of a seed, or on the split of its train users alone."""
    key = Key.from_seed(seed)
    split = personalization_split(data, threshold=0.0 if isinstance(data, InteractionLog) else 3.0, key=key)
    if user_set == TRIED:
        inner_key = Key.from_seed(_INNER_SEED_OFFSET + seed)
        split = personalization_split(split.train, threshold=split.threshold, key=inner_key)
    if how.quick:
        split = first_test_users(split, _QUICK_TEST_USERS)
    # The trials on train users are compared by the text's reading alone.
    return _run(model, split, key, how.n_threads, all_readings=user_set == JUDGED)


def models_of(data: Interactions | InteractionLog, *, quick: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the models of the trials on train users, and the models that are run on the test users."""
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
    quick_options: dict[str, Any] = {"n_rounds": _QUICK_ROUNDS, "local_epochs": 1, "cohort_size": 10} if quick else {}
    rounds: dict[str, Any] = {"cohort_size": 100, "n_rounds": 200}  # for MovieLens 100K, which has fewer users

    def model(model_features: Any = features, **parameters: Any) -> PrivRec:
        return PrivRec(model_features, threshold=3.0, **(parameters | quick_options))

    by_sgd = {"server_optimizer": "sgd"}
    judged = {
        CHOSEN: model(meta="first-order-maml"), "popularity": Popularity(), ADAM: model(), BEFORE: model(**by_sgd),
    }  # fmt: skip
    # The first stage needs every timestamp, so data without them have no trials.
    timestamps = data.timestamps
    if timestamps is None or np.any(timestamps == MISSING_TIMESTAMP):
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
    model: Any, split: PersonalizationSplit, key: Key, n_threads: int, *, all_readings: bool
) -> dict[str, dict[str, float]]:
    # NCF is also given the items that a user has seen and not liked.
    if isinstance(model, NCF):
        known = split.known.interactions if isinstance(split.known, InteractionLog) else split.known
        fitted: Any = model.fit(known.binarize(), key=key, n_threads=n_threads)
    else:
        fitted = fit_devices(model, split, key, n_threads)
    figures = evaluate_personalized(fitted, split, metrics=METRICS[:4], n_threads=n_threads)["all"]
    hits = {TEXT: {metric.removeprefix("hr@"): value for metric, value in figures.items()}}
    if all_readings and isinstance(split.held_out, Interactions):
        hits |= other_readings(fitted, split, key)
    return hits


def other_readings(model: Any, split: PersonalizationSplit, key: Key) -> dict[str, dict[str, float]]:
    """Return Hits@k by reading and cutoff; a reading defines the ranked items and how hits are averaged."""
    held_out, known, visited = split.held_out, split.known, split.visited
    assert isinstance(held_out, Interactions)
    assert isinstance(known, Interactions)
    users = np.flatnonzero(held_out.interactions_per_user())
    negatives, counts = sample_unseen(visited, users, min(_SAMPLED, visited.n_items), key=key, purpose="gap.negatives")
    all_items = np.arange(visited.n_items)
    sampled = f"{_SAMPLED} of the unvisited items"
    ranks: dict[str, list[np.ndarray]] = {}
    for number, user in enumerate(users.tolist()):
        scores = score_rows(model, visited, users[number : number + 1])[0]
        positive_scores = scores[_row(held_out, user)][:, None]
        # Items that a positive is ranked among, by reading of the paper's evaluation.
        candidates = {
            TEXT: np.setdiff1d(all_items, _row(visited, user)),
            ALL_HELD_OUT: np.setdiff1d(all_items, _row(known, user)),
            "all items": all_items,
            sampled: negatives[number, : counts[number]],
        }
        for name, items in candidates.items():
            candidate_scores = scores[items]
            is_candidate = np.isin(_row(held_out, user), items)
            # A tie counts half, and a positive among the candidates does not tie with itself.
            n_ties = (candidate_scores == positive_scores).sum(axis=1) - is_candidate
            n_above = (candidate_scores > positive_scores).sum(axis=1) + 0.5 * n_ties
            ranks.setdefault(name, []).append(1 + n_above)
    readings: dict[str, tuple[list[np.ndarray], Callable[[np.ndarray], Any]]] = {
        name: (ranks[name], np.mean) for name in (ALL_HELD_OUT, "all items", sampled)
    }
    readings["unvisited items, mean over positives"] = [np.concatenate(ranks[TEXT])], np.mean
    readings[f"{ALL_HELD_OUT}, any hit of a user"] = ranks[ALL_HELD_OUT], np.any
    return {
        name: {str(k): float(np.mean([summarise(rank <= k) for rank in rows])) for k in CUTOFFS}
        for name, (rows, summarise) in readings.items()
    }


def _row(data: Interactions, user: int) -> np.ndarray:
    return data.indices[data.indptr[user] : data.indptr[user + 1]]


refuse_old_names(__name__, GapTable="studies.report.Report")
