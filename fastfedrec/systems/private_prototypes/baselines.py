"""Baselines of private prototypes: a non-negative factorisation of all data, and one of each entity's data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger, Unprotected
from fastfedrec.compute.nmf import MAX_FACTORS, fit_nmf, solve_rows_nonnegative
from fastfedrec.core.arrays import Column
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread, threads_for_rows
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import similar_by_factors
from fastfedrec.systems._inputs import check_interactions
from fastfedrec.systems._parameters import range_of_values
from fastfedrec.systems._served import Served
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.private_prototypes.server import encode_labels
from fastfedrec.systems.rating_model import LARGEST_RATING, RatingModel

__all__ = ["CentralNMF", "IndividualNMF"]

Model = TypeVar("Model", bound=RatingModel)

_N_FACTORS = integer(20, low=1, high=MAX_FACTORS).doc("Number of factors, at least 1.")
_REGULARIZATION = real(5.0, low=0.0).doc("L2 penalty of user and item factors, at least 0.")
_N_EPOCHS = integer(20, low=1).doc("Number of epochs of alternating least squares.")
_VALUE_RANGE = range_of_values().doc("Range to which predictions are clipped.")


def _nmf_memory(self: Any, sizes: Sizes) -> Sequence[Arrays]:
    """Return the arrays of a fit of one entity."""
    n_users, n_items, n = sizes[:3]
    k = self.n_factors
    factors = {"user_factors_": Array.of("float64", n_users, k), "item_factors_": Array.of("float64", n_items, k)}
    trained = {
        "factors in training": Array.of("float64", n_users + n_items, k),
        "padded factors": Array.of("float64", max(n_users, n_items), -(-k // 16) * 16),
        "values, by user and by item": Array.of("float64", 2, n),
        "users by item": Array.of("int32", n),
    }
    return [{**factors, "interactions by user and by item": Array.of("int64", 5, n)}, {**factors, **trained}]


@transactional
def _fit(
    self: Model,
    interactions: InteractionsLike,
    entities: Column | None = None,
    key: Key | None = None,
    n_threads: int = 0,
    show_progress: bool = False,
    ledger: Ledger | None = None,
) -> Model:
    """Fit the factorisation of all data, or of each entity's.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Ratings or counts as values, or ones without values.
    entities : array_like of shape (n_users,) or None
        Entity of each row; None is one entity.
    key : Key or None
        Source of the first factors; None draws a key from entropy.
    show_progress : bool
        Without effect; all models accept it.
    """
    model: Any = self
    data, labels = _check_data(model, interactions, entities)
    model._factorize(data, labels, Fit.resolve(key, n_threads, show_progress, ledger, None))
    return self


@dataclass(frozen=True, eq=False, repr=False)
class _ModelScores(Served):
    """Inner products of users' factors with the item factors of their factorisations."""

    user_factors_: NDArray[np.float64]
    item_factors_: NDArray[np.float64]
    user_models_: NDArray[np.int64]

    @classmethod
    def rules(cls, model: Any) -> Mapping[str, ArrayRule]:
        n_users, n_items = model.interactions_.shape
        return {
            "user_factors_": ArrayRule(np.float64, (n_users, model.n_factors)),
            "item_factors_": ArrayRule(np.float64, (None, n_items, model.n_factors)),
            "user_models_": ArrayRule(np.int64, (n_users,), 0),
        }

    def disagreement(self) -> str | None:
        largest, n_models = int(self.user_models_.max(initial=-1)), len(self.item_factors_)
        return None if largest < n_models else f"a user belongs to model {largest} of {n_models}"

    def popularity(self) -> np.ndarray | None:
        # An unknown user belongs to none of several models.
        if len(self.item_factors_) > 1 or not self.user_factors_.any():
            return None
        return self.item_factors_[0] @ self.user_factors_.mean(axis=0)

    def lack_scores(self, rows: np.ndarray) -> np.ndarray:
        return ~self.user_factors_[rows].any(axis=1)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        if len(self.item_factors_) > 1:
            return super().similar(columns, n)
        return similar_by_factors(self.item_factors_[0], columns, n)

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return np.einsum("nf,nf->n", self.user_factors_[users], self.item_factors_[self.user_models_[users], items])

    def score_block(self, users: np.ndarray) -> np.ndarray:
        scores = np.empty((len(users), self.item_factors_.shape[1]))
        models = self.user_models_[users]
        with one_blas_thread():
            for model in np.unique(models):
                in_model = models == model
                scores[in_model] = self.user_factors_[users[in_model]] @ self.item_factors_[model].T
        return scores


