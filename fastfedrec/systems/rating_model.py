"""What every fitted model of ratings offers beside score and recommend: predictions on the scale of the ratings."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.arrays import Column
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.evaluation.rating_metrics import evaluate_ratings
from fastfedrec.mechanisms.report_checks import check_grid
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import popularity_of_factors, similar_by_factors
from fastfedrec.systems._inputs import check_interactions
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems.recommender import Recommender

__all__ = [
    "HALF_STARS",
    "LARGEST_RATING",
    "STARS",
    "AdditiveModel",
    "RatingModel",
    "ValueModel",
    "check_ratings",
    "solve_ratings",
    "warn_beyond_ends",
    "warn_off_grid",
]

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
HALF_STARS = tuple(j / 2 for j in range(1, 11))

_MAX_GRID = 32  # values of which a rating is reported as one
_MAX_SCALE = 2**16  # values of a grid of which the ends alone count
LARGEST_RATING = 1e100  # whose square is a number
_BLOCK_CELLS = 2**22  # entries of users' systems held at once
_LEAST_RIDGE = 1e-9  # keeps a user with fewer ratings than factors from having no solution


class ValueModel(Recommender):
    """A model whose scores are values that users have for items."""

    @property
    @abstractmethod
    def _bounds(self) -> tuple[float, float]:
        """The least and the largest value that is predicted."""

    def _popular_values(self, popularity: np.ndarray | None) -> np.ndarray | None:
        """What is popular on the scale of the values: in their middle on average, where both are above 0."""
        if popularity is None:
            return None
        mean, middle = float(popularity.mean()), sum(self._bounds) / 2
        return popularity * (middle / mean) if mean > 0 and middle > 0 else popularity

    def predict(self, user_ids: Column, item_ids: Column) -> NDArray[np.float64]:
        """The rating, or other value, that each user is predicted to have for the item beside it.

        Parameters
        ----------
        user_ids, item_ids : array_like of shape (n,)
            External ids, taken in pairs.

        Returns
        -------
        ndarray of shape (n,), float64
            Within `grid`, or `value_range`: scores are cut off only here, at the end.

        Raises
        ------
        KeyError
            An id the model was not fitted on.
        """
        model = self._fitted()
        return np.clip(model.score(user_ids, item_ids), *model._bounds)


class RatingModel(ValueModel):
    """A model whose scores are ratings."""

    grid: Sequence[float]

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.grid[0], self.grid[-1]

    def evaluate(self, test: InteractionsLike, metrics: Sequence[str] = ("rmse", "mae")) -> dict[str, float]:
        """The errors of predicted test ratings, by `fastfedrec.evaluation.evaluate_ratings`.

        Parameters
        ----------
        test : Interactions, SciPy sparse matrix or array, or frame
            With ratings as values.
        metrics : sequence of {"rmse", "mae"}
            Which errors.

        Returns
        -------
        dict of str to float
            Each metric under its name, on the scale of the ratings.
        """
        return evaluate_ratings(self, test, metrics=metrics)

    def _check_grid(self, *, by_ends: bool = False) -> None:
        """Check the grid, of which the ends alone may count: where ratings are not reported as values of it."""
        most = _MAX_SCALE if by_ends else _MAX_GRID
        self.grid = tuple(map(float, check_grid("grid", self.grid, high=most)))
        if max(map(abs, self.grid)) > LARGEST_RATING:
            raise ValueError(f"grid must hold numbers from -1e100 to 1e100, got {self.grid}; use another scale")


def warn_off_grid(data: Interactions, grid: Sequence[float], stacklevel: int) -> None:
    """Warn of ratings that are not on the grid: a figure of raw data, for fits without a guarantee alone."""
    if n_off := int((~np.isin(_as_float32(data.values_or_ones()), _as_float32(grid))).sum()):
        warnings.warn(
            f"{n_off} of {data.n_interactions} ratings are not on the grid {list(grid)} and count as the nearest value "
            "on it; pass all values of the scale as grid=, such as numpy.linspace(low, high, 32)",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def warn_beyond_ends(data: Interactions, grid: Sequence[float], what: str, stacklevel: int) -> None:
    """Warn of ratings beyond the ends of the grid: a figure of raw data, for fits without a guarantee alone."""
    values, (low, high) = _as_float32(data.values_or_ones()), _as_float32([grid[0], grid[-1]])
    if n_beyond := np.count_nonzero((values < low) | (values > high)):
        warnings.warn(
            f"{n_beyond} of {data.n_interactions} ratings are not from {grid[0]:g} to {grid[-1]:g}, the ends of the "
            f"grid, and {what}; pass the lowest and the highest rating of the scale as grid=",
            UserWarning,
            stacklevel=stacklevel + 1,
        )


def _as_float32(numbers: Any) -> NDArray[np.float32]:
    """Ratings as the type that they may have been rounded to before."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float64).astype(np.float32)


