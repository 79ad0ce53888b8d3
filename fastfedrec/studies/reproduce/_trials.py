"""Trials: the same models on every split or seed, part by part, and what their figures come to."""

import functools
import itertools
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fastfedrec.core.check import check_choice, check_instance
from fastfedrec.core.progress import progress_rounds
from fastfedrec.core.randomness import Key
from fastfedrec.core.version import __version__
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, Split, evaluate, evaluate_ratings
from fastfedrec.studies.reproduce.side_by_side import RunOptions, checksum, kept

Part = TypeVar("Part")
Folds = Sequence[Split | tuple[Interactions, Interactions]]


def each(parts: Iterable[Part], how: RunOptions, description: str, unit: str) -> Iterator[Part]:
    """One part after another, with a bar if asked for."""
    parts = list(parts)
    bar = progress_rounds(len(parts), show=how.show_progress, description=description, unit=unit)
    return (parts[number] for number in bar)


def selected(models: Mapping[str, Part], only: Sequence[str] | None) -> dict[str, Part]:
    """Those of the models that are named, in the order of the models; all of them for None."""
    if only is None:
        return dict(models)
    wanted = [check_choice("only", name, tuple(models)) for name in only]
    return {name: model for name, model in models.items() if name in wanted}


def check_folds(folds: Folds, remedy: str, *, quick: bool) -> Folds:
    """Return the pairs (train, test), only the first if `quick`, or raise."""
    folds = list(folds)[: 1 if quick else None]
    if not folds:
        raise ValueError("folds must hold at least one pair (train, test), got none")
    for part in itertools.chain.from_iterable(folds):
        check_instance("folds", part, Interactions, remedy)
    return folds


def describe_folds(folds: Folds) -> str:
    """The first line of a page: which data these are."""
    train, test = folds[0]
    n_ratings = train.n_interactions + test.n_interactions
    size = f"{train.n_users:,} users x {train.n_items:,} items, {n_ratings:,} ratings"
    return f"The data given: {size}, {len(folds)} split{'s' if len(folds) > 1 else ''}"


def settings_of(folds: Folds) -> dict[str, Any]:
    """What every figure is computed with: the version and the data."""
    return {
        "version": __version__,
        "n_ratings": sum(part.n_interactions for part in folds[0]),
        "checksum": checksum(itertools.chain.from_iterable(folds)),
        "n_splits": len(folds),
    }


def rating_errors(model: Any, folds: Folds, n_threads: int) -> Iterator[dict[str, float]]:
    """MAE and RMSE in each fold, whose number is the seed; the model is as fitted there while one looks at them."""
    for seed, (train, test) in enumerate(folds):
        yield evaluate_ratings(model.fit(train, key=Key.from_seed(seed), n_threads=n_threads), test)


def kept_errors(
    part: str, settings: dict[str, Any], model: Any, folds: Folds, how: RunOptions
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """MAE and RMSE, one a fold; those of an earlier run that kept them (`kept`)."""
    run: Callable[[], Any] = functools.partial(list, rating_errors(model, folds, how.n_threads))
    errors = kept(how.folder, part, settings, run)
    mae, rmse = (tuple(error[metric] for error in errors) for metric in ("mae", "rmse"))
    return mae, rmse


def evaluate_quietly(
    model: Any,
    train: Interactions,
    test: Interactions,
    metrics: list[str],
    n_negatives: int,
    key: Key,
    n_threads: int,
) -> dict[str, float]:
    """Metrics by the protocol of the papers.

    Without the warning that a few users of a small subset, the same for every model, have few items.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unseen items", category=UserWarning)
        candidates = Sampled(n_negatives, per="interaction")
        return dict(evaluate(model, train, test, metrics=metrics, candidates=candidates, key=key, n_threads=n_threads))


def generated_split(
    n_users: int,
    n_items: int,
    row_length: float,
    key: Key,
    most_tested: int,
    *,
    latest: bool = False,
    n_threads: int,
) -> tuple[Interactions, Interactions]:
    """Train rows of generated users, and an item of some of them."""
    data = generate_implicit(
        n_users, n_items, key=key, timestamps=latest, mean_interactions=row_length, n_threads=n_threads
    )
    train, test = next(LeaveOneOut(latest=latest).split(data, key=key))
    del data
    tested = np.arange(n_users) < most_tested  # users are exchangeable, so the first ones are as good as any
    return train, test.keep_interactions(np.repeat(tested, test.interactions_per_user()))


class Accuracy(NamedTuple):
    """The three figures of a model: HR@10 among 99 sampled items, and HR@10 and nDCG@10 among all unseen items."""

    hit_ratio: float
    hit_ratio_all: float
    ndcg_all: float


def accuracy(model: Any, train: Interactions, test: Interactions, key: Key, n_threads: int) -> Accuracy:
    """Evaluate a model on one item of each user, among items that the user does not have."""
    how: dict[str, Any] = {"key": key, "n_threads": n_threads}
    sampled = evaluate(model, train, test, metrics=["hr@10"], candidates=Sampled(99, per="interaction"), **how)
    unseen = evaluate(model, train, test, metrics=["hr@10", "ndcg@10"], **how)
    return Accuracy(sampled["hr@10"], unseen["hr@10"], unseen["ndcg@10"])


def mean_and_deviation(values: Sequence[float], mean: str = "{:.3f}", deviation: str = " ± {:.3f}") -> str:
    """Over seeds or splits; the deviation where there are several."""
    return mean.format(statistics.fmean(values)) + (deviation.format(statistics.stdev(values)) if values[1:] else "")
