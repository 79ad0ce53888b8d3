"""Collection of all users' ratings by baselines, exactly or through private reports, and means of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import Ledger
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.randomness import Key
from fastfedrec.data.conversion import InteractionsLike
from fastfedrec.rounds.fit import Fit
from fastfedrec.systems._transaction import transactional
from fastfedrec.systems.rating_model import RatingModel, check_ratings, warn_beyond_ends
from fastfedrec.systems.rating_svd._biases import Biases
from fastfedrec.systems.rating_svd._decoder import ReportDecoder, fit_twice
from fastfedrec.systems.rating_svd.laplace_rr_svd import COUNT_AS_NEAREST, LaplaceRRSVD
from fastfedrec.systems.rating_svd.rounds import reports_memory

Model = TypeVar("Model", bound=RatingModel)


@transactional
def fit(
    self: Model,
    interactions: InteractionsLike,
    key: Key | None = None,
    n_threads: int = 0,
    show_progress: bool = False,
    ledger: Ledger | None = None,
) -> Model:
    """Fit the model to all ratings.

    Parameters
    ----------
    interactions : Interactions, SciPy sparse matrix or array, or frame
        Ratings as values; every stored one counts, also zeros.
    show_progress : bool
        Without effect; all models accept it.
    """
    model: Any = self
    model._fit(interactions, Fit.resolve(key, n_threads, show_progress, ledger, None))
    return self


class Ratings(NamedTuple):
    """Rows, columns and values of all ratings, and the decoder of the values if they were reports."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    values: NDArray[np.float64]
    decoder: ReportDecoder | None


def collect_ratings(model: Any, interactions: InteractionsLike, epsilon: float | None, fit: Fit) -> Ratings:
    """Return rows, columns and values of all ratings, and the decoder of their reports if `epsilon` is given.

    The model gets its data and its ledger after all checks.  The ledger gets its entries before any report.
    """
    half_epsilon = 1.0 if epsilon is None else epsilon / 2  # exact, and the two halves add up to epsilon
    collector = LaplaceRRSVD(None if epsilon is None else "optimal", half_epsilon, half_epsilon, grid=model.grid)
    data = check_ratings(interactions, is_private=collector.channel is not None, min_users=1)
    if epsilon is None:
        warn_beyond_ends(data, model.grid, COUNT_AS_NEAREST)
    model.interactions_, (model.ledger_, _) = data, fit.begin(model, data)
    state = collector._collect(data, fit)
    decoder = collector._decoder(state)
    return Ratings(state.users, state.items, state.reports if decoder is None else decoder.decode(), decoder)


def mean_memory(self: Any, sizes: Sizes) -> Sequence[Arrays]:
    """Return the arrays of a fit of a mean."""
    biases = {"biases, sums and counts": Array.of("float64", 3, sizes.n_users + sizes.n_items)}
    return [{**reports_memory(sizes.n_interactions), **biases}]


def fit_mean(model: Any, interactions: InteractionsLike, fit: Fit, find: Callable[..., Biases]) -> None:
    """Fit a mean to exact ratings, or to private reports of them.

    `find` returns biases from users, items, values, and the numbers of users and items.
    """
    users, items, values, decoder = collect_ratings(model, interactions, model.epsilon, fit)
    n_users, n_items = model.interactions_.shape
    biases, _ = fit_twice(lambda values: find(users, items, values, n_users, n_items), users, items, values, decoder)
    model.mean_ = np.array(biases.mean)
    model.user_biases_, model.item_biases_ = biases.users, biases.items
    model.user_factors_, model.item_factors_ = np.zeros((n_users, 0)), np.zeros((n_items, 0))
