"""Reference baselines for ratings: means, biased matrix factorisation, and item neighbours."""

import os
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.sgd import MAX_FACTORS
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.fit import Fit
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._checkpoint import open_checkpoint
from fastfedrec.systems._neighbors import (
    FEWER_NEIGHBORS,
    RatingNeighborScores,
    blocks_of_rows,
    expected_pairs,
    neighbor_arrays,
    neighbor_disagreement,
    neighbor_rules,
    neighbors_memory,
    select_neighbors,
)
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._served import AdditiveScores
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.rating_model import (
    RatingModel,
    check_ratings,
    rating_grid,
    warn_beyond_ends,
)
from fastfedrec.systems.rating_svd import _collection
from fastfedrec.systems.rating_svd._biases import fit_biases, global_mean, item_means, user_means
from fastfedrec.systems.rating_svd._collection import collect_ratings, fit_mean
from fastfedrec.systems.rating_svd.laplace_rr_svd import BIAS_PRIOR_RULE, COUNT_AS_NEAREST, LaplaceRRSVD
from fastfedrec.systems.rating_svd.rounds import reports_memory

__all__ = ["BiasedMF", "GlobalMean", "ItemMean", "RatingItemKNN", "UserMean"]

_BLOCK_PAIRS = 2**22  # pairs of items with products that are computed together


_REFIT = "fit it again with the others"
_EPSILON = real(None, above=0.0, also=[None]).doc("""
    Epsilon per rating, in nats, above 0: each is reported through `BayesKary`.  None takes the exact ratings.""")
_GRID = rating_grid(by_ends=None).doc("""
    Possible ratings, increasing.  Without `epsilon` only the ends matter, and other ratings keep their values.""")
_GRID_OF_ENDS = rating_grid(by_ends=True).doc("""
    Possible ratings, increasing; only the ends matter.  Ratings beyond them count as the nearest end.""")


@declares_parameters
class GlobalMean(RatingModel):
    """The mean of all ratings, for every user and item.

    **Guarantee** (`epsilon` given).  One rating's value is `epsilon`-differentially private in the local model
    ("replace" one rating); the set of rated items is not hidden, as the ledger states.  Without `epsilon`: none.

    Attributes
    ----------
    mean_ : ndarray of shape (), float64
        Mean rating.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.rating_svd.baselines import GlobalMean
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 2])
    >>> GlobalMean().fit(data).predict([1, 3], [20, 10])
    array([3.5, 3.5])
    """

    _serves = AdditiveScores
    serves_others, _instead = False, _REFIT

    epsilon: float | None = _EPSILON
    grid: Sequence[float] = _GRID

    def _check_parameters(self) -> None:
        self._check_grid(by_ends=self.epsilon is None)

    fit = _collection.fit

    _memory = _collection.mean_memory

    def _fit(self, interactions: InteractionsLike, fit: Fit) -> None:
        fit_mean(self, interactions, fit, global_mean)


@declares_parameters
class UserMean(RatingModel):
    """Each user's mean rating, shrunk towards the mean of all ratings according to the noise.

    **Guarantee** (`epsilon` given).  One rating's value is `epsilon`-differentially private in the local model
    ("replace" one rating); the set of rated items is not hidden, as the ledger states.  Without `epsilon`: none.

    Attributes
    ----------
    mean_, user_biases_ : ndarray of shape () and (n_users,), float64
        Mean rating, and each user's deviation from it.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.rating_svd.baselines import UserMean
    >>> data = Interactions.from_arrays([1, 1, 2, 2], [10, 30, 10, 20], [5, 5, 2, 2])
    >>> UserMean().fit(data).predict([1, 2], [20, 30])
    array([5., 2.])
    """

    _serves = AdditiveScores
    serves_others, _instead = False, _REFIT

    epsilon: float | None = _EPSILON
    grid: Sequence[float] = _GRID

    def _check_parameters(self) -> None:
        self._check_grid(by_ends=self.epsilon is None)

    fit = _collection.fit

    _memory = _collection.mean_memory

    def _fit(self, interactions: InteractionsLike, fit: Fit) -> None:
        fit_mean(self, interactions, fit, user_means)


@declares_parameters
class ItemMean(RatingModel):
    """Each item's mean rating, shrunk towards the mean of all ratings according to the noise.

    **Guarantee** (`epsilon` given).  One rating's value is `epsilon`-differentially private in the local model
    ("replace" one rating); the set of rated items is not hidden, as the ledger states.  Without `epsilon`: none.

    Attributes
    ----------
    mean_, item_biases_ : ndarray of shape () and (n_items,), float64
        Mean rating, and each item's deviation from it.
    ledger_ : fastfedrec.accounting.Ledger
        Privacy cost of the fit for each user.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.rating_svd.baselines import ItemMean
    >>> data = Interactions.from_arrays([1, 2, 1, 2], [10, 10, 20, 20], [5, 5, 2, 2])
    >>> ItemMean().fit(data).predict([1, 2], [10, 20])
    array([5., 2.])
    """

    _serves = AdditiveScores
    serves_others, _instead = False, _REFIT

    epsilon: float | None = _EPSILON
    grid: Sequence[float] = _GRID

    def _check_parameters(self) -> None:
        self._check_grid(by_ends=self.epsilon is None)

    fit = _collection.fit

    _memory = _collection.mean_memory

    def _fit(self, interactions: InteractionsLike, fit: Fit) -> None:
        fit_mean(self, interactions, fit, item_means)


