"""What models of a released matrix of item pairs have in common: factors, the device's scores, new users, files."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute import ranking
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.check import check_choice, check_flag, check_real
from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._featured import FeaturedModel
from fastfedrec.systems._from_items import contributions_of_neighbors, similar_by_factors
from fastfedrec.systems._neighbors import score_neighbors
from fastfedrec.systems._saved import SavedModel, rules_of

__all__ = ["LEAST_MEAN", "LEAST_REACH", "LEAST_SIGNAL", "GramModel", "own_shares"]

LEAST_SIGNAL = 30.0  # of the gate
# Of the gate that looks at the mean.  On generated data of two kinds, rows of 6 to 100, 400 to 3,000 items and 2,500
# to 50,000 users an open one had up to .14 less HR@10 than popularity below 80, from .04 less to .02 more at 80, and
# from 100 on from .02 less to .23 more.
LEAST_REACH = 100.0
LEAST_MEAN = 0.01  # of the most popular item's share: no item is rarer
_N_NEIGHBORS = 100
_LEAST_ALONE = 0.1  # of an item's own square: what noise leaves of it may be any number
_LEAST_SCALE = 1e-100  # of a file's items, by which entries are divided
_BLOCK_CELLS = 2**23  # similarities held at once


class GramModel(FeaturedModel):
    """A matrix of item pairs as factors L, and what a device computes from them and its own row."""

    _communicates = True
    _saved: ClassVar[tuple[str, ...]] = ("item_means_", "item_factors_", "scoring_factors_", "item_scales_")
    _attributes: ClassVar[dict[str, str]] = {"score": "scoring"}
    _pairs_take: ClassVar[str] = "two items"

    scoring: str
    gate: bool
    ridge: float
    item_means_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]
    scoring_factors_: NDArray[np.float64]
    item_scales_: NDArray[np.float64]
    signal_: float

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self.scoring = check_choice("score", self.scoring, ("ease", "ridge", "knn"))
        self.gate = check_flag("gate", self.gate)
        self.ridge = check_real("ridge", self.ridge, low=0.0, exclusive=True)

    def _least_signal(self, n_items: int) -> float:
        """Of an open gate."""
        return LEAST_SIGNAL

    def _note_what_follows(self, is_open: bool) -> None:
        """Say in the ledger what else is made of the release, or why there is nothing to make."""
        name = type(self).__name__
        if is_open:
            self.ledger_.note(
                f"{name}: the spectrum, the factors and the scores are computed from the noisy release and public "
                "numbers alone, which costs nothing more"
            )
            return
        least = self._least_signal(self.interactions_.n_items)
        why = f"pairs take {self._pairs_take}"
        if self.signal_ < least:
            why = f"the noise would cover the pairs of items (signal {self.signal_:.3g}, {least:g} needed)"
        self.ledger_.note(f"{name}: {why}, so all of epsilon went to popularity, and everybody gets the same items")

    def _release_popularity(self) -> None:
        """Nothing but `item_means_`, so that everybody is offered the same."""
        n_items = len(self.item_means_)
        self.item_factors_ = self.scoring_factors_ = np.zeros((n_items, 0))
        self.item_scales_ = np.ones(n_items)

    def _prepare_scores(self, own_squares: np.ndarray, noise: float) -> None:
        """What devices score with, from the factors L.

        `own_squares` are the diagonal of the users' matrix of pairs, which L L' has only what items share of; `noise`
        is the standard deviation of an entry.
        """
        factors = self.item_factors_
        shared = np.square(factors).sum(axis=1)
        if self.scoring == "knn":
            lengths = np.sqrt(shared)[:, None]
            self.scoring_factors_ = np.divide(factors, lengths, out=np.zeros_like(factors), where=lengths > 0)
            self.item_scales_ = np.ones(len(factors))
            return
        alone = np.maximum(own_squares - shared, _LEAST_ALONE * own_squares)
        ridges = alone + self.ridge * noise * math.sqrt(len(factors))
        self.scoring_factors_, self.item_scales_ = inverse_factors(factors, ridges), np.sqrt(ridges)

    # ---- the device ---------------------------------------------------------------------------------------------

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        own = self.interactions_._take_users(users)
        if self.scoring_factors_.shape[1] == 0:
            return np.tile(self.item_means_, (len(users), 1))
        lengths = own.interactions_per_user()
        entries = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths) / self.item_scales_[own.indices]
        if self.scoring == "knn":
            scores = score_neighbors(own, *self._neighbors())
        else:
            factors = self.scoring_factors_
            with one_blas_thread():
                scores = sum_rows(own, factors, weights=entries) @ factors.T
            if self.scoring == "ease":
                # An item does not speak for itself: the weights have no diagonal.
                itself = np.square(factors).sum(axis=1)
                scores[np.repeat(np.arange(len(users)), lengths), own.indices] -= entries * itself[own.indices]
                scores /= 1 - itself
            scores *= self.item_scales_
        scores[lengths == 0] = self.item_means_
        return scores

    def _popularity(self) -> np.ndarray:
        return self.item_means_

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if not self.item_factors_.any():
            raise ValueError(
                f"{type(self).__name__} released nothing that items could be compared by: the noise would have covered "
                "the pairs of items; raise epsilon, or fit it on more users"
            )
        return similar_by_factors(self.item_factors_, columns, n)

    def _contributions(self, own: Interactions, column: int) -> np.ndarray:
        if not self.scoring_factors_.shape[1]:
            raise ValueError("the noise would have covered the pairs of items, so everybody is offered what is popular")
        if self.scoring == "knn":
            return contributions_of_neighbors(own, column, *self._neighbors())
        factors, scales = self.scoring_factors_, self.item_scales_
        entries = scales[column] / (scales[own.indices] * math.sqrt(own.n_interactions))
        products = factors[own.indices] @ factors[column]
        if self.scoring == "ease":
            products[own.indices == column] = 0.0
            products /= 1 - np.square(factors[column]).sum()
        return entries * products

    def _neighbors(self) -> tuple[np.ndarray, np.ndarray]:
        """Items with the largest cosines to each, without itself; found once for a fitted matrix."""
        found = getattr(self, "_found_neighbors", None)
        if found is None or found[0] is not self.scoring_factors_:
            factors = self.scoring_factors_
            n_kept = min(_N_NEIGHBORS, len(factors) - 1)
            items, cosines = np.empty((len(factors), n_kept), dtype=np.int64), np.empty((len(factors), n_kept))
            step = max(1, _BLOCK_CELLS // len(factors))
            for start in range(0, len(factors), step):
                part = slice(start, min(start + step, len(factors)))
                with one_blas_thread():
                    block = factors[part] @ factors.T
                block[np.arange(len(block)), np.arange(part.start, part.stop)] = -2.0  # below every cosine
                items[part], cosines[part] = ranking.top_k(block, n_kept)
            found = self._found_neighbors = self.scoring_factors_, items, np.maximum(cosines, 0.0)
        return found[1], found[2]

    # ---- state --------------------------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return super()._header() | {"signal": self.signal_}

    def _read_header(self, saved: SavedModel) -> None:
        super()._read_header(saved)
        self.signal_ = saved.real("signal", low=0.0)

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        n_items = self.interactions_.n_items
        factors = dict.fromkeys(("item_factors_", "scoring_factors_"), (n_items, None))
        scales = ArrayRule(np.float64, (n_items,), low=_LEAST_SCALE)
        return {**rules_of(np.float64, item_means_=(n_items,), **factors), "item_scales_": scales}


def own_shares(popularity: np.ndarray) -> NDArray[np.float64]:
    """Each item's share of all items that users have, by a noisy popularity; no item is without.

    Parameters
    ----------
    popularity : ndarray of shape (n_items,), float64
        In any unit.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Above 0, together 1.
    """
    floored = np.maximum(popularity, LEAST_MEAN * max(float(popularity.max()), 0.0))
    total = floored.sum()
    return floored / total if total > 0 else np.full(len(popularity), 1 / len(popularity))


def inverse_factors(factors: np.ndarray, ridges: np.ndarray) -> NDArray[np.float64]:
    """Factors F of the inverse of L L' + D, D diagonal, which is D^-1/2 (I - F F') D^-1/2.

    EASE's weights, minus the inverse's columns over their diagonal, are then sqrt(d_j / d_i) F_i'F_j / (1 - |F_j|^2)
    from item i to item j, and those of ridge regression, which keeps a diagonal, sqrt(d_j / d_i) F_i'F_j.

    Parameters
    ----------
    factors : ndarray of shape (n_items, rank), float64
        L.
    ridges : ndarray of shape (n_items,), float64
        D, above 0.

    Returns
    -------
    ndarray of shape (n_items, rank), float64
        F; the squares of a row add up to less than 1.
    """
    if factors.shape[1] == 0:
        return factors
    with one_blas_thread():
        scaled = factors / np.sqrt(ridges)[:, None]
        inner = scaled.T @ scaled
        inner.flat[:: len(inner) + 1] += 1.0
        # By Woodbury's identity F F' = S (I + S'S)^-1 S' with S = D^-1/2 L.
        values, turn = np.linalg.eigh(inner)
        return scaled @ (turn / np.sqrt(np.maximum(values, 1.0)))  # below it by rounding alone
