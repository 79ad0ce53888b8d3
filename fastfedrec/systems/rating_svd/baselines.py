"""Reference baselines for ratings: means, biased matrix factorisation, and item neighbours."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.compute.sgd import MAX_FACTORS
from fastfedrec.core.check import check_flag
from fastfedrec.core.parameters import declares_parameters, integer, real
from fastfedrec.core.randomness import Key, resolve_key
from fastfedrec.core.threads import resolve_n_threads
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit, resolve_ledger
from fastfedrec.rounds.system import ArrayRule
from fastfedrec.systems._from_items import similar_neighbors
from fastfedrec.systems._neighbors import (
    blocks_of_rows,
    neighbor_arrays,
    neighbor_disagreement,
    neighbor_rules,
    score_neighbors,
    select_neighbors,
)
from fastfedrec.systems._saved import rules_of
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.rating_model import STARS, AdditiveModel, RatingModel, check_ratings, rating_grid
from fastfedrec.systems.rating_svd._biases import fit_biases, fit_means
from fastfedrec.systems.rating_svd._decoder import ReportDecoder
from fastfedrec.systems.rating_svd.laplace_rr_svd import LaplaceRRSVD

__all__ = ["BiasedMF", "GlobalMean", "ItemMean", "RatingBaseline", "RatingItemKNN", "UserMean"]

_BLOCK_CELLS = 2**23  # scores in memory at a time
_BLOCK_PAIRS = 2**22  # pairs of items with products that are computed together
_NO_DEVIATION = 0.5  # similarity to a virtual neighbour without deviation, which damps few and distant neighbours


class RatingBaseline(RatingModel):
    """A model of ratings that is fitted in one step."""

    @property
    def _is_private(self) -> bool:
        """Return whether ratings are private, so that errors must not depend on them."""
        return False

    @transactional
    def fit(
        self,
        interactions: InteractionsLike,
        key: Key | None = None,
        n_threads: int = 0,
        show_progress: bool = False,
        ledger: Ledger | None = None,
    ) -> Self:
        """Fit the model in one step.

        Parameters
        ----------
        interactions : Interactions, SciPy sparse matrix or array, or frame
            Ratings as values; every stored one counts, also zeros.
        show_progress : bool
            Without effect; all models accept it.
        """
        data = check_ratings(interactions, is_private=self._is_private, min_users=1)
        key = resolve_key(key)
        ledger = resolve_ledger(ledger)
        n_threads = resolve_n_threads(n_threads)
        check_flag("show_progress", show_progress)
        self.interactions_, self.ledger_ = data, self._open_account(ledger, data, simulation=key.is_simulation)
        self._fit(data, key, n_threads)
        return self

    @abstractmethod
    def _fit(self, data: Interactions, key: Key, n_threads: int) -> None:
        """Record the event, then compute the fitted arrays."""


@declares_parameters
class _Mean(RatingBaseline, AdditiveModel):
    """A mean of exact ratings, or of private reports of them."""

    epsilon: float | None = real(None, above=0.0, also=[None]).doc("""
        Epsilon per rating, in nats, above 0: each is reported through `BayesKary`.  None takes the exact ratings.""")
    grid: Sequence[float] = rating_grid(by_ends=None).doc("""
        Possible ratings, increasing.  Without `epsilon` only the ends matter, and other ratings keep their values.""")

    @property
    def _is_private(self) -> bool:
        return self.epsilon is not None

    def _check_parameters(self) -> None:
        self._check_grid(by_ends=self.epsilon is None)

    def _fit(self, data: Interactions, key: Key, n_threads: int) -> None:
        users, items, values, decoder = collect_ratings(
            data, self.epsilon, self.grid, key, self.ledger_, n_threads, caller=type(self).__name__
        )
        self.user_biases_, self.item_biases_ = np.zeros(data.n_users), np.zeros(data.n_items)
        self.user_factors_, self.item_factors_ = np.zeros((data.n_users, 0)), np.zeros((data.n_items, 0))
        self.mean_ = np.array(self._fit_means(users, items, values))
        # Decoding again near the first means lowers the noise of the decoded values.
        if decoder is not None:
            values = decoder.decode_near(self.mean_ + self.user_biases_[users] + self.item_biases_[items])
            self.mean_ = np.array(self._fit_means(users, items, values))

    @abstractmethod
    def _fit_means(self, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> float:
        """Set the model's biases, and return the mean."""


