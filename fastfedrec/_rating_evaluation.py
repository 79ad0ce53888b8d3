"""Splits into folds and errors of predicted ratings; public as part of `fastfedrec.evaluation`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastfedrec._check import check_instance, check_integer
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key, resolve_key

#: Errors of predicted ratings, by name.
RATING_METRICS: dict[str, Callable[[np.ndarray], float]] = {
    "rmse": lambda errors: float(np.sqrt(np.mean(errors**2))),
    "mae": lambda errors: float(np.mean(np.abs(errors))),
}


def k_fold(
    interactions: Interactions, *, n_folds: int = 5, key: Key | None
) -> Iterator[tuple[Interactions, Interactions]]:
    """Split interactions into folds, and hold out each fold once.

    Every user's interactions are dealt out over the folds in random order, beginning at a random fold: a user with n of
    them has n / n_folds, rounded up or down, in each fold.

    Parameters
    ----------
    interactions : Interactions
        Every stored interaction counts, whatever its value.
    n_folds : int
        At least 2.
    key : Key or None
        Source of the folds; None draws a new entropy key.

    Yields
    ------
    train : Interactions
        Same users, items, ids and features; without this fold.
    test : Interactions
        The fold, on the same axes.

    See Also
    --------
    random_split : Holds out one random part.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.evaluation import k_fold
    >>> data = Interactions.from_arrays([1, 1, 1, 2, 2, 2], [10, 11, 12, 10, 11, 12], [5, 3, 4, 1, 2, 2])
    >>> [test.interactions_per_user().tolist() for _, test in k_fold(data, n_folds=3, key=Key.from_seed(1))]
    [[1, 1], [1, 1], [1, 1]]
    """
    check_instance("interactions", interactions, Interactions, "use Interactions.from_arrays")
    n_folds = check_integer("n_folds", n_folds, low=2)
    key = resolve_key(key)
    lengths = interactions.interactions_per_user()
    users = np.repeat(np.arange(interactions.n_users), lengths)
    first = key.words("evaluation.k_fold.first", size=interactions.n_users) % np.uint64(n_folds)
    words = key.words("evaluation.k_fold", size=interactions.n_interactions)
    place = np.empty(interactions.n_interactions, dtype=np.int64)
    place[np.lexsort((words, users))] = np.arange(interactions.n_interactions) - np.repeat(
        interactions.indptr[:-1], lengths
    )
    fold = (place + first.astype(np.int64)[users]) % n_folds

    def split(held_out: np.ndarray) -> tuple[Interactions, Interactions]:
        return interactions.keep_interactions(~held_out), interactions.keep_interactions(held_out)

    return (split(fold == f) for f in range(n_folds))


def evaluate_ratings(
    model: Any, test: Interactions, *, metrics: Sequence[str] = ("rmse", "mae"), batch_size: int = 2**18
) -> dict[str, float]:
    """Predict every test rating, and average the errors.

    Parameters
    ----------
    model : object
        Anything with ``predict(user_ids, item_ids)``: external ids, two arrays of one length, one rating for each pair.
    test : Interactions
        With ratings as values.
    metrics : sequence of str
        "rmse" (root of the mean squared error) and "mae" (mean absolute error).
    batch_size : int
        Pairs in one call of ``predict``.  The result does not depend on it.

    Returns
    -------
    dict of str to float
        Each metric under its name; means over test ratings, on the scale of the ratings.

    Raises
    ------
    ValueError
        An empty test, an unknown metric, or predictions that are not finite or of the wrong shape.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import evaluate_ratings
    >>> class Three:
    ...     def predict(self, user_ids, item_ids):
    ...         return [3.0] * len(user_ids)
    >>> evaluate_ratings(Three(), Interactions.from_arrays([1, 2], [10, 10], [5, 3]))
    {'rmse': 1.4142135623730951, 'mae': 1.0}
    """
    name = type(model).__name__
    if not callable(getattr(model, "predict", None)):
        raise TypeError(f"model must have a method predict(user_ids, item_ids), {name} has none")
    check_instance("test", test, Interactions, "use evaluation.k_fold")
    if isinstance(metrics, str) or not metrics or (unknown := [m for m in metrics if m not in RATING_METRICS]):
        raise ValueError(
            f"metrics must be a sequence out of {list(RATING_METRICS)}, got {metrics!r}"
            + (f"; unknown: {unknown}" if not isinstance(metrics, str) and metrics else "")
        )
    batch_size = check_integer("batch_size", batch_size, low=1)
    if not test.n_interactions:
        raise ValueError(f"test must hold ratings, got {test!r}")
    users = test.user_ids[np.repeat(np.arange(test.n_users), test.interactions_per_user())]
    items = test.item_ids[test.indices]
    ratings = test.values_or_ones()
    errors = np.empty(len(ratings))
    for start in range(0, len(errors), batch_size):
        block = slice(start, start + batch_size)
        predicted = np.asarray(model.predict(users[block], items[block]), dtype=np.float64)
        if predicted.shape != errors[block].shape:
            raise ValueError(
                f"{name}.predict must return one rating a pair, shape {errors[block].shape}, got {predicted.shape}"
            )
        errors[block] = predicted - ratings[block]
    if not np.isfinite(errors).all():
        raise ValueError(
            f"{name}.predict returned {int((~np.isfinite(errors)).sum())} ratings that are not finite; has the model "
            "diverged?"
        )
    return {m: RATING_METRICS[m](errors) for m in metrics}
