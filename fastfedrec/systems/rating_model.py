"""Models of ratings, with predictions on the scale of the ratings."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.arrays import Column
from fastfedrec.core.interface import choose_words
from fastfedrec.core.parameters import is_same, parameter
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.core.warn import warn
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.rating_metrics import evaluate_ratings
from fastfedrec.mechanisms.report_checks import check_grid
from fastfedrec.systems._inputs import check_interactions
from fastfedrec.systems.recommender import Recommender

__all__ = [
    "HALF_STARS",
    "LARGEST_RATING",
    "STARS",
    "RatingModel",
    "check_ratings",
    "popular_values",
    "rating_grid",
    "solve_ratings",
    "warn_beyond_ends",
    "warn_off_grid",
]

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
HALF_STARS = tuple(j / 2 for j in range(1, 11))

_MAX_GRID = 32  # values of a grid if each rating is reported as one of them
_MAX_SCALE = 2**16  # values of a grid if only its ends matter
LARGEST_RATING = 1e100  # its square is finite in float64
_BLOCK_CELLS = 2**22  # entries of users' systems in memory at a time
_MIN_RIDGE = 1e-9  # makes the system of a user with fewer ratings than factors solvable


class RatingModel(Recommender):
    """A model that scores items with predicted ratings, or other values."""

    grid: Sequence[float]

    @property
    def _bounds(self) -> tuple[float, float]:
        """The smallest and the largest predicted value."""
        return self.grid[0], self.grid[-1]

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data  # ratings of 1 are kept, so that they do not decide whether a user or a node is served

    def predict(self, user_ids: Column, item_ids: Column) -> NDArray[np.float64]:
        """Predict each user's rating, or other value, of the item at the same position.

        Parameters
        ----------
        user_ids, item_ids : array_like of shape (n,)
            External ids, one item for each user.

        Returns
        -------
        ndarray of shape (n,), float64
            Scores, clipped to `grid` or `value_range`; `score` itself does not clip.

        Raises
        ------
        KeyError
            An id is not in the model.
        """
        model = self._fitted()
        return np.clip(model.score(user_ids, item_ids), *model._bounds)

    def evaluate(self, test: InteractionsLike, metrics: Sequence[str] = ("rmse", "mae")) -> dict[str, float]:
        """Compute the errors of predicted test ratings with `fastfedrec.evaluation.evaluate_ratings`.

        Parameters
        ----------
        test : Interactions, SciPy sparse matrix or array, or frame
            With ratings as values.
        metrics : sequence of {"rmse", "mae"}
            Names of the errors.

        Returns
        -------
        dict of str to float
            Error by name, on the scale of the ratings.
        """
        return evaluate_ratings(self, test, metrics=metrics)

    def _check_grid(self, *, by_ends: bool) -> None:
        """Check a grid with a largest length that depends on other parameters."""
        grid = _checked_grid("grid", self.grid, by_ends=by_ends)
        if not is_same(grid, self.grid):
            self.grid = grid


def rating_grid(*, by_ends: bool | None) -> Any:
    """Declare the possible ratings; `by_ends` allows a longer grid, for models that only use its ends."""
    # None is for a class in which other parameters decide, and which calls `_check_grid`.
    check = (lambda name, grid: grid) if by_ends is None else functools.partial(_checked_grid, by_ends=by_ends)
    return parameter(STARS, "sequence of float", check)


def _checked_grid(name: str, grid: Any, *, by_ends: bool) -> tuple[float, ...]:
    """Return a grid as floats, or raise."""
    values = tuple(map(float, check_grid(name, grid, high=_MAX_SCALE if by_ends else _MAX_GRID)))
    if max(map(abs, values)) > LARGEST_RATING:
        raise ValueError(f"{name} must hold numbers from -1e100 to 1e100, got {values}; use another scale")
    return values


def popular_values(popularity: np.ndarray | None, bounds: tuple[float, float]) -> np.ndarray | None:
    """Return popularity rescaled to average the middle of the values' range, if both are above 0."""
    if popularity is None:
        return None
    mean, middle = float(popularity.mean()), sum(bounds) / 2
    return popularity * (middle / mean) if mean > 0 and middle > 0 else popularity


def warn_off_grid(data: Interactions, grid: Sequence[float]) -> None:
    """Warn of ratings off the grid; the count is a figure of raw data, so private fits must not call this."""
    if n_off := int((~np.isin(_as_float32(data.values_or_ones()), _as_float32(grid))).sum()):
        warn(
            f"{n_off} of {data.n_interactions} ratings are not on the grid {list(grid)} and count as the nearest value "
            "on it; pass all values of the scale as "
            + choose_words("grid=, such as numpy.linspace(low, high, 32)", "--set grid=(VALUE,VALUE,...)"),
            UserWarning,
        )


def warn_beyond_ends(data: Interactions, grid: Sequence[float], what: str) -> None:
    """Warn of ratings beyond the grid's ends; the count is a figure of raw data, so private fits must not call this."""
    values, (low, high) = _as_float32(data.values_or_ones()), _as_float32([grid[0], grid[-1]])
    if n_beyond := np.count_nonzero((values < low) | (values > high)):
        warn(
            f"{n_beyond} of {data.n_interactions} ratings are not from {grid[0]:g} to {grid[-1]:g}, the ends of the "
            f"grid, and {what}; pass the lowest and the highest rating of the scale as "
            + choose_words("grid=", "--set grid=(LOW,HIGH)"),
            UserWarning,
        )


def _as_float32(numbers: Any) -> NDArray[np.float32]:
    """Return ratings in float32: callers may have stored ratings and grid in different types."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)


def check_ratings(interactions: InteractionsLike, *, is_private: bool = False, min_users: int = 0) -> Interactions:
    """Return interactions with ratings as values, or raise; a private fit reads missing values as ones.

    Ratings that are all 1 are not stored, so an error would depend on one user's rating.
    """
    data = check_interactions(interactions, may_be_empty=is_private, min_users=min_users)
    if data.values is None and not is_private:
        raise ValueError(
            "interactions must hold ratings as values, got none, or only 1; pass values= to Interactions.from_arrays"
        )
    return data


def solve_ratings(data: Interactions, item_factors: np.ndarray, regularization: float | np.ndarray) -> np.ndarray:
    """Return each user's factors by ridge regression on the user's ratings; zeros without ratings.

    A number is multiplied by the user's number of ratings; a matrix is added to each user's system as it is.
    """
    n_factors = item_factors.shape[1]
    if not item_factors.any():
        return np.zeros((data.n_users, n_factors))
    products = (item_factors[:, :, None] * item_factors[:, None, :]).reshape(len(item_factors), -1)
    factors = np.zeros((data.n_users, n_factors))
    step = max(1, _BLOCK_CELLS // n_factors**2)
    # A user's normal equations are the sum of v v' over the rated items, times the factors, equal to the sum of r v.
    for start in range(0, data.n_users, step):
        block = data._user_range(start, min(start + step, data.n_users))
        rated = np.ones(block.n_interactions)
        systems = sum_rows(block, products, weights=rated).reshape(-1, n_factors, n_factors)
        diagonal = np.einsum("uff->uf", systems)
        if isinstance(regularization, np.ndarray):
            systems += regularization
            diagonal += _MIN_RIDGE
        else:
            diagonal += np.maximum(regularization * block.interactions_per_user(), _MIN_RIDGE)[:, None]
        with one_blas_thread():
            solutions = np.linalg.solve(systems, sum_rows(block, item_factors)[:, :, None])
        factors[start : start + step] = solutions[:, :, 0]
    return factors
