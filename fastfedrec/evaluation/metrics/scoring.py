"""Calls of a model's methods: factors, scores of all items for some users, or scores of pairs."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastfedrec.core.check import check_fits, plain_array
from fastfedrec.data.conversion import is_frame
from fastfedrec.data.ids import IdIndex, id_at

__all__ = ["Factors", "call_factors", "check_model", "is_known", "rows_of_scores", "score_pairs", "select_scores"]

# Factors of users and of items, one row each.
Factors = tuple[np.ndarray, np.ndarray]


def check_model(model: Any) -> None:
    """Check that a model can rank items."""
    if isinstance(model, type):
        raise TypeError(f"model must be fitted, got the class {model.__name__}; pass {model.__name__}(...).fit(train)")
    if not any(callable(getattr(model, name, None)) for name in ("score", "score_items", "factors")):
        raise TypeError(
            "model must have a method score(user_ids, item_ids), score_items(user_ids) or factors(user_ids, item_ids), "
            f"{type(model).__name__} has none; {_remedy_for(model)}"
        )


def _remedy_for(model: Any) -> str:
    """Return the remedy for an object that cannot rank items."""
    if is_frame(model) or isinstance(model, Mapping) or callable(getattr(model, "recommend", None)):
        return "pass lists of recommended items to evaluate_lists"
    if callable(getattr(model, "predict", None)):
        return "add one, or measure its predicted ratings with metrics=['rmse', 'mae']"
    return "add one of them"


def known_ids(model: Any, axis: str) -> np.ndarray | None:
    """Return the ids of users or items that a model of this package was fitted on; None for any other model."""
    data = getattr(model, "interactions_", None)
    return getattr(data, f"{axis}_ids", None)


def is_known(model: Any, axis: str, ids: np.ndarray) -> np.ndarray:
    """Return a mask of the ids that a model was fitted on; a model of unknown ids gets all True."""
    known = known_ids(model, axis)
    if known is None or known is ids or (known.dtype == ids.dtype and np.array_equal(known, ids)):
        return np.ones(len(ids), dtype=bool)
    return np.asarray(IdIndex(axis, known).find(ids) >= 0)


def call_factors(model: Any, user_ids: np.ndarray, item_ids: np.ndarray) -> Factors | None:
    """Return factors of users and items, or None if the model has no method `factors`."""
    if not callable(getattr(model, "factors", None)):
        return None
    name, answer = f"{type(model).__name__}.factors", model.factors(user_ids, item_ids)
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise TypeError(f"{name} must return an array of users and one of items, got {type(answer).__name__}")
    user_factors, item_factors = (_as_float(name, array) for array in answer)
    for array, length, axis in ((user_factors, len(user_ids), "user"), (item_factors, len(item_ids), "item")):
        if array.ndim != 2 or len(array) != length:
            raise ValueError(
                f"{name} must return a row for each {axis} id, shape ({length}, n_factors), got {array.shape}"
            )
    return user_factors, item_factors


def score_pairs(model: Any, user_ids: np.ndarray, item_ids: np.ndarray) -> np.ndarray:
    """Return the scores of pairs of ids, float32 or float64 without NaN."""
    name = type(model).__name__
    if not callable(getattr(model, "score", None)):
        raise TypeError(f"model must have a method score(user_ids, item_ids), {name} has none")
    scores = _as_float(f"{name}.score", model.score(user_ids, item_ids))
    if scores.shape != user_ids.shape:
        raise ValueError(f"{name}.score must return one score a pair, shape {user_ids.shape}, got {scores.shape}")
    if (nan_pairs := np.flatnonzero(np.isnan(scores))).size:
        raise ValueError(
            f"{name}.score returned NaN for {nan_pairs.size} of {scores.size} pairs, the first for user "
            f"{id_at(user_ids, nan_pairs[0])!r} and item {id_at(item_ids, nan_pairs[0])!r}; has the model diverged?"
        )
    return scores


def select_scores(
    model: Any, user_ids: np.ndarray, item_ids: np.ndarray, rows: np.ndarray, columns: np.ndarray, batch_size: int
) -> np.ndarray:
    """Return the scores of pairs of positions, from rows of scores of all items, for a model without `score`."""
    row_scores = rows_of_scores(model, item_ids)
    scores = np.empty(len(rows))
    by_user = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[by_user], np.arange(len(user_ids) + 1))
    step = max(1, batch_size // len(item_ids))
    for start in range(0, len(user_ids), step):
        stop = min(start + step, len(user_ids))
        pairs = by_user[ends[start] : ends[stop]]
        scores[pairs] = row_scores(user_ids[start:stop])[rows[pairs] - start, columns[pairs]]
    return scores


def rows_of_scores(model: Any, item_ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from user ids to scores of these items, (n_users, n_items); -inf for unknown items."""
    known = is_known(model, "item", item_ids)
    if callable(getattr(model, "score_items", None)):
        return _by_score_items(model, item_ids, known)

    def by_score(user_ids: np.ndarray) -> np.ndarray:
        known_ids = item_ids[known]
        scores = score_pairs(model, np.repeat(user_ids, len(known_ids)), np.tile(known_ids, len(user_ids)))
        return _insert_unknown(scores.reshape(len(user_ids), len(known_ids)), known)

    return by_score


def _by_score_items(model: Any, item_ids: np.ndarray, known: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    model_items, name = known_ids(model, "item"), type(model).__name__
    same = model_items is None or (known.all() and np.array_equal(model_items, item_ids))
    # `score_items` scores the model's items in the model's order; `columns` selects and reorders them.
    columns = None if model_items is None or same else IdIndex("item", model_items).find(item_ids[known])
    n_columns = len(item_ids) if model_items is None else len(model_items)

    def by_rows(user_ids: np.ndarray) -> np.ndarray:
        scores = _as_float(f"{name}.score_items", model.score_items(user_ids))
        if scores.shape != (len(user_ids), n_columns):
            raise ValueError(
                f"{name}.score_items must return shape {(len(user_ids), n_columns)}, users x items, got {scores.shape}"
            )
        if np.isnan(scores).any():
            row, column = np.argwhere(np.isnan(scores))[0]
            item = id_at(item_ids if model_items is None else model_items, column)
            raise ValueError(
                f"{name}.score_items returned NaN for {int(np.isnan(scores).sum())} of {scores.size} pairs, the first "
                f"for user {id_at(user_ids, row)!r} and item {item!r}; has the model diverged?"
            )
        return scores if columns is None else _insert_unknown(scores[:, columns], known)

    return by_rows


def _insert_unknown(scores: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Insert columns of -inf for unknown items, so that they rank last."""
    if known.all():
        return scores
    whole = np.full((len(scores), len(known)), -np.inf, dtype=scores.dtype)
    whole[:, known] = scores
    return whole


def _as_float(method: str, scores: Any) -> np.ndarray:
    """Return a method's answer as float32 or float64; integers must convert exactly, so that no tie arises."""
    scores = plain_array(method, scores)
    if scores.dtype.kind not in "fiub":
        raise TypeError(f"{method} must return real numbers, got dtype {scores.dtype}")
    if scores.dtype.kind in "iu":
        check_fits(method, scores, np.float64)
    return scores if scores.dtype == np.float32 else scores.astype(np.float64, copy=False)
