"""Models of a released matrix of item pairs: their fitted arrays, and the scores that a device computes from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute import ranking
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.parameters import choice, real
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import contributions_of_neighbors, similar_by_factors
from fastfedrec.systems._neighbors import made_once, score_neighbors
from fastfedrec.systems._pair_matrix import Decision, PairMatrix
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import Served

__all__ = ["PairScores", "ReleasedPairs", "note_decision", "pair_ridge", "pair_scoring"]

_N_NEIGHBORS = 100  # number of nearest items of "knn"
_MIN_SCALE = 1e-100  # smallest scale of an item in a file, since entries are divided by it
_BLOCK_CELLS = 2**23  # number of similarities in memory at the same time


@dataclass(frozen=True, eq=False, repr=False)
class PairScores(Served):
    """Scores that a device computes from a matrix of item pairs, as factors, and its user's row."""

    item_means_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]
    scoring_factors_: NDArray[np.float64]
    item_scales_: NDArray[np.float64]
    scoring: str

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        n_items = model.interactions_.n_items
        factors = dict.fromkeys(("item_factors_", "scoring_factors_"), (n_items, None))
        scales = ArrayRule(np.float64, (n_items,), low=_MIN_SCALE)
        return {**rules_of(np.float64, item_means_=(n_items,), **factors), "item_scales_": scales}

    def score_block(self, users: np.ndarray) -> np.ndarray:
        rows = self.interactions_._take_users(users)
        if self.scoring_factors_.shape[1] == 0:
            return np.tile(self.item_means_, (len(users), 1))
        lengths = rows.interactions_per_user()
        # A row is normalised to norm 1, and entries are divided by the items' scales.
        entries = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths) / self.item_scales_[rows.indices]
        if self.scoring == "knn":
            scores = score_neighbors(rows, *_neighbors_of(self.scoring_factors_))
        else:
            factors = self.scoring_factors_
            with one_blas_thread():
                scores = sum_rows(rows, factors, weights=entries) @ factors.T
            if self.scoring == "ease":
                # EASE's weights have no diagonal, so an item's entry does not contribute to its own score.
                squares = np.square(factors).sum(axis=1)
                scores[np.repeat(np.arange(len(users)), lengths), rows.indices] -= entries * squares[rows.indices]
                scores /= 1 - squares
            scores *= self.item_scales_
        scores[lengths == 0] = self.item_means_
        return scores

    def popularity(self) -> np.ndarray:
        return self.item_means_

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.item_factors_.any():
            raise ValueError(
                f"{self.name} released popularity only, which cannot compare items, since the noise would "
                "have covered the pairs of items; raise epsilon, or fit it on more users"
            )
        return similar_by_factors(self.item_factors_, columns, n)

    def contributions(self, user_rows: Interactions, column: int) -> np.ndarray:
        if not self.scoring_factors_.shape[1]:
            raise ValueError(
                "all users are recommended popular items, since the noise would have covered the pairs of items; raise "
                "epsilon, or fit the model on more users"
            )
        if self.scoring == "knn":
            return contributions_of_neighbors(user_rows, column, *_neighbors_of(self.scoring_factors_))
        factors, scales = self.scoring_factors_, self.item_scales_
        entries = scales[column] / (scales[user_rows.indices] * math.sqrt(user_rows.n_interactions))
        products = factors[user_rows.indices] @ factors[column]
        if self.scoring == "ease":
            products[user_rows.indices == column] = 0.0
            products /= 1 - np.square(factors[column]).sum()
        return entries * products


class ReleasedPairs(NamedTuple):
    """The fitted arrays of a model of item pairs, in the order of `PairScores`, and the decision behind them."""

    item_means: NDArray[np.float64]
    item_factors: NDArray[np.float64]
    scoring_factors: NDArray[np.float64]
    item_scales: NDArray[np.float64]
    decision: Decision | None = None

    @classmethod
    def popularity(cls, item_means: NDArray[np.float64], decision: Decision | None = None) -> Self:
        """Return a model of popularity, in which all users get the same items."""
        no_factors = np.zeros((len(item_means), 0))
        return cls(item_means, no_factors, no_factors, np.ones(len(item_means)), decision)

    @classmethod
    def personal(
        cls,
        item_means: NDArray[np.float64],
        pairs: PairMatrix,
        factors: np.ndarray,
        noise: float,
        decision: Decision,
        scoring: str,
    ) -> Self:
        """Return a model with the chosen candidate, for factors with noise of this standard deviation."""
        joined = pairs.join(factors, decision.chosen.personal_weight)
        if scoring != "knn":
            return cls(item_means, joined, *pairs.score(factors, decision.chosen, noise), decision)
        lengths = np.linalg.norm(joined, axis=1)[:, None]
        cosines = np.divide(joined, lengths, out=np.zeros_like(joined), where=lengths > 0)
        return cls(item_means, joined, cosines, np.ones(len(joined)), decision)


def pair_scoring() -> Any:
    """Declare the scores that devices compute."""
    return choice("ease", ("ease", "ridge", "knn"), argument="score").doc("""
        Model that devices compute from the released matrix: a linear model without a diagonal, one with a diagonal,
        or cosines of the 100 nearest items.""")


def pair_ridge() -> Any:
    """Declare the ridge of the scores."""
    return real("auto", above=0.0, also=["auto"]).doc("""
        Ridge added to the matrix's diagonal, in units of the standard deviation of an entry's noise times the root
        of the number of items.  "auto" chooses it by the releases (`decision_`).""")


def note_decision(name: str, ledger: Ledger, decision: Decision) -> None:
    """Note in the ledger that the choice of the model `name` depends on releases only."""
    outcome = "a personal model" if decision.is_personal else "popularity"
    ledger.note(
        f"{name} chose {outcome}. The choice, factors and scores are computed from noisy releases and public numbers "
        "alone, at no further cost.",
        "choice",
    )


@made_once
def _neighbors_of(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the items with the largest cosines to each item, without itself, and the cosines."""
    n_neighbors = min(_N_NEIGHBORS, len(factors) - 1)
    items = np.empty((len(factors), n_neighbors), dtype=np.int64)
    cosines = np.empty((len(factors), n_neighbors))
    step = max(1, _BLOCK_CELLS // len(factors))
    for start in range(0, len(factors), step):
        part = slice(start, min(start + step, len(factors)))
        with one_blas_thread():
            block = factors[part] @ factors.T
        block[np.arange(len(block)), np.arange(part.start, part.stop)] = -2.0  # below every cosine
        items[part], cosines[part] = ranking.top_k(block, n_neighbors)
    return items, np.maximum(cosines, 0.0)
