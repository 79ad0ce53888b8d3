"""The private part of entities: their users' factors, refined item factors, and predictions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.nmf import solve_rows_nonnegative
from fastfedrec.core.threads import one_blas_thread, threads_for_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._from_items import popularity_of_factors, similar_by_factors
from fastfedrec.systems._served import Served
from fastfedrec.systems.rating_model import popular_values

_REFINING_EPOCHS = 5  # alternations of an entity on its own data


@dataclass(frozen=True, eq=False, repr=False)
class EntityScores(Served):
    """Inner products of users' factors with the item factors of their entities."""

    item_factors_: NDArray[np.float64]
    user_factors_: NDArray[np.float64]
    user_side_item_factors_: NDArray[np.float64]
    user_entities_: NDArray[np.int64]
    refine: bool
    _bounds: tuple[float, float]

    def popularity(self) -> np.ndarray | None:
        return popular_values(popularity_of_factors(self.item_factors_), self._bounds)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_by_factors(self.item_factors_, columns, n)

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        if not self.refine:
            return np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[items])
        scores = np.empty(len(users))
        for entity in np.unique(self.user_entities_[users]):
            in_entity = self.user_entities_[users] == entity
            item_factors = _factors_of(self, entity)
            user_factors = self.user_factors_[users[in_entity]]
            scores[in_entity] = np.einsum("nf,nf->n", user_factors, item_factors[items[in_entity]])
        return scores

    def score_block(self, users: np.ndarray) -> np.ndarray:
        scores = np.empty((len(users), len(self.item_factors_)))
        with one_blas_thread():
            if not self.refine:  # one product for all entities
                return np.matmul(self.user_factors_[users], self.item_factors_.T, out=scores)
            for entity in np.unique(self.user_entities_[users]):
                in_entity = self.user_entities_[users] == entity
                scores[in_entity] = self.user_factors_[users[in_entity]] @ _factors_of(self, entity).T
        return scores


def refine_entities(model: Any, n_threads: int) -> NDArray[np.float64]:
    """Return the item factors of a model's entities, none if they do not refine."""
    n_entities = len(model.entity_ids_) if model.refine else 0
    factors = np.zeros((n_entities, *model.item_factors_.shape))
    for entity in range(n_entities):
        shard = model.interactions_.select_users(np.flatnonzero(model.user_entities_ == entity))
        factors[entity] = _refine(model, shard, threads_for_rows(shard.n_users, n_threads))
    return factors


def solve_users(model: Any, n_threads: int) -> NDArray[np.float64]:
    """Return the users' factors, by nonnegative least squares within each entity."""
    data = model.interactions_
    factors = np.zeros((data.n_users, model.item_factors_.shape[1]))
    for entity in np.unique(model.user_entities_) if model.refine else [None]:
        rows = np.arange(data.n_users) if entity is None else np.flatnonzero(model.user_entities_ == entity)
        item_factors = model.item_factors_ if entity is None else _factors_of(model, entity)
        part = data.select_users(rows)
        if not part.n_interactions:  # no data, so the factors stay 0
            continue
        factors[rows] = solve_rows_nonnegative(
            _in_range(model, part), item_factors, regularization=model.regularization,
            n_threads=threads_for_rows(len(rows), n_threads),
        )  # fmt: skip
    return factors


def _factors_of(model: Any, entity: int) -> NDArray[np.float64]:
    """Return the item factors that an entity uses."""
    return model.user_side_item_factors_[entity] if model.refine and entity >= 0 else model.item_factors_


def _in_range(model: Any, shard: Interactions) -> Interactions:
    """Return values clipped as for the server, so that one user's value cannot make others' factors infinite."""
    return shard._replace(values=np.clip(shard.values_or_ones(), *model.value_range))


def _refine(model: Any, shard: Interactions, n_threads: int) -> NDArray[np.float64]:
    """Return an entity's item factors, refined on its data from the server's; unobserved items keep theirs."""
    if not shard.n_interactions:
        return model.item_factors_
    options: dict[str, Any] = {"regularization": model.regularization, "n_threads": n_threads}
    clipped = _in_range(model, shard)
    by_item = Interactions.from_scipy(clipped.to_scipy().T)
    by_item = by_item._replace(values=by_item.values_or_ones())
    is_observed = by_item.interactions_per_user() > 0
    factors = model.item_factors_
    # Alternating nonnegative least squares from the server's factors.
    for _ in range(_REFINING_EPOCHS):
        user_factors = solve_rows_nonnegative(clipped, factors, **options)
        new_factors = solve_rows_nonnegative(by_item, user_factors, start=factors, **options)
        factors = np.where(is_observed[:, None], new_factors, factors)
    return factors
