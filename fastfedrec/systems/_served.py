"""Released arrays of a fitted model with the rows of its users: scores, ranks, similar items, and explanations."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute import als, ranking
from fastfedrec.core.arrays import FloatArray
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.ids import id_at
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._candidates import Candidates
from fastfedrec.systems._from_items import explain_least_squares, popularity_of_factors, similar_by_factors
from fastfedrec.systems._saved import rules_of

_BLOCK_CELLS = 2**24  # scores in memory at a time in `rank`
_PAIR_CELLS = 2**22  # scores in memory at a time in `score_pairs`


@dataclass(frozen=True, eq=False, repr=False)
class Served(ABC):
    """The part of a fitted model that answers queries; fields have the names of the model's attributes."""

    #: Whether users without items are scored by popularity.
    needs_rows: ClassVar[bool] = True

    name: str  # of the model, for messages
    interactions_: Interactions  # the rows of the users

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return this part of a model."""
        return cls(type(model).__name__, **{field.name: getattr(model, field.name) for field in fields(cls)[1:]})

    @classmethod
    def arrays(cls) -> tuple[str, ...]:
        """Return the names of the model's fitted arrays, which a file holds."""
        names = [field.name for field in fields(cls) if field.name.endswith("_")]
        return tuple(name for name in names if name != "interactions_")

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        """Return the rules of the arrays in a model's file; an array without a rule is a vector of ids."""
        return {}

    def disagreement(self) -> str | None:
        """Return how arrays do not match each other, although each follows its rule, or None."""
        return None

    def popularity(self) -> np.ndarray | None:
        """Return a score of each item for users without items, from the released arrays, or None if it is unknown."""
        return None

    def lack_scores(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask of the rows that the model can only score by popularity."""
        indptr = self.interactions_.indptr
        return indptr[rows + 1] == indptr[rows] if self.needs_rows else np.zeros(len(rows), dtype=bool)

    @abstractmethod
    def score_block(self, users: np.ndarray) -> np.ndarray:
        """Return the scores of these rows for all items, float64."""

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Return the scores of (row, column) pairs, which do not depend on the other pairs of the call."""
        rows, row_numbers = np.unique(users, return_inverse=True)
        # Grouped by user, each user's row of scores is computed once.
        order = np.argsort(row_numbers, kind="stable")
        step = max(1, _PAIR_CELLS // self.interactions_.n_items)
        edges = np.searchsorted(row_numbers[order], np.arange(0, len(rows) + step, step))
        scores = np.empty(len(users), dtype=np.float64)
        for number, start in enumerate(range(0, len(rows), step)):
            pairs = order[edges[number] : edges[number + 1]]
            block = self.score_block(rows[start : start + step])
            scores[pairs] = block[row_numbers[pairs] - start, items[pairs]]
        return scores

    def best_items(
        self, rows: np.ndarray, n: int, seen: Any, columns: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the best items among `columns` (None: all) for some rows, and their scores."""
        scores = self.score_block(rows)
        return ranking.top_k(scores if columns is None else scores[:, columns], n, seen=seen)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns that are most similar to each of these, and the similarities."""
        raise TypeError(f"{self.name} has no factors or neighbours to compare items by; use a model with factors")

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        """Return the contribution of each item of one user to the score of a column."""
        raise TypeError(f"the scores of {self.name} are no sums over a user's items, so they cannot be explained")

    def rank(
        self, rows: np.ndarray, n: int, candidates: Candidates, filter_seen: bool, unknown: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions among the candidates, and the scores, of each row; some rows get popular items."""
        ranked = np.empty((len(rows), n), dtype=np.int64)
        scores = np.empty((len(rows), n), dtype=np.float64)
        missing = rows < 0
        popular = np.zeros(len(rows), dtype=bool) if unknown == "skip" else missing.copy()
        popular[~missing] = self.lack_scores(rows[~missing])
        ranked[missing], scores[missing] = np.arange(n), -np.inf
        if popular.any():
            self._rank_popular(rows, np.flatnonzero(popular), n, candidates, ranked, scores)
        usual = ~(missing | popular)
        positions, step = np.flatnonzero(usual), max(1, _BLOCK_CELLS // self.interactions_.n_items)
        is_whole = len(positions) == len(rows)
        for start in range(0, len(positions), step):
            users = positions[start : start + step]
            block = rows[users]
            hidden = candidates.hidden(self.interactions_, users, block if filter_seen else None)
            into = slice(start, start + step) if is_whole else users
            ranked[into], scores[into] = self.best_items(block, n, hidden, candidates.columns)
        return ranked, scores

    def _rank_popular(
        self,
        rows: np.ndarray,
        users: np.ndarray,
        n: int,
        candidates: Candidates,
        ranked: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """Rank the most popular items for the users at these positions, or raise if popularity is unknown."""
        popularity = self.popularity()
        if popularity is None:
            known = rows[users][rows[users] >= 0]
            reason = "unknown='popular' needs popularity"
            if len(known):
                reason = f"user {id_at(self.interactions_.user_ids, known[0])!r} has no items"
            raise ValueError(
                f"{reason}, and {self.name} did not release popularity; leave such users out, or take "
                "popularity from a DPPopularity"
            )
        among = popularity[None] if candidates.columns is None else popularity[None, candidates.columns]
        if candidates.is_for_all:
            ranked[users], scores[users] = ranking.top_k(among, n)
            return
        step = max(1, _BLOCK_CELLS // self.interactions_.n_items)
        for block in np.split(users, range(step, len(users), step)):
            hidden = candidates.hidden(self.interactions_, block, None)
            ranked[block], scores[block] = ranking.top_k(np.repeat(among, len(block), axis=0), n, seen=hidden)


@dataclass(frozen=True, eq=False, repr=False)
class PopularityScores(Served):
    """One score of each item, for every user."""

    needs_rows = False

    item_counts_: NDArray[np.float64]

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        return rules_of(np.float64, item_counts_=(model.interactions_.n_items,))

    def popularity(self) -> np.ndarray:
        return self.item_counts_

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.item_counts_[items]

    def score_block(self, users: np.ndarray) -> np.ndarray:
        return np.tile(self.item_counts_, (len(users), 1))


@dataclass(frozen=True, eq=False, repr=False)
class FactorScores(Served):
    """Inner products of stored factors of users and items."""

    user_factors_: FloatArray
    item_factors_: FloatArray

    def popularity(self) -> np.ndarray | None:
        return popularity_of_factors(self.item_factors_)

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items], dtype=np.float64)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        factors = self.user_factors_[users].astype(np.float64, copy=False)
        with one_blas_thread():
            return factors @ self.item_factors_.T.astype(np.float64, copy=False)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)


class RankedFactors(FactorScores):
    """Inner products of stored factors, which are ranked without an array of all scores."""

    def best_items(
        self, rows: np.ndarray, n: int, seen: Any, columns: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        items = self.item_factors_ if columns is None else self.item_factors_[columns]
        return ranking.recommend_factors(self.user_factors_[rows], items, n, seen=seen)


@dataclass(frozen=True, eq=False, repr=False)
class AdditiveScores(Served):
    """Mean + user bias + item bias + inner product of factors."""

    mean_: NDArray[np.float64]
    user_biases_: NDArray[np.float64]
    item_biases_: NDArray[np.float64]
    user_factors_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        n_users, n_items = model.interactions_.shape
        return rules_of(
            np.float64,
            mean_=(),
            user_biases_=(n_users,),
            item_biases_=(n_items,),
            user_factors_=(n_users, None),
            item_factors_=(n_items, None),
        )

    def disagreement(self) -> str | None:
        users, items = self.user_factors_.shape[1], self.item_factors_.shape[1]
        return None if users == items else f"users have {users} factors, and items {items}"

    def popularity(self) -> np.ndarray | None:
        if self.item_biases_.any():
            return self.mean_ + self.item_biases_
        popularity = popularity_of_factors(self.item_factors_)
        return None if popularity is None else self.mean_ + popularity

    def lack_scores(self, rows: np.ndarray) -> np.ndarray:
        # User factors may come from reports, and then they score items for a user without a row.
        return super().lack_scores(rows) & (not self.item_biases_.any()) & ~self.user_factors_[rows].any(axis=1)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.item_factors_.any():
            return super().similar(columns, n)
        return similar_by_factors(self.item_factors_, columns, n)

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        products = np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items], dtype=np.float64)
        return self.mean_ + self.user_biases_[users] + self.item_biases_[items] + products

    def score_block(self, users: np.ndarray) -> np.ndarray:
        # The biases act as two more factors, so that one product computes the whole block.
        ones = np.ones(len(users)), np.ones(len(self.item_factors_))
        user_side = np.column_stack([self.user_factors_[users], self.mean_ + self.user_biases_[users], ones[0]])
        item_side = np.column_stack([self.item_factors_, ones[1], self.item_biases_])
        with one_blas_thread():
            return user_side @ item_side.T


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquaresScores(Served):
    """Inner products of item factors with user factors that a device solves for from its user's row."""

    item_factors_: NDArray[np.float64]
    regularization: float
    confidence_weight: float

    def popularity(self) -> np.ndarray | None:
        return popularity_of_factors(self.item_factors_)

    def score_block(self, users: np.ndarray) -> np.ndarray:
        user_rows = self.interactions_._take_users(users)
        factors = als.solve_own_users(
            user_rows, self.item_factors_, regularization=self.regularization, confidence_weight=self.confidence_weight
        )
        with one_blas_thread():
            return factors @ self.item_factors_.T

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        return explain_least_squares(
            user_rows,
            self.item_factors_,
            column,
            regularization=self.regularization,
            confidence_weight=self.confidence_weight,
        )
