"""Helpers for trials of the same models on every split or seed, and means of their figures."""

import functools
import itertools
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastfedrec.core.check import check_choice, check_instance
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.datasets.movielens import release_year
from fastfedrec.evaluation import LeaveOneOut, Sampled, Split, evaluate, evaluate_ratings
from fastfedrec.studies.files import Case, checksum
from fastfedrec.studies.report import RunOptions

Part = TypeVar("Part")
Folds = Sequence[Split | tuple[Interactions, Interactions]]


def select_models(models: Mapping[str, Part], only: Sequence[str] | None) -> dict[str, Part]:
    """Return the named models in the order of `models`, or all of them if `only` is None."""
    if only is None:
        return dict(models)
    names = [check_choice("only", name, tuple(models)) for name in only]
    return {name: model for name, model in models.items() if name in names}


def check_folds(folds: Folds, remedy: str, *, quick: bool) -> Folds:
    """Return the pairs (train, test), only the first if `quick`, or raise."""
    # Folds may be an iterator, which can be read only once.
    folds = list(folds)[: 1 if quick else None]
    if not folds:
        raise ValueError("folds must hold at least one pair (train, test), got none")
    for part in itertools.chain.from_iterable(folds):
        check_instance("folds", part, Interactions, remedy)
    return folds


def describe_folds(folds: Folds) -> str:
    """Return a description of the data, which is the first line of a page."""
    train, test = folds[0]
    n_ratings = train.n_interactions + test.n_interactions
    size = f"{train.n_users:,} users x {train.n_items:,} items, {n_ratings:,} ratings"
    return f"The data given: {size}, {len(folds)} split{'s' if len(folds) > 1 else ''}"


def fold_settings(folds: Folds) -> dict[str, Any]:
    """Return the settings of every figure: the version, and the size and checksum of the data."""
    return {
        "version": __version__,
        "n_ratings": sum(part.n_interactions for part in folds[0]),
        "checksum": checksum(itertools.chain.from_iterable(folds)),
        "n_splits": len(folds),
    }


def rating_errors(model: Any, folds: Folds, n_threads: int) -> Iterator[dict[str, float]]:
    """Yield MAE and RMSE of each fold; until the next one, the model remains fitted on that fold."""
    # The number of a fold is the seed of its fit.
    for seed, (train, test) in enumerate(folds):
        yield evaluate_ratings(model.fit(train, key=Key.from_seed(seed), n_threads=n_threads), test)


def errors_case(file: str, settings: dict[str, Any], model: Any, folds: Folds, how: RunOptions) -> Case:
    """Return the case of a model that is fitted and tested on each fold."""
    return Case(file, settings, functools.partial(list, rating_errors(model, folds, how.n_threads)))


def mae_and_rmse(figures: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    """Return the figures of `errors_case`, each one as a tuple over the folds."""
    return {metric: tuple(fold[metric] for fold in figures) for metric in ("mae", "rmse")}


def evaluate_quietly(
    model: Any,
    train: Interactions,
    test: Interactions,
    metrics: list[str],
    n_negatives: int,
    key: Key,
    n_threads: int,
) -> dict[str, float]:
    """Evaluate a model among sampled items, without the warning about users with too few unseen items."""
    # These few users of a small subset are the same for every model.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unseen items", category=UserWarning)
        candidates = Sampled(n_negatives, per="interaction")
        return dict(evaluate(model, train, test, metrics=metrics, candidates=candidates, key=key, n_threads=n_threads))


def generated_split(
    n_users: int,
    n_items: int,
    row_length: float,
    key: Key,
    max_tested: int,
    *,
    latest: bool = False,
    n_threads: int,
) -> tuple[Interactions, Interactions]:
    """Return train rows of generated users, and one held-out item of at most `max_tested` of them."""
    data = generate_implicit(
        n_users, n_items, key=key, timestamps=latest, mean_interactions=row_length, n_threads=n_threads
    )
    train, test = next(LeaveOneOut(latest=latest).split(data, key=key))
    del data  # frees memory before the models are fitted
    is_tested = np.arange(n_users) < max_tested  # users are exchangeable, so the first ones are as good as any
    # Train rows include all users; only the test is restricted.
    return train, test.keep_interactions(np.repeat(is_tested, test.interactions_per_user()))


class Accuracy(NamedTuple):
    """Figures of a model: HR@10 among 99 sampled items, and HR@10 and nDCG@10 among all unseen items."""

    hit_ratio: float
    hit_ratio_all: float
    ndcg_all: float


def accuracy(model: Any, train: Interactions, test: Interactions, key: Key, n_threads: int) -> Accuracy:
    """Evaluate a model on one held-out item of each user, among items that the user does not have."""
    how: dict[str, Any] = {"key": key, "n_threads": n_threads}
    # The same key draws the same sampled items for every model.
    sampled = evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99, per="interaction"), **how)
    unseen = evaluate(model, train, test, metrics=["hr@10", "ndcg@10"], **how)
    return Accuracy(sampled["hr@10"], unseen["hr@10"], unseen["ndcg@10"])


def mean_and_deviation(values: Sequence[float], mean: str = "{:.3f}", deviation: str = " ± {:.3f}") -> str:
    """Format the mean over seeds or splits, and the standard deviation if there are several."""
    return mean.format(statistics.fmean(values)) + (deviation.format(statistics.stdev(values)) if values[1:] else "")


def means(field: str, mean: str = "{:.3f}", deviation: str = " ± {:.3f}") -> Callable[[Any], str]:
    """Return a function that formats a record's figure of all seeds or splits as `mean_and_deviation`."""
    return lambda record: mean_and_deviation(getattr(record, field), mean, deviation)


def errors(field: str) -> Callable[[Any], str]:
    """Return a function that formats a record's error of all splits with four decimals."""
    return means(field, "{:.4f}", " +- {:.4f}")


def over_seeds(runs: Sequence[Mapping[str, Part]]) -> dict[str, tuple[Part, ...]]:
    """Return the figures of runs that differ by their seeds, each one as a tuple over the seeds."""
    return {name: tuple(run[name] for run in runs) for name in runs[0]}


def format_cost(cell: Any) -> str:
    """Format the epsilon of a cell for all data of one user against none, and in brackets for replacing the user."""
    return "none" if cell.epsilon is None else f"{cell.epsilon:g} ({cell.replaced:.2f})"


def cache_last(draw: Callable[..., Part]) -> Callable[..., Part]:
    """Return the function with a cache of its last result, which is freed before the next one is computed."""
    last: dict[tuple[Any, ...], Part] = {}

    def cached(*arguments: Any) -> Part:
        if arguments not in last:
            last.clear()
            last[arguments] = draw(*arguments)
        return last[arguments]

    return cached


def movie_features(data: Interactions) -> dict[str, Any] | None:
    """Return the public features of movies, genres and year, by item, or None if the data have none."""
    columns = data.item_features
    if not {"genres", "title"} <= columns.keys():
        return None
    return {"genres": columns["genres"], "year": [release_year(title) for title in columns["title"].tolist()]}


def brief_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table as on the pages of systems."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])