@declares_parameters
class CentralNMF(RatingModel):
    """Non-negative matrix factorisation of all data in one place, the limit of federation without loss.

    **Guarantee.** None: a server sees all data, as the ledger states.

    Attributes
    ----------
    user_factors_ : ndarray of shape (n_users, n_factors), float64
        User factors.
    item_factors_ : ndarray of shape (n_models, n_items, n_factors), float64
        Item factors of each factorisation; there is one here.
    user_models_ : ndarray of shape (n_users,), int64
        Factorisation of each user.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.private_prototypes.baselines import CentralNMF
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> CentralNMF(2).fit(data, key=Key.from_seed(1)).predict([1, 3], [20, 10]).shape
    (2,)
    """

    _serves = _ModelScores
    serves_others, _instead = False, "fit it again with the others"

    n_factors: int = _N_FACTORS
    regularization: float = _REGULARIZATION
    n_epochs: int = _N_EPOCHS
    value_range: tuple[float, float] = _VALUE_RANGE

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.value_range

    fit = _fit
    _memory = _nmf_memory
    _is_private = False

    def _factorize(self, data: Interactions, labels: np.ndarray, fit: Fit) -> None:
        _factorize(self, data, np.zeros_like(labels), fit, "all data, to a server")


@declares_parameters
class IndividualNMF(RatingModel):
    """Non-negative matrix factorisation of each entity's data, the accuracy of an entity without messages.

    **Guarantee.** None: there are no messages, and the models stay with the entities, as the ledger states.

    Attributes
    ----------
    user_factors_ : ndarray of shape (n_users, n_factors), float64
        User factors.
    item_factors_ : ndarray of shape (n_entities, n_items, n_factors), float64
        Item factors of each entity's factorisation.
    user_models_ : ndarray of shape (n_users,), int64
        Factorisation of each user.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Examples
    --------
    >>> from fastfedrec import Interactions, Key
    >>> from fastfedrec.systems.private_prototypes.baselines import IndividualNMF
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 1])
    >>> IndividualNMF(2).fit(data, entities=["a", "a", "b"], key=Key.from_seed(1)).item_factors_.shape
    (2, 3, 2)
    """

    _serves = _ModelScores
    serves_others, _instead = False, "fit it again with the others"

    n_factors: int = _N_FACTORS
    regularization: float = _REGULARIZATION
    n_epochs: int = _N_EPOCHS
    value_range: tuple[float, float] = _VALUE_RANGE

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.value_range

    fit = _fit
    _memory = _nmf_memory
    _is_private = False

    def _factorize(self, data: Interactions, labels: np.ndarray, fit: Fit) -> None:
        _factorize(self, data, labels, fit, "each entity's data, within the entity")


def _check_data(model: Any, interactions: InteractionsLike, entities: Column | None) -> tuple[Interactions, np.ndarray]:
    """Return the data of a fit, and the number of each row's entity."""
    data = check_interactions(interactions)
    if data.values is not None and (lowest := float(data.values.min())) < 0:
        raise ValueError(
            f"{type(model).__name__} has no factor below 0: values of interactions must be at least 0, got "
            f"{lowest:g}; shift the scale, or use another model of ratings"
        )
    if data.values is not None and (largest := float(data.values.max())) > LARGEST_RATING:
        raise ValueError(f"values of interactions must be at most {LARGEST_RATING:g}, got {largest:g}; rescale them")
    return data, encode_labels("entities", entities, data.n_users)[1]


def _factorize(model: Any, data: Interactions, user_models: NDArray[np.int64], fit: Fit, seen: str) -> None:
    """Fit a factorisation to the rows of each of `user_models`, and note in the ledger who has `seen` the data."""
    model._check_memory(data, fit.n_threads)
    model.interactions_, model.user_models_ = data, user_models
    model.ledger_ = model._open_account(fit.ledger, data, simulation=fit.key.is_simulation)
    fit.ledger.record(Unprotected(seen))
    values = data._replace(values=data.values_or_ones(), timestamps=None)
    n_models = int(user_models.max()) + 1
    model.user_factors_ = np.zeros((data.n_users, model.n_factors))
    model.item_factors_ = np.zeros((n_models, data.n_items, model.n_factors))
    for number in range(n_models):
        rows = np.flatnonzero(user_models == number)
        part = values.select_users(rows)
        if not part.n_interactions:
            continue
        part_threads = threads_for_rows(len(rows), fit.n_threads)
        factorization = fit_nmf(
            part, model.n_factors, regularization=model.regularization, n_epochs=model.n_epochs, key=fit.key,
            n_threads=part_threads,
        )  # fmt: skip
        model.item_factors_[number] = factorization.item_factors
        model.user_factors_[rows] = solve_rows_nonnegative(
            part, factorization.item_factors, regularization=model.regularization, n_threads=part_threads
        )
        # A user without data gets the mean factors of the factorisation.
        empty = part.interactions_per_user() == 0
        model.user_factors_[rows[empty]] = model.user_factors_[rows[~empty]].mean(axis=0)