@declares_parameters
class BiasedMF(RatingModel):
    """Biased matrix factorisation of exact ratings: `LaplaceRRSVD` without its privacy.

    **Guarantee.** None, as the ledger states.

    Notes
    -----
    A rating is the mean, a user bias, an item bias, and the inner product of their factors [1]_.  The fit solves for
    the biases, and trains the factors on the residuals.

    References
    ----------
    .. [1] Koren, Bell, Volinsky, "Matrix factorization techniques for recommender systems", Computer 42(8), 2009.

    Examples
    --------
    >>> from fastfedrec import BiasedMF, Key, datasets
    >>> data = datasets.generate_implicit(400, 60, key=Key.from_seed(1), ratings=True)
    >>> model = BiasedMF(n_factors=8, n_epochs=10, learning_rate=0.02).fit(data, key=Key.from_seed(2))
    >>> model.item_factors_.shape
    (60, 8)
    >>> model.n_epochs_ <= 10
    True
    """

    _communicates = True
    _serves = AdditiveScores
    _saved: ClassVar[tuple[str, ...]] = LaplaceRRSVD._saved
    _saved_fields = LaplaceRRSVD._saved_fields

    grid: Sequence[float] = _GRID_OF_ENDS
    n_factors: int = integer(20, low=0, high=MAX_FACTORS).doc("""
        Number of factors in addition to the biases, at least 0.""")
    n_epochs: int | str = integer("auto", low=0, also=["auto"]).doc("""
        Largest number of passes over the ratings.  A held-out tenth chooses the number, and whether there are
        factors (`n_epochs_`); the final training uses all ratings.  "auto" is 60.""")
    learning_rate: float | str = real("auto", above=0.0, also=["auto"]).doc("""
        Learning rate in the first epoch of stochastic gradient descent, for residuals of variance 1; "auto" is .04.""")
    regularization: float | str = real("auto", low=0.0, also=["auto"]).doc("""
        L2 penalty of the factors for each rating; "auto" is .13.  Biases are shrunk by the ratings' variances
        instead.""")

    @property
    def _trainer(self) -> LaplaceRRSVD:
        """Model without privacy that collects the exact ratings and trains on them."""
        return LaplaceRRSVD(None, **self.get_params())

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
        *,
        engine: Engine | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Collect the exact ratings, and train on them.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values; every stored one counts, also zeros.

        Warns
        -----
        UserWarning
            Ratings are beyond the ends of the grid.
        RuntimeWarning
            Training diverged; the model has the last finite epoch, and all predictions are finite.
        """
        data = check_ratings(interactions, min_users=1)
        stored = open_checkpoint(self, checkpoint, data, engine)
        fit = Fit.resolve(key, n_threads, show_progress, ledger, engine, stored=stored)
        warn_beyond_ends(data, self.grid, COUNT_AS_NEAREST)
        self.interactions_, self.ledger_, self.communication_ = data, *fit.begin(self, data)
        trainer = self._trainer
        trainer._train(trainer._collect(data, fit), fit.n_threads)
        self.mean_, self.bias_prior_, self.n_epochs_ = trainer.mean_, trainer.bias_prior_, trainer.n_epochs_
        self.user_biases_, self.item_biases_ = trainer.user_biases_, trainer.item_biases_
        self.user_factors_, self.item_factors_ = trainer.user_factors_, trainer.item_factors_
        return self

    _is_private = False

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        return self._trainer._memory(sizes)

    def _serving(self, data: Interactions) -> Self:
        return self._trainer._serve(super()._serving(data))

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        return {**super()._saved_rules(), **BIAS_PRIOR_RULE}


@declares_parameters
class RatingItemKNN(RatingModel):
    """Item neighbours: biases, plus the user's deviations for the most similar items.

    **Guarantee.** None: the exact ratings are used, as the ledger states.

    Attributes
    ----------
    mean_, user_biases_, item_biases_ : ndarray of shape (), (n_users,) and (n_items,), float64
        Mean and biases that centre the ratings.
    neighbor_items_ : ndarray of shape (n_items, n_kept), int32
        The most similar other items, best first; `n_kept` is `n_neighbors`, or the largest number of similar items that
        one item has.
    neighbor_similarities_ : ndarray of shape (n_items, n_kept), float64
        Falling similarities, at least 0.
    user_residuals_ : ndarray of shape (n_ratings,), float64
        The users' centred ratings, in the order of `interactions_`.
    ledger_ : fastfedrec.accounting.Ledger
        Ledger with one unprotected release.

    Notes
    -----
    Similarity is the cosine of two items' centred ratings over their common users.  A prediction is the biases plus the
    weighted mean of the user's centred ratings of the neighbours and of a 0 with weight 0.5.

    References
    ----------
    .. [1] Koren, "Factor in the neighbors: scalable and accurate collaborative filtering", ACM TKDD 4(1), 2010.

    Examples
    --------
    >>> from fastfedrec import Interactions
    >>> from fastfedrec.systems.rating_svd.baselines import RatingItemKNN
    >>> data = Interactions.from_arrays([1, 1, 2, 3], [10, 30, 10, 20], [5, 3, 4, 2])
    >>> RatingItemKNN().fit(data).predict([1, 3], [20, 10]).shape
    (2,)
    """

    _serves = RatingNeighborScores
    _needs_less = FEWER_NEIGHBORS
    _is_private = False
    serves_others, _instead = False, _REFIT

    n_neighbors: int = integer(200, low=1).doc("Number of neighbours stored for each item, at least 1.")
    shrinkage: float = real(100.0, low=0.0).doc("""
        Number of users, at least 0; a similarity from n common users is multiplied by n / (n + shrinkage).""")
    grid: Sequence[float] = _GRID_OF_ENDS

    fit = _collection.fit

    def _fit(self, interactions: InteractionsLike, fit: Fit) -> None:
        users, items, values, _ = collect_ratings(self, interactions, None, fit)
        data = self.interactions_
        biases = fit_biases(users, items, values, data.n_users, data.n_items, fit.n_threads)
        self.mean_: NDArray[np.float64] = np.array(biases.mean)
        self.user_biases_, self.item_biases_ = biases.users, biases.items
        self.user_residuals_ = values - biases.mean - biases.users[users] - biases.items[items]
        residuals, ones, squares = (self._by_user(self.user_residuals_**power).tocsc() for power in (1, 0, 2))
        work = ones.T @ np.diff(data.indptr).astype(np.float64)  # number of pairs that each item forms
        parts = blocks_of_rows(work, _BLOCK_PAIRS)
        neighbors = []
        for rows in parts:
            part = slice(rows[0], rows[-1] + 1)
            common = (ones[:, part].T @ ones).tocsr()
            owners = np.repeat(np.arange(len(rows)), np.diff(common.indptr))
            pairs = owners, common.indices
            power = _at(squares[:, part].T @ ones, pairs) * _at(ones[:, part].T @ squares, pairs)
            # The lengths are those over common users, which differ from pair to pair.
            cosines = _at(residuals[:, part].T @ residuals, pairs) / np.sqrt(np.maximum(power, 1e-300))
            # A similarity from few common users is unreliable and is shrunk towards 0.
            cosines *= common.data / (common.data + self.shrinkage)
            is_neighbor = (cosines > 0) & (common.indices != rows[owners])
            columns = common.indices[is_neighbor].astype(np.int32, copy=False)
            similarities = np.minimum(cosines[is_neighbor], 1.0)
            neighbors.append(select_neighbors(owners[is_neighbor], columns, similarities, len(rows), self.n_neighbors))
        self.neighbor_items_, self.neighbor_similarities_ = neighbor_arrays(
            "RatingItemKNN", neighbors, parts, data.n_items
        )

    def _saved_rules(self) -> Mapping[str, ArrayRule]:
        data = self.interactions_
        neighbors = neighbor_rules(data.n_items)
        biases = rules_of(np.float64, mean_=(), user_biases_=(data.n_users,), item_biases_=(data.n_items,))
        return {**biases, **neighbors, **rules_of(np.float64, user_residuals_=(data.n_interactions,))}

    def _disagreement(self) -> str | None:
        return neighbor_disagreement(self.neighbor_items_, self.neighbor_similarities_, self.n_neighbors)

    def _memory(self, sizes: Sizes) -> Sequence[Arrays]:
        n, n_all = sizes.n_interactions, expected_pairs(sizes)
        work = max(n**2 / max(sizes.n_users, 1), _BLOCK_PAIRS)
        ratings = {
            **reports_memory(n),
            "residuals, ones and squares by item": Array.of("float64", 3, n),
            "users by item": Array.of("int32", 3, n),
        }
        pairs = {"products of pairs": Array.of("float64", 8, n_all * _BLOCK_PAIRS / work)}
        return [
            {**ratings, "powers of residuals by user": Array.of("float64", 5, n)},
            {**ratings, **pairs, **neighbors_memory(sizes, self.n_neighbors)},
        ]

    def _by_user(self, values: np.ndarray) -> "scipy.sparse.csr_array":
        """Return values of all interactions as a CSR array."""
        data = self.interactions_
        return scipy.sparse.csr_array((values, data.indices, data.indptr), shape=data.shape)


def _at(products: "scipy.sparse.csr_array", pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the entries of a product at these pairs; SciPy stores no zeros."""
    stored = products.tocsr()
    same = stored.nnz == len(pairs[1]) and np.array_equal(stored.indices, pairs[1])
    return stored.data if same else np.asarray(stored[pairs]).ravel()
