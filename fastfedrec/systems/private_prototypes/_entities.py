"""The private part of entities: their users' factors, refined item factors, and predictions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.nmf import solve_rows_nonnegative
from fastfedrec.core.threads import one_blas_thread, threads_for_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._from_items import popularity_of_factors, similar_by_factors
from fastfedrec.systems.rating_model import ValueModel

_REFINING_EPOCHS = 5  # alternations of an entity on its own data


class _EntityModels(ValueModel):
    """A model of each entity, based on item factors from a server."""

    refine: bool
    regularization: float
    value_range: tuple[float, float]
    prototypes: str

    item_factors_: NDArray[np.float64]
    user_factors_: NDArray[np.float64]
    user_side_item_factors_: NDArray[np.float64]
    user_entities_: NDArray[np.int64]
    entity_ids_: NDArray[Any]

    def _solve(self, n_threads: int) -> None:
        """Set the item factors of the entities, if they refine, and the user factors."""
        n_entities = len(self.entity_ids_) if self.refine else 0
        self.user_side_item_factors_ = np.zeros((n_entities, *self.item_factors_.shape))
        for entity in range(n_entities):
            shard = self.interactions_.select_users(np.flatnonzero(self.user_entities_ == entity))
            self.user_side_item_factors_[entity] = self._refine(shard, threads_for_rows(shard.n_users, n_threads))
        self.user_factors_ = self._solve_users(n_threads)

    def _factors_of(self, entity: int) -> np.ndarray:
        """Return the item factors that an entity uses."""
        return self.user_side_item_factors_[entity] if self.refine and entity >= 0 else self.item_factors_

    def _solve_users(self, n_threads: int) -> np.ndarray:
        """Return the users' factors, by nonnegative least squares within each entity."""
        data = self.interactions_
        factors = np.zeros((data.n_users, self.item_factors_.shape[1]))
        for entity in np.unique(self.user_entities_) if self.refine else [None]:
            rows = np.arange(data.n_users) if entity is None else np.flatnonzero(self.user_entities_ == entity)
            item_factors = self.item_factors_ if entity is None else self._factors_of(entity)
            part = data.select_users(rows)
            if not part.n_interactions:  # no data, so the factors stay 0
                continue
            factors[rows] = solve_rows_nonnegative(
                self._in_range(part), item_factors, regularization=self.regularization,
                n_threads=threads_for_rows(len(rows), n_threads),
            )  # fmt: skip
        return factors

    def _in_range(self, shard: Interactions) -> Interactions:
        """Return values clipped as for the server, so that one user's value cannot make others' factors infinite."""
        return shard._replace(values=np.clip(shard.values_or_ones(), *self.value_range))

    def _refine(self, shard: Interactions, n_threads: int) -> np.ndarray:
        """Return an entity's item factors, refined on its data from the server's; unobserved items keep theirs."""
        if not shard.n_interactions:
            return self.item_factors_
        options: dict[str, Any] = {"regularization": self.regularization, "n_threads": n_threads}
        clipped = self._in_range(shard)
        by_item = Interactions.from_scipy(clipped.to_scipy().T)
        by_item = by_item._replace(values=by_item.values_or_ones())
        is_observed = by_item.interactions_per_user() > 0
        factors = self.item_factors_
        # Alternating nonnegative least squares from the server's factors.
        for _ in range(_REFINING_EPOCHS):
            user_factors = solve_rows_nonnegative(clipped, factors, **options)
            new_factors = solve_rows_nonnegative(by_item, user_factors, start=factors, **options)
            factors = np.where(is_observed[:, None], new_factors, factors)
        return factors

    # ---- use ----------------------------------------------------------------------------------------------------

    @property
    def _bounds(self) -> tuple[float, float]:
        low, high = self.value_range
        return low if self.prototypes == "masked" else 0.0, high  # a mean with zeros may be below the range

    def _popularity(self) -> np.ndarray | None:
        return self._popular_values(popularity_of_factors(self.item_factors_))

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        if not self.refine:
            return np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items])
        scores = np.empty(len(users))
        for entity in np.unique(self.user_entities_[users]):
            in_entity = self.user_entities_[users] == entity
            item_factors = self._factors_of(entity)
            user_factors = self.user_factors_[users[in_entity]]
            scores[in_entity] = np.einsum("nf,nf->n", user_factors, item_factors[items[in_entity]])
        return scores

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        scores = np.empty((len(users), len(self.item_factors_)))
        with one_blas_thread():
            if not self.refine:  # one product for all entities
                return np.matmul(self.user_factors_[users], self.item_factors_.T, out=scores)
            for entity in np.unique(self.user_entities_[users]):
                in_entity = self.user_entities_[users] == entity
                scores[in_entity] = self.user_factors_[users[in_entity]] @ self._factors_of(entity).T
        return scores
