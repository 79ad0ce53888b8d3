"""What a model is asked: factors, scores of all items of some users, or scores of pairs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastfedrec.core.check import check_fits, plain_array
from fastfedrec.data.ids import IdIndex, id_at

__all__ = ["Factors", "ask_factors", "ask_pairs", "check_model", "knows", "rows_of_scores"]

Factors = tuple[np.ndarray, np.ndarray]


def check_model(model: Any) -> None:
    """Raise for what cannot rank items."""
    if isinstance(model, type):
        raise TypeError(f"model must be fitted, got the class {model.__name__}; pass {model.__name__}(...).fit(train)")
    if not any(callable(getattr(model, name, None)) for name in ("score", "score_items", "factors")):
        raise TypeError(
            "model must have a method score(user_ids, item_ids), score_items(user_ids) or factors(user_ids, item_ids), "
            f"{type(model).__name__} has none"
        )


def known_ids(model: Any, axis: str) -> np.ndarray | None:
    """The users or items that a model of this package was fitted on; None of another model, which is asked for all."""
    data = getattr(model, "interactions_", None)
    return getattr(data, f"{axis}_ids", None)


def knows(model: Any, axis: str, ids: np.ndarray) -> np.ndarray:
    """Which ids a model knows."""
    known = known_ids(model, axis)
    if known is None or known is ids or (known.dtype == ids.dtype and np.array_equal(known, ids)):
        return np.ones(len(ids), dtype=bool)
    return np.asarray(IdIndex(axis, known).find(ids) >= 0)


def ask_factors(model: Any, user_ids: np.ndarray, item_ids: np.ndarray) -> Factors | None:
    """Factors of these users and items, from a model that gives them."""
    if not callable(getattr(model, "factors", None)):
        return None
    name, given = f"{type(model).__name__}.factors", model.factors(user_ids, item_ids)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"{name} must return two arrays, of users and of items, got {type(given).__name__}")
    user_factors, item_factors = (_real(name, part) for part in given)
    for part, length, what in ((user_factors, len(user_ids), "user"), (item_factors, len(item_ids), "item")):
        if part.ndim != 2 or len(part) != length:
            raise ValueError(
                f"{name} must return a row for each {what} id, shape ({length}, n_factors), got {part.shape}"
            )
    return user_factors, item_factors


def ask_pairs(model: Any, user_ids: np.ndarray, item_ids: np.ndarray) -> np.ndarray:
    """Scores of pairs of ids; float32 or float64, without NaN."""
    name = type(model).__name__
    if not callable(getattr(model, "score", None)):
        raise TypeError(f"model must have a method score(user_ids, item_ids), {name} has none")
    scores = _real(f"{name}.score", model.score(user_ids, item_ids))
    if scores.shape != user_ids.shape:
        raise ValueError(f"{name}.score must return one score a pair, shape {user_ids.shape}, got {scores.shape}")
    if (bad := np.flatnonzero(np.isnan(scores))).size:
        raise ValueError(
            f"{name}.score returned NaN for {bad.size} of {scores.size} pairs, the first for user "
            f"{id_at(user_ids, bad[0])!r} and item {id_at(item_ids, bad[0])!r}; has the model diverged?"
        )
    return scores


def rows_of_scores(model: Any, item_ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function from user ids to their scores of these items, (n_users, n_items); -inf where the model has none."""
    known = knows(model, "item", item_ids)
    if callable(getattr(model, "score_items", None)):
        return _by_score_items(model, item_ids, known)

    def by_score(user_ids: np.ndarray) -> np.ndarray:
        asked = item_ids[known]
        found = ask_pairs(model, np.repeat(user_ids, len(asked)), _tile(asked, len(user_ids)))
        return _spread(found.reshape(len(user_ids), len(asked)), known)

    return by_score


def _by_score_items(model: Any, item_ids: np.ndarray, known: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    theirs, name = known_ids(model, "item"), type(model).__name__
    same = theirs is None or (known.all() and np.array_equal(theirs, item_ids))
    columns = None if theirs is None or same else IdIndex("item", theirs).find(item_ids[known])
    n_columns = len(item_ids) if theirs is None else len(theirs)

    def by_rows(user_ids: np.ndarray) -> np.ndarray:
        scores = _real(f"{name}.score_items", model.score_items(user_ids))
        if scores.shape != (len(user_ids), n_columns):
            raise ValueError(
                f"{name}.score_items must return shape {(len(user_ids), n_columns)}, users x items, got {scores.shape}"
            )
        if np.isnan(scores).any():
            row, column = np.argwhere(np.isnan(scores))[0]
            item = id_at(item_ids if theirs is None else theirs, column)
            raise ValueError(
                f"{name}.score_items returned NaN for {int(np.isnan(scores).sum())} of {scores.size} pairs, the first "
                f"for user {id_at(user_ids, row)!r} and item {item!r}; has the model diverged?"
            )
        return scores if columns is None else _spread(scores[:, columns], known)

    return by_rows


def _tile(ids: np.ndarray, times: int) -> np.ndarray:
    return np.tile(ids, times)


def _spread(scores: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Columns of known items among those of all; what a model does not know it puts last."""
    if known.all():
        return scores
    whole = np.full((len(scores), len(known)), -np.inf, dtype=scores.dtype)
    whole[:, known] = scores
    return whole


def _real(what: str, scores: Any) -> np.ndarray:
    """What a model returned, as float32 or float64, in which no two numbers that differ become one."""
    scores = plain_array(what, scores)
    if scores.dtype.kind not in "fiub":
        raise TypeError(f"{what} must return real numbers, got dtype {scores.dtype}")
    if scores.dtype.kind in "iu":
        check_fits(what, scores, np.float64)
    return scores if scores.dtype == np.float32 else scores.astype(np.float64, copy=False)
