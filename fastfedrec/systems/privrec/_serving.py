"""Scores of a fitted network, and the networks that devices have fine-tuned."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.networks.client_updates import ClientUpdates
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.core.arrays import Column
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.features import Features, FeatureTable
from fastfedrec.data.interactions import Interactions
from fastfedrec.systems._from_items import similar_by_factors
from fastfedrec.systems._served import Served
from fastfedrec.systems.privrec.rounds import ClientData
from fastfedrec.systems.recommender import Recommender

TABLES = ("user", "item", "context")


@dataclass(frozen=True, eq=False, repr=False)
class _TwoTowerScores(Served):
    """Scores of a network by features of users and items."""

    needs_rows = False

    parameters_: NDArray[np.float32]
    features_: Features
    _network: TwoTower
    _personal: Callable[[np.ndarray], dict[str, Any]]

    def score_block(self, users: np.ndarray) -> np.ndarray:
        if self.features_.context.n_features:
            if self.lack_scores(users).all():
                return np.tile(self.popularity(), (len(users), 1))
            raise ValueError("this model scores items in a context; use score_items(user_ids, contexts=...)")
        return self._network.score(self.parameters_, users, **self._personal(users)).astype(np.float64)

    def popularity(self) -> np.ndarray:
        """Return the network's scores for a user without known features, in a context without known features."""
        has_contexts = self.features_.context.n_features > 0
        # Missing features have zero embeddings, so the scores are the same for all such users.
        features = replace(self.features_, user=_unknown(self.features_.user))
        if has_contexts:
            features = replace(features, context=_unknown(self.features_.context))
        network = TwoTower(features, n_factors=self._network.n_factors, hidden=self._network.hidden)
        return network.score(self.parameters_, [0], contexts=[0] if has_contexts else None)[0].astype(np.float64)

    def lack_scores(self, rows: np.ndarray) -> np.ndarray:
        if not self.features_.context.n_features:
            return super().lack_scores(rows)
        # Without a context a user without items gets the most popular items; other users need a context.
        indptr = self.interactions_.indptr
        return indptr[rows + 1] == indptr[rows]

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        # The id is the first of an item's features, and embeddings of items are last.
        table, width = self.features_.item, self._network.n_factors
        embeddings = self.parameters_[len(self.parameters_) - table.n_values * width :].reshape(-1, width)
        return similar_by_factors(embeddings[table.indices[table.indptr[: -1 : table.n_features]]], columns, n)


class _TwoTowerRecommender(Recommender):
    """Scores of a network for the users and items of `interactions_`; new users are known by their features only."""

    _serves = _TwoTowerScores

    parameters_: NDArray[np.float32]
    features_: Features
    learning_rates_: NDArray[np.float32] | None
    _network: TwoTower

    def score_items(self, user_ids: Column, contexts: Mapping[str, Any] | None = None) -> NDArray[np.float64]:
        """Score all items for each user, or for each user in a context.

        Parameters
        ----------
        user_ids : array_like of shape (n_queries,)
            External ids.
        contexts : mapping of str to array_like of shape (n_queries,), or None
            Features of the context, if the model has any.

        Returns
        -------
        ndarray of shape (n_queries, n_items), float64
            Logits, in the order of ``interactions_.item_ids``.
        """
        model = self._fitted()
        rows = model.interactions_.user_index(user_ids)
        if not model.features_.context.n_features:
            return model._served().score_block(rows)
        if contexts is None:
            raise ValueError(
                f"contexts must be given, with the columns {list(model.features_.context.names)}, since the model "
                "scores items in a context"
            )
        features = model.features_.with_contexts({name: contexts[name] for name in model.features_.context.names})
        network = TwoTower(features, n_factors=model._network.n_factors, hidden=model._network.hidden)
        scores = network.score(model.parameters_, rows, contexts=np.arange(len(rows)), **model._personal(rows))
        return scores.astype(np.float64)

    def _as_fitted(self, data: Interactions) -> Interactions:
        return data

    def _serving(self, data: Interactions) -> Self:
        model = super()._serving(data)
        # Contexts belong to queries and not to users.
        no_contexts = FeatureTable((), (), 0, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))
        without_context = replace(self.features_, context=no_contexts)
        model.features_ = replace(without_context.encode(data), context=self.features_.context)
        model._network = TwoTower(model.features_, n_factors=self._network.n_factors, hidden=self._network.hidden)
        return model

    def _personal(self, users: np.ndarray) -> dict[str, Any]:
        """Return the arguments for the users' own networks; none if all users share one."""
        return {}

    def _fitted_arrays(self, include_users: bool) -> dict[str, np.ndarray]:
        arrays = super()._fitted_arrays(include_users)
        for name in TABLES:
            table = getattr(self.features_, name)
            is_stored = name == "item" or (name == "user" and include_users)
            arrays[f"features.{name}.indptr"] = table.indptr if is_stored else table.indptr[:1]
            arrays[f"features.{name}.indices"] = table.indices if is_stored else table.indices[:0]
            for number, values in enumerate(table.vocabularies):
                arrays[f"features.{name}.{number}"] = values
        if self.learning_rates_ is not None:
            arrays["model.learning_rates_"] = self.learning_rates_
        return arrays


def _unknown(table: FeatureTable) -> FeatureTable:
    """Return a table with one entry without known features."""
    return replace(table, n_entries=1, indptr=np.zeros(table.n_features + 1, np.int64), indices=table.indices[:0])


class _Personalized(_TwoTowerRecommender):
    """The models on the devices of some users after `PrivRec.personalize`."""

    def __init__(self, parameters: np.ndarray, ledger: Ledger, data: ClientData, updates: ClientUpdates):
        self.interactions_ = data.visited
        self.ledger_ = ledger
        self.parameters_ = parameters
        self.features_ = data.network.features.with_contexts(None)
        self._network = data.network
        self._updates = updates

    def _personal(self, users: np.ndarray) -> dict[str, Any]:
        return {"updates": self._updates, "clients": users}

    def with_users(self, interactions: InteractionsLike) -> Self:
        raise TypeError("fine-tuned networks belong to their users; use personalize of the original model")

    def save(self, path: str | os.PathLike[str], *, include_users: bool = True) -> None:
        raise TypeError("fine-tuned networks stay on the users' devices; save the original model")

    def __repr__(self) -> str:
        return f"<networks of {self.interactions_.n_users:,} users, fine-tuned by PrivRec.personalize>"
