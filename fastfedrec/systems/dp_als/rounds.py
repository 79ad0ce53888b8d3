"""Rounds of private ALS for `model.DPALS`: item counts, power iterations, least squares.

Each round sums whole numbers.  One user contributes vectors of bounded norm, and the server adds Gaussian noise: see
docs/explanation/systems/dp_als/dp-als-privacy.md.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.dp_als import model as _kernel
from fastfedrec.accounting import RoundTraffic
from fastfedrec.compute import als
from fastfedrec.compute.row_sums import sum_rows
from fastfedrec.core.randomness import Key
from fastfedrec.core.signs import with_signs
from fastfedrec.core.threads import one_blas_thread, resolve_n_threads
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.pairs import sort_pairs
from fastfedrec.mechanisms.bounded_rows import limit_contributions
from fastfedrec.systems._noisy_sum import (
    BELOW_ONE,
    SQRT_2,
    Noise,
    NoisySum,
    StatedCost,
    squared_costs,
    total_multiplier,
)
from fastfedrec.systems.dp_als.side_features import SideFeatures
from fastfedrec.systems.dp_als.weights import FrequencyWeights
from fastfedrec.systems.factor_rounds import SCALE, UNIT, FactorState

__all__ = ["ALSRound", "CountRound", "LeastSquaresRound", "StartRound"]

_ONES = np.empty(0, dtype=np.int32)  # the kernel reads no weights as weights of 1


class ALSRound(NoisySum):
    """A round of DPALS, in which a user contributes to the sums of several items.

    `mus` are the costs of the kinds of sums; `max_items` is the largest number of items of a user, all with weight 1,
    unless there are `weights`.
    """

    _unit = UNIT
    _count: ClassVar[str] = "n_rounds"  # name of the parameter that divides the budget

    def __init__(
        self,
        mus: tuple[float, ...],
        max_items: int,
        n_items: int,
        n_factors: int,
        key: Key,
        weights: FrequencyWeights | None = None,
    ):
        self.max_items, self.n_items, self.n_factors, self.weights = max_items, n_items, n_factors, weights
        kinds = self._kinds()
        noises = {
            name: Noise.of(UNIT, n, mu, self._count) for mu, (name, (_, n)) in zip(mus, kinds.items(), strict=True)
        }
        distances = [noises[name].gaussian.total_variation_of(math.prod(shape)) for name, (shape, _) in kinds.items()]
        super().__init__(noises, key, sum(distances))

    @property
    def _n_rows(self) -> int:
        """Return the number of rows to which a user adds a vector of norm `UNIT`; normalised weights count as one."""
        return self.max_items if self.weights is None else 1

    def _contributions(
        self, state: FactorState, shard: Interactions, key: Key, n_threads: int
    ) -> tuple[Interactions, NDArray[np.int32] | None]:
        """Return the users' contributed items, and the weight of each in units of 1 / SCALE, or None for 1."""
        if self.weights is None:
            return select_items(state, shard, self.max_items, key, n_threads), None
        return shard, self.weights.of_users(shard, state.item_counts, SCALE)

    @property
    def _restoring(self) -> float:
        """Return the factor that gives `max_items` equally weighted items of a user the weights 1."""
        return 1.0 if self.weights is None else math.sqrt(self.max_items)

    @abstractmethod
    def _kinds(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """Return each kind's shape, and the number of its rows to which a user adds a vector of norm `UNIT`."""

    def _shapes(self, state):
        return {name: shape for name, (shape, _) in self._kinds().items()}

    def _purpose_of(self, name):
        return f"{self._purpose}.{name}"

    def _replace_sensitivity(self, squares: Mapping[str, float]) -> float:
        """Return a bound of two users' distance in bounds of one user; `squares` has mu^2 of each kind of sums."""
        return 2.0

    @property
    def round_cost(self) -> StatedCost:
        """Cost of this round as one release."""
        squares = squared_costs(self.noises)
        return StatedCost(total_multiplier(squares), self._replace_sensitivity(squares))

    def traffic(self, state: FactorState, n_clients: int) -> RoundTraffic:
        """Return the traffic: counts and factors down, and one int64 for each sum up."""
        return RoundTraffic(state.n_bytes, 8 * self.n_sums(state), n_clients)


class CountRound(ALSRound):
    """A round that counts a uniformly random part of each user's items."""

    _purpose = "dp_als.counts"
    _count = "max_items"

    def _kinds(self):
        return {"item_counts": ((self.n_items,), self.max_items)}

    def _replace_sensitivity(self, squares):
        return SQRT_2  # counts are not negative, so the inner product of two users is not either

    def _sums(self, state, shard, key, n_threads):
        contributed = draw_items(shard, self.max_items, key)
        return {"item_counts": np.bincount(contributed.indices, minlength=self.n_items) * UNIT}

    def _learn(self, state, sums, round_number):
        return replace(state, item_counts=np.maximum(sums["item_counts"] / UNIT, 0.0))


class StartRound(ALSRound):
    """One power iteration on the matrix of item pairs: V becomes a basis of X'X V."""

    _purpose = "dp_als.start"
    _count = "n_start_rounds"

    def _kinds(self):
        return {"item_projections": ((self.n_items, self.n_factors), self._n_rows)}

    def _sums(self, state, shard, key, n_threads):
        contributed, weights = self._contributions(state, shard, key, n_threads)
        rows = sum_rows(
            contributed, state.item_factors, weights=np.ones(contributed.n_interactions), n_threads=n_threads
        )
        return {"item_projections": sum_by_item(contributed, to_grid(rows), 0, n_threads, weights)[0]}

    def _learn(self, state, sums, round_number):
        with one_blas_thread():
            basis, _ = np.linalg.qr(sums["item_projections"].astype(np.float64))
        return replace(state, item_factors=with_signs(basis) * math.sqrt(self.n_items / self.n_factors))


class LeastSquaresRound(ALSRound):
    """A round of least squares: users solve for user factors, the server for item factors from noisy normal equations.

    `regularization` and `confidence_weight` are as in `fastfedrec.als.solve_users`, and the weight applies to items
    too.  `noise_regularization` is the ridge of items, in standard deviations of the noise on right-hand sides.
    """

    _purpose = "dp_als.least_squares"

    def __init__(
        self,
        mus: tuple[float, ...],
        max_items: int,
        n_items: int,
        n_factors: int,
        key: Key,
        weights: FrequencyWeights | None = None,
        *,
        regularization: float,
        confidence_weight: float,
        noise_regularization: float,
    ):
        super().__init__(mus, max_items, n_items, n_factors, key, weights)
        self.regularization, self.confidence_weight = regularization, confidence_weight
        self.side: SideFeatures | None = None  # set by the server before the first round, and never broadcast
        # The smaller eigenvalues of the users' Gram matrix are below the noise on the right-hand sides.
        stddev = self._restoring * float(self.noises["item_sums"].gaussian.stddev) / UNIT
        self._ridge = noise_regularization * (1 + confidence_weight) * stddev

    def _kinds(self):
        n_products = self.n_factors * (self.n_factors + 1) // 2
        return {
            "all_products": ((n_products,), 1),
            "item_products": ((self.n_items, n_products), self._n_rows),
            "item_sums": ((self.n_items, self.n_factors), self._n_rows),
        }

    def _replace_sensitivity(self, squares):
        # Let t be the inner product of two users' factors over S^2.  The squared distance is 2 - t^2 for products and
        # 2 - 2 t for item sums, in squared bounds, so the largest total has a t from -1 to 0.
        if self.weights is not None:  # weighted products are truncated, and the proof needs exact products
            return 2.0
        products, sums = squares["all_products"] + squares["item_products"], squares["item_sums"]
        excess = sums**2 / products if sums <= products else 2 * sums - products
        return math.sqrt(2 + excess / (products + sums)) / BELOW_ONE

    def _sums(self, state, shard, key, n_threads):
        factors = to_grid(
            als.solve_own_users(
                shard,
                state.item_factors,
                regularization=self.regularization,
                confidence_weight=self.confidence_weight,
                n_threads=n_threads,
            )
        )
        contributed, weights = self._contributions(state, shard, key, n_threads)
        n_products = self.n_factors * (self.n_factors + 1) // 2
        sums, products = sum_by_item(contributed, factors, n_products, n_threads, weights)
        return {
            "all_products": _sum_products(factors, n_products),
            "item_products": products,
            "item_sums": sums,
        }

    def _learn(self, state, sums, round_number):
        user_gram = self._gram(sums["all_products"][None])[0]
        item_grams = self._restoring * self._gram(sums["item_products"])
        vectors = self._restoring * (sums["item_sums"] / UNIT)
        with one_blas_thread():
            matrices = self.confidence_weight * item_grams + user_gram + self._ridge * np.eye(self.n_factors)
            vectors = (1 + self.confidence_weight) * vectors
            factors = np.linalg.solve(matrices, vectors[:, :, None])[:, :, 0]
            if self.side is not None:
                factors = self.side.factorize(factors, matrices, vectors, self._ridge)
        return replace(state, item_factors=factors)

    def _gram(self, products: np.ndarray) -> np.ndarray:
        """Return symmetric matrices from their upper triangles, with negative eigenvalues set to 0."""
        rows, columns = np.triu_indices(self.n_factors)
        matrices = np.zeros((len(products), self.n_factors, self.n_factors))
        matrices[:, rows, columns] = matrices[:, columns, rows] = products / UNIT
        with one_blas_thread():
            values, vectors = np.linalg.eigh(matrices)
            return (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)


def to_grid(factors: np.ndarray) -> NDArray[np.int64]:
    """Return rows as whole numbers of norm at most `SCALE`; rows of norm above 1 are scaled down.

    A row with squares that overflow becomes zeros, since a NaN would become the smallest integer.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # Truncation never raises a norm, and 2^-40 covers the rounding of the scaling.
        norms = np.sqrt(np.square(factors).sum(axis=1, keepdims=True))
        scaled = factors * (SCALE * (1 - 2.0**-40) / np.maximum(norms, 1.0))
    return np.trunc(np.nan_to_num(scaled, nan=0.0)).astype(np.int64)


def draw_items(shard: Interactions, max_items: int, key: Key) -> Interactions:
    """Return a uniformly random part of each user's items, the same in every round."""
    return limit_contributions(shard, max_items, value_range=(0.0, 1.0), key=key)


def select_items(state: FactorState, shard: Interactions, max_items: int, key: Key, n_threads: int = 0) -> Interactions:
    """Return each user's rarest items by the noisy counts, or a random part if there are no counts."""
    if not state.item_counts.any():
        return draw_items(shard, max_items, key)
    ranks = np.empty(shard.n_items, dtype=np.int32)
    ranks[np.argsort(state.item_counts, kind="stable")] = np.arange(shard.n_items)
    is_selected = np.empty(shard.n_interactions, dtype=np.bool_)
    marks = is_selected.view(np.uint8)
    if not _kernel.mark_lowest(shard.indptr, shard.indices, ranks, marks, max_items, resolve_n_threads(n_threads)):
        raise MemoryError("no memory for a thread's scratch space; use fewer threads")
    return shard.keep_interactions(is_selected)


def sum_by_item(
    contributed: Interactions, rows: np.ndarray, n_products: int, n_threads: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each item SCALE times the sum of its users' rows, and the sum of `n_products` products of each row.

    Each user's part is multiplied by its weight / SCALE, and weighted products are truncated; both sums are int64.
    """
    users = np.repeat(np.arange(contributed.n_users, dtype=np.int32), contributed.interactions_per_user())
    indptr, order = sort_pairs(
        contributed.indices, users, contributed.n_items, contributed.n_users, n_threads=n_threads
    )
    sums, products = (np.empty((contributed.n_items, n), dtype=np.int64) for n in (rows.shape[1], n_products))
    by_item = users if order is None else users[order]
    if weights is None:
        _kernel.sum_by_item(indptr, by_item, _ONES, rows, sums, products, 1, resolve_n_threads(n_threads))
        return sums * SCALE, products
    weights = weights if order is None else weights[order]
    _kernel.sum_by_item(indptr, by_item, weights, rows, sums, products, SCALE, resolve_n_threads(n_threads))
    return sums, products


def _sum_products(rows: np.ndarray, n_products: int) -> np.ndarray:
    """Return the sums of products over all users' rows."""
    all_rows = np.arange(len(rows), dtype=np.int32)
    sums, products = (np.empty((1, n), dtype=np.int64) for n in (rows.shape[1], n_products))
    _kernel.sum_by_item(np.array([0, len(rows)]), all_rows, _ONES, rows, sums, products, 1, 1)
    return products[0]
