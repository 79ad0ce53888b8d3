"""Popularity, similar items and explanations, computed from released factors or neighbours."""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.data.interactions import Interactions


def popularity_of_factors(item_factors: np.ndarray) -> NDArray[np.float64] | None:
    """Return the mean of an item's inner products with all items as its popularity, or None if all factors are 0.

    It equals the mean score over users who have one item each.
    """
    if not item_factors.any():
        return None
    factors = item_factors.astype(np.float64, copy=False)
    return factors @ factors.mean(axis=0)


def similar_by_factors(
    factors: np.ndarray, columns: np.ndarray, n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the columns of the `n` items with the largest cosines to each of some items, and falling cosines.

    A cosine of -inf marks an item without factors or a rank without an item.
    """
    factors = factors.astype(np.float64, copy=False)
    lengths = np.sqrt(np.square(factors).sum(axis=1, keepdims=True))
    nonzero = np.flatnonzero(lengths[:, 0] > 0)
    items, cosines = no_neighbors(columns, n)
    has_factors = lengths[columns, 0] > 0
    n_ranked = min(n, len(nonzero) - 1)
    if has_factors.any() and n_ranked > 0:
        units = factors[nonzero] / lengths[nonzero]
        positions = np.searchsorted(nonzero, columns[has_factors])
        best = ranking.recommend_factors(
            units[positions], units, n_ranked, seen=(np.arange(len(positions) + 1), positions)
        )
        items[has_factors, :n_ranked], cosines[has_factors, :n_ranked] = nonzero[best[0]], best[1]
    return items, cosines


def no_neighbors(columns: np.ndarray, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return arrays for `similar` to fill, in which each item is its own neighbour at similarity -inf."""
    return np.repeat(columns[:, None], n, axis=1), np.full((len(columns), n), -np.inf)


def contributions_of_neighbors(
    user_rows: Interactions, column: int, neighbor_items: np.ndarray, neighbor_similarities: np.ndarray
) -> NDArray[np.float64]:
    """Return the contribution of each item of one user to `score_neighbors` of an item, 0 for non-neighbours."""
    to_item = np.zeros(user_rows.n_items)
    to_item[neighbor_items[column]] = neighbor_similarities[column]
    return to_item[user_rows.indices] * user_rows.values_or_ones()


def similar_neighbors(
    columns: np.ndarray, n: int, neighbor_items: np.ndarray, neighbor_similarities: np.ndarray
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest items of some items, with falling similarities, -inf for a rank without a neighbour."""
    items, similarities = no_neighbors(columns, n)
    n_ranked = min(n, neighbor_items.shape[1])
    similarities_of_rows = neighbor_similarities[columns, :n_ranked]
    items[:, :n_ranked] = neighbor_items[columns, :n_ranked]
    similarities[:, :n_ranked] = np.where(similarities_of_rows > 0, similarities_of_rows, -np.inf)
    return items, similarities


def explain_least_squares(
    user_rows: Interactions,
    item_factors: np.ndarray,
    column: int,
    *,
    regularization: float,
    confidence_weight: float,
    use_values: bool = False,
) -> NDArray[np.float64]:
    """Return the contribution of each item of one user to a score with factors from `fastfedrec.als.solve_users`.

    The arguments are as in `solve_users`; the result is 0 if the user's system is singular.
    """
    # The score of item j is v_j' A^-1 sum_i c_i v_i, a sum over the user's items i.
    factors = item_factors.astype(np.float64, copy=False)
    item_rows = factors[user_rows.indices]
    weights = confidence_weight * (user_rows.values_or_ones() if use_values else np.ones(user_rows.n_interactions))
    system = (
        factors.T @ factors + (weights[:, None] * item_rows).T @ item_rows + regularization * np.eye(factors.shape[1])
    )
    try:
        return (1 + weights) * (item_rows @ np.linalg.solve(system, factors[column]))
    except np.linalg.LinAlgError:
        return np.zeros(user_rows.n_interactions)
