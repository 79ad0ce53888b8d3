"""Factors of what the biases leave of noisy ratings, and whether there are any to be found under the noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.compute import sgd
from fastfedrec.core.arrays import split_permutation
from fastfedrec.core.randomness import Key

_HELD_OUT = 10  # every how manieth report chooses the number of epochs
_PATIENCE = 5
_CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class Training:
    """How factors are trained, by `fastfedrec.sgd.fit_factors`.

    Parameters
    ----------
    n_factors, n_epochs : int
        Rank, and passes over the reports at most.
    learning_rate, regularization : float
        For residuals of variance 1.
    """

    n_factors: int
    n_epochs: int
    learning_rate: float
    regularization: float


def fit_residual_factors(
    users: np.ndarray,
    items: np.ndarray,
    residuals: np.ndarray,
    n_users: int,
    n_items: int,
    training: Training,
    key: Key,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Train on residuals divided by their standard deviation, noise included; (user factors, item factors, epochs).

    So one regularization serves every noise.  Held-out reports, which are as private as all others, choose the number
    of epochs; where their errors do not fall by more than two standard errors, the factors are 0 (0 epochs).
    """
    nothing = np.zeros((n_users, training.n_factors)), np.zeros((n_items, training.n_factors)), 0
    n, scale = len(residuals), float(residuals.std()) if len(residuals) else 0.0
    n_held_out = n // _HELD_OUT
    if not training.n_factors or n_held_out < 2 or not scale:
        return nothing
    residuals = residuals / scale
    order = key.permutation("laplace_rr_svd.held_out", size=n, n_threads=n_threads)
    held_out, rest = split_permutation(order, n_held_out)
    options: dict[str, Any] = {
        "n_users": n_users,
        "n_items": n_items,
        "n_factors": training.n_factors,
        "learning_rate": training.learning_rate,
        "regularization": training.regularization,
        "biases": False,
        "key": key,
        "n_threads": n_threads,
    }
    judged = users[held_out], items[held_out], residuals[held_out]
    trial = sgd.fit_factors(
        users[rest],
        items[rest],
        residuals[rest],
        n_epochs=training.n_epochs,
        validation=judged,
        patience=_PATIENCE,
        **options,
    )
    gain = judged[2] ** 2 - (judged[2] - trial.predict(*judged[:2])) ** 2
    if not trial.epoch or not gain.mean() > _CLEAR * gain.std(ddof=1) / np.sqrt(n_held_out):
        return nothing
    final = sgd.fit_factors(users, items, residuals, n_epochs=trial.epoch, **options)
    found = []
    for factors, ids, factor in ((final.user_factors, users, scale), (final.item_factors, items, 1.0)):
        heard = np.bincount(ids, minlength=len(factors)) > 0  # others would keep the random start
        found.append(np.where(heard[:, None], factor * factors.astype(np.float64), 0.0))
    return found[0], found[1], final.epoch


def fit_published_factors(
    users: np.ndarray,
    items: np.ndarray,
    reports: np.ndarray,
    n_users: int,
    n_items: int,
    training: Training,
    key: Key,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Plain stochastic gradient descent on the reports as they came, scaled to [0, 1]: equations 7 to 9."""
    model = sgd.fit_factors(
        users,
        items,
        reports,
        n_users=n_users,
        n_items=n_items,
        n_factors=max(training.n_factors, 1),
        n_epochs=training.n_epochs,
        learning_rate=training.learning_rate,
        regularization=training.regularization,
        biases=False,
        key=key,
        n_threads=n_threads,
    )
    return model.user_factors.astype(np.float64), model.item_factors.astype(np.float64), model.epoch
