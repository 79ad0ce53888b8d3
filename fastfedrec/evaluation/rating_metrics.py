"""RMSE and MAE of models that predict ratings; public as `fastfedrec.evaluation.evaluate_ratings`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, plain_array
from fastfedrec.data.conversion import InteractionsLike, as_interactions

__all__ = ["RATING_METRICS", "evaluate_ratings"]

#: Functions from errors of predicted ratings to a metric, by the metric's name.
RATING_METRICS: dict[str, Callable[[np.ndarray], float]] = {
    "rmse": lambda errors: float(np.sqrt(np.mean(errors**2))),
    "mae": lambda errors: float(np.mean(np.abs(errors))),
}


def evaluate_ratings(
    model: Any, test: InteractionsLike, *, metrics: Sequence[str] = ("rmse", "mae"), batch_size: int = 2**18
) -> dict[str, float]:
    """Predict every test rating, and average the errors.

    Parameters
    ----------
    model : object
        Model with ``predict(user_ids, item_ids)``, which takes two arrays of external ids of equal length and returns
        one rating for each pair.
    test : Interactions, SciPy sparse matrix or array, or frame
        Test data as for `fit`, with ratings as values.
    metrics : sequence of str
        Any of "rmse" (root of the mean squared error) and "mae" (mean absolute error).
    batch_size : int
        Number of pairs in one call of ``predict``.  The result does not depend on it.

    Returns
    -------
    dict of str to float
        Value of each metric by its name: a mean over test ratings, on the scale of the ratings.

    Raises
    ------
    ValueError
        The test is empty, a metric is unknown, or predictions are not finite or have the wrong shape.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.evaluation import evaluate_ratings
    >>> class Three:
    ...     def predict(self, user_ids, item_ids):
    ...         return [3.0] * len(user_ids)
    >>> evaluate_ratings(Three(), Interactions.from_arrays([1, 2], [10, 10], [5, 3]))
    {'rmse': 1.41421..., 'mae': 1.0}
    """
    check_predicts(model)
    test = as_interactions("test", test)
    if isinstance(metrics, str) or not metrics or (unknown := [m for m in metrics if m not in RATING_METRICS]):
        raise ValueError(
            f"metrics must be a sequence out of {list(RATING_METRICS)}, got {metrics!r}"
            + (f"; unknown: {unknown}" if not isinstance(metrics, str) and metrics else "")
        )
    batch_size = check_integer("batch_size", batch_size, low=1)
    if not test.n_interactions:
        raise ValueError(f"test must hold ratings, got {test!r}; pass at least one")
    users = test.user_ids[np.repeat(np.arange(test.n_users), test.interactions_per_user())]
    items = test.item_ids[test.indices]
    ratings = test.values_or_ones()
    errors = predict_errors(model, users, items, ratings, batch_size)
    return {m: RATING_METRICS[m](errors) for m in metrics}


def check_predicts(model: Any) -> None:
    """Check that a model predicts ratings.

    Parameters
    ----------
    model : object
        Model to check.

    Raises
    ------
    TypeError
        The model has no method `predict`.
    """
    if not callable(getattr(model, "predict", None)):
        raise TypeError(
            f"model must have a method predict(user_ids, item_ids), {type(model).__name__} has none; rmse and mae are "
            "for models of ratings, so measure it with metrics of rankings such as 'ndcg@10'"
        )


def predict_errors(
    model: Any, user_ids: np.ndarray, item_ids: np.ndarray, ratings: np.ndarray, batch_size: int
) -> NDArray[np.float64]:
    """Return the predicted minus the true rating of each pair.

    Parameters
    ----------
    model : object
        Model as for `evaluate_ratings`.
    user_ids, item_ids : ndarray of shape (n,)
        External ids of users and items.
    ratings : ndarray of shape (n,), float64
        True ratings.
    batch_size : int
        Number of pairs in one call of ``predict``.

    Returns
    -------
    ndarray of shape (n,), float64
        Finite errors.

    Raises
    ------
    ValueError
        The predictions are not finite or have the wrong shape.
    """
    name, errors = type(model).__name__, np.empty(len(ratings))
    for start in range(0, len(errors), batch_size):
        block = slice(start, start + batch_size)
        answer = plain_array(f"{name}.predict", model.predict(user_ids[block], item_ids[block]))
        predicted = answer.astype(np.float64, copy=False)
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
    return errors
