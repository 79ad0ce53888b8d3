"""What models tell of items by what was released: which are popular, which are alike, and why a score is as it is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.core.arrays import FloatArray
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._answers import Answers


class FactorScores(Answers):
    """A model whose scores are the inner products of stored factors: ranked without an array of scores."""

    user_factors_: FloatArray
    item_factors_: FloatArray

    def _best_items(
        self, rows: np.ndarray, n: int, seen: Any, columns: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        items = self.item_factors_ if columns is None else self.item_factors_[columns]
        return ranking.recommend_factors(self.user_factors_[rows], items, n, seen=seen)

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)


def popularity_of_factors(item_factors: np.ndarray) -> NDArray[np.float64] | None:
    """What is popular by factors alone: the mean of an item's inner products with all items.

    It is what users who each have one item would be offered together: strong factors that agree with many others.

    Parameters
    ----------
    item_factors : ndarray of shape (n_items, n_factors)
        Released.

    Returns
    -------
    ndarray of shape (n_items,), float64, or None
        None where all of them are 0.
    """
    if not item_factors.any():
        return None
    factors = item_factors.astype(np.float64, copy=False)
    return factors @ factors.mean(axis=0)


def similar_by_factors(
    factors: np.ndarray, columns: np.ndarray, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Items with the largest cosines to each of some items.

    Parameters
    ----------
    factors : ndarray of shape (n_items, n_factors)
        Of all items.
    columns : ndarray of int64
        Of the items asked for.
    n : int
        How many.

    Returns
    -------
    places : ndarray of shape (len(columns), n), int64
        Columns.
    cosines : ndarray of shape (len(columns), n), float64
        Falling; -inf where an item has no factors, and so no direction, or nothing is left.
    """
    factors = factors.astype(np.float64, copy=False)
    lengths = np.sqrt(np.square(factors).sum(axis=1, keepdims=True))
    there = np.flatnonzero(lengths[:, 0] > 0)
    places, cosines = nothing_similar(columns, n)
    asked = lengths[columns, 0] > 0
    kept = min(n, len(there) - 1)
    if asked.any() and kept > 0:
        units = factors[there] / lengths[there]
        own = np.searchsorted(there, columns[asked])
        best = ranking.recommend_factors(units[own], units, kept, seen=(np.arange(len(own) + 1), own))
        places[asked, :kept], cosines[asked, :kept] = there[best[0]], best[1]
    return places, cosines


def nothing_similar(columns: np.ndarray, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The answer of `_similar` before anything is found: the item itself, at -inf.

    Parameters
    ----------
    columns : ndarray of int64
        Of the items asked for.
    n : int
        How many places.

    Returns
    -------
    places : ndarray of shape (len(columns), n), int64
        To be written to.
    similarities : ndarray of shape (len(columns), n), float64
        To be written to.
    """
    return np.repeat(columns[:, None], n, axis=1), np.full((len(columns), n), -np.inf)


def contributions_of_neighbors(
    own: Interactions, column: int, neighbor_items: np.ndarray, neighbor_similarities: np.ndarray
) -> NDArray[np.float64]:
    """What each item of one user adds to `score_neighbors` of an item.

    Parameters
    ----------
    own : Interactions
        Of one user.
    column : int
        The item.
    neighbor_items, neighbor_similarities : ndarray of shape (n_items, n_kept)
        As for `fastfedrec.systems._neighbors.score_neighbors`.

    Returns
    -------
    ndarray of shape (n_own,), float64
        0 for an item that is no neighbour.
    """
    to_item = np.zeros(own.n_items)
    to_item[neighbor_items[column]] = neighbor_similarities[column]
    return to_item[own.indices] * own.values_or_ones()


def similar_neighbors(
    columns: np.ndarray, n: int, neighbor_items: np.ndarray, neighbor_similarities: np.ndarray
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest items of each of some items, as `Recommender.similar_items` takes them.

    Parameters
    ----------
    columns : ndarray of int64
        The items.
    n : int
        How many.
    neighbor_items, neighbor_similarities : ndarray of shape (n_items, n_kept)
        As for `fastfedrec.systems._neighbors.score_neighbors`.

    Returns
    -------
    places : ndarray of shape (len(columns), n), int64
        Columns.
    similarities : ndarray of shape (len(columns), n), float64
        Falling; -inf where there is no neighbour, or one that has nothing in common.
    """
    places, similarities = nothing_similar(columns, n)
    kept = min(n, neighbor_items.shape[1])
    found = neighbor_similarities[columns, :kept]
    places[:, :kept] = neighbor_items[columns, :kept]
    similarities[:, :kept] = np.where(found > 0, found, -np.inf)
    return places, similarities


def explain_least_squares(
    own: Interactions,
    item_factors: np.ndarray,
    column: int,
    *,
    regularization: float,
    confidence_weight: float,
    use_values: bool = False,
) -> NDArray[np.float64]:
    """What each item of one user adds to a score, where the user's factors are those of `fastfedrec.als.solve_users`.

    The score is v_j' A^-1 sum_i c_i v_i, a sum over the user's items i.

    Parameters
    ----------
    own : Interactions
        Of one user, with an item.
    item_factors : ndarray of shape (n_items, n_factors)
        V.
    column : int
        The item j.
    regularization, confidence_weight : float
        As of `solve_users`; so is `use_values`.
    use_values : bool
        Whether the weight is multiplied by each value.

    Returns
    -------
    ndarray of shape (n_own,), float64
        Zeros where A is singular, and so are the user's factors.
    """
    factors = item_factors.astype(np.float64, copy=False)
    mine = factors[own.indices]
    weights = confidence_weight * (own.values_or_ones() if use_values else np.ones(own.n_interactions))
    system = factors.T @ factors + (weights[:, None] * mine).T @ mine + regularization * np.eye(factors.shape[1])
    try:
        return (1 + weights) * (mine @ np.linalg.solve(system, factors[column]))
    except np.linalg.LinAlgError:
        return np.zeros(own.n_interactions)