@declares_parameters
class GlobalMean(_Mean):
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

    def _fit_means(self, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> float:
        return float(values.mean()) if len(values) else 0.0  # 0 without ratings, as in LaplaceRRSVD


@declares_parameters
class UserMean(_Mean):
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

    def _fit_means(self, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> float:
        mean, self.user_biases_ = fit_means(users, values, len(self.user_biases_))
        return mean


@declares_parameters
class ItemMean(_Mean):
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

    def _fit_means(self, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> float:
        mean, self.item_biases_ = fit_means(items, values, len(self.item_biases_))
        return mean


@declares_parameters
class BiasedMF(LaplaceRRSVD):
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

    grid: Sequence[float] = rating_grid(by_ends=True).doc("""
        Possible ratings, increasing; only the ends matter.  Ratings beyond them count as the nearest end.""")
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

    def __init__(
        self,
        grid: Sequence[float] = STARS,
        n_factors: int = 20,
        n_epochs: int | str = "auto",
        learning_rate: float | str = "auto",
        regularization: float | str = "auto",
    ):
        super().__init__(
            None,
            grid=grid,
            n_factors=n_factors,
            n_epochs=n_epochs,
            learning_rate=learning_rate,
            regularization=regularization,
        )


@declares_parameters
class RatingItemKNN(RatingBaseline):
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

    _saved: ClassVar[tuple[str, ...]] = (
        "mean_", "user_biases_", "item_biases_", "neighbor_items_", "neighbor_similarities_", "user_residuals_",
    )  # fmt: skip

    _needs_rows = False  # the biases score items for a user without ratings

    n_neighbors: int = integer(200, low=1).doc("Number of neighbours stored for each item, at least 1.")
    shrinkage: float = real(100.0, low=0.0).doc("""
        Number of users, at least 0; a similarity from n common users is multiplied by n / (n + shrinkage).""")
    grid: Sequence[float] = rating_grid(by_ends=True).doc("""
        Possible ratings, increasing; only the ends matter.  Ratings beyond them count as the nearest end.""")

    def _fit(self, data: Interactions, key: Key, n_threads: int) -> None:
        users, items, values, _ = collect_ratings(
            data, None, self.grid, key, self.ledger_, n_threads, caller=type(self).__name__
        )
        biases = fit_biases(users, items, values, data.n_users, data.n_items, n_threads)
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

    def _popularity(self) -> np.ndarray:
        return self.mean_ + self.item_biases_

    def _similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        return similar_neighbors(columns, n, self.neighbor_items_, self.neighbor_similarities_)

    def _by_user(self, values: np.ndarray) -> "scipy.sparse.csr_array":
        """Return values of all interactions as a CSR array."""
        data = self.interactions_
        return scipy.sparse.csr_array((values, data.indices, data.indptr), shape=data.shape)

    def _score_block(self, users: np.ndarray) -> np.ndarray:
        neighbors = self.neighbor_items_, self.neighbor_similarities_
        user_rows = self.interactions_._take_users(users)
        lengths = user_rows.interactions_per_user()
        # Positions of the users' entries in the model's arrays.
        shifts = self.interactions_.indptr[users] - user_rows.indptr[:-1]
        entries = np.repeat(shifts, lengths) + np.arange(lengths.sum())
        sums = score_neighbors(user_rows, *neighbors, weights=self.user_residuals_[entries])
        weights = score_neighbors(user_rows, *neighbors, weights=np.ones(len(entries)))
        return self.mean_ + self.user_biases_[users, None] + self.item_biases_ + sums / (weights + _NO_DEVIATION)

    def _score_pairs(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        # Each user's row of scores is computed once.
        rows, row_numbers = np.unique(users, return_inverse=True)
        scores = np.empty(len(users))
        step = max(1, _BLOCK_CELLS // self.interactions_.n_items)
        for start in range(0, len(rows), step):
            in_block = (row_numbers >= start) & (row_numbers < start + step)
            block = self._score_block(rows[start : start + step])
            scores[in_block] = block[row_numbers[in_block] - start, items[in_block]]
        return scores


def _at(products: "scipy.sparse.csr_array", pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the entries of a product at these pairs; SciPy stores no zeros."""
    stored = products.tocsr()
    same = stored.nnz == len(pairs[1]) and np.array_equal(stored.indices, pairs[1])
    return stored.data if same else np.asarray(stored[pairs]).ravel()


def collect_ratings(
    data: Interactions,
    epsilon: float | None,
    grid: Sequence[float],
    key: Key,
    ledger: Ledger,
    n_threads: int,
    *,
    caller: str,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], ReportDecoder | None]:
    """Collect the ratings of all users, exactly or through private reports.

    Parameters
    ----------
    data : Interactions
        Ratings as values.
    epsilon : float or None
        Epsilon per rating, in nats, above 0; None takes exact values.
    grid : sequence of float
        Possible ratings, increasing; without `epsilon` only the ends matter.
    key : Key
        Source of the reports.
    ledger : Ledger
        Ledger that gets its entries before any report.
    n_threads : int
        Number of threads, at least 1.
    caller : str
        Name of the model that is fitted, for errors about reused keys.

    Returns
    -------
    users, items : ndarray of shape (n_ratings,), int64
        Row and column of each rating, in the order of `data`.
    values : ndarray of shape (n_ratings,), float64
        Exact or decoded values.
    decoder : ReportDecoder or None
        Decoder of the reports, if there are reports.
    """
    half_epsilon = 1.0 if epsilon is None else epsilon / 2  # exact, and the two halves add up to epsilon
    collector = LaplaceRRSVD(None if epsilon is None else "optimal", half_epsilon, half_epsilon, grid=grid)
    fit = Fit.resolve(key, n_threads, False, ledger, None)
    fit.caller = caller  # the name under which the collector's fit claims the key
    state = collector._collect(data, fit)
    decoder = collector._decoder(state)
    return state.users, state.items, state.reports if decoder is None else decoder.decode(), decoder