class AdditiveModel(RatingModel):
    """Mean + user bias + item bias + product of factors."""

    _saved: ClassVar[tuple[str, ...]] = ("mean_", "user_biases_", "item_biases_", "user_factors_", "item_factors_")

    mean_: NDArray[np.float64]
    user_biases_: NDArray[np.float64]
    item_biases_: NDArray[np.float64]
    user_factors_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_users, n_items = self.interactions_.shape
        return rules_of(
            np.float64,
            mean_=(),
            user_biases_=(n_users,),
            item_biases_=(n_items,),
            user_factors_=(n_users, None),
            item_factors_=(n_items, None),
        )

    def _disagreement(self) -> str | None:
        users, items = self.user_factors_.shape[1], self.item_factors_.shape[1]
        return None if users == items else f"users have {users} factors, and items {items}"

    def _popularity(self) -> np.ndarray | None:
        if self.item_biases_.any():
            return self.mean_ + self.item_biases_
        popularity = popularity_of_factors(self.item_factors_)
        return None if popularity is None else self.mean_ + popularity

    def _unheard(self, rows: np.ndarray) -> np.ndarray:
        # Users' factors may come from their reports, so that there is something to score by without a row.
        return super()._unheard(rows) & (not self.item_biases_.any()) & ~self.user_factors_[rows].any(axis=1)

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.item_factors_.any():
            return super()._similar(columns, n)
        return similar_by_factors(self.item_factors_, columns, n)

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        products = np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items], dtype=np.float64)
        return self.mean_ + self.user_biases_[users] + self.item_biases_[items] + products

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        # Biases are two more factors, so that a block of scores is written once.
        ones = np.ones(len(users)), np.ones(len(self.item_factors_))
        left = np.column_stack([self.user_factors_[users], self.mean_ + self.user_biases_[users], ones[0]])
        right = np.column_stack([self.item_factors_, ones[1], self.item_biases_])
        with one_blas_thread():
            return left @ right.T


def check_ratings(interactions: InteractionsLike, *, is_private: bool = False, least_users: int = 0) -> Interactions:
    """Return interactions with ratings as values, or raise.

    A private fit asks for nothing, and takes each as a 1 where there are none: ratings that are all 1 are not stored,
    so that one user's other rating would decide whether there is a model.
    """
    data = check_interactions(interactions, may_be_empty=is_private, least_users=least_users)
    if data.values is None and not is_private:
        raise ValueError(
            "interactions must hold ratings as values, got none, or only 1; pass values= to Interactions.from_arrays"
        )
    return data


def solve_ratings(data: Interactions, item_factors: np.ndarray, regularization: float | np.ndarray) -> np.ndarray:
    """Each user's factors by least squares on the user's ratings, `regularization` for each; zeros without ratings.

    A matrix instead is added once, to what is solved for each user.
    """
    n_factors = item_factors.shape[1]
    if not item_factors.any():
        return np.zeros((data.n_users, n_factors))
    products = (item_factors[:, :, None] * item_factors[:, None, :]).reshape(len(item_factors), -1)
    factors = np.zeros((data.n_users, n_factors))
    step = max(1, _BLOCK_CELLS // n_factors**2)
    for start in range(0, data.n_users, step):
        block = data._user_range(start, min(start + step, data.n_users))
        rated = np.ones(block.n_interactions)
        systems = sum_rows(block, products, weights=rated).reshape(-1, n_factors, n_factors)
        diagonal = np.einsum("uff->uf", systems)
        if isinstance(regularization, np.ndarray):
            systems += regularization
            diagonal += _LEAST_RIDGE
        else:
            diagonal += np.maximum(regularization * block.interactions_per_user(), _LEAST_RIDGE)[:, None]
        with one_blas_thread():
            found = np.linalg.solve(systems, sum_rows(block, item_factors)[:, :, None])
        factors[start : start + step] = found[:, :, 0]
    return factors
