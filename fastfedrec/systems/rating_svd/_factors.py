"""Factors of the residuals of noisy ratings, and a test whether there is a signal in the noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfedrec.compute import sgd
from fastfedrec.core.arrays import split_permutation
from fastfedrec.core.memory import Array, Arrays, Sizes
from fastfedrec.core.randomness import Key

_HELD_OUT_EVERY = 10  # one report in ten is held out to choose the number of epochs
_LANES = 16  # numbers of a cache line, to which rows of factors are padded
_PATIENCE = 5  # epochs without improvement after which training stops
_MIN_GAIN_ERRORS = 2.0  # standard errors by which factors must lower the held-out error


@dataclass(frozen=True)
class Training:
    """Settings of `fastfedrec.sgd.fit_factors`, with rates for residuals of variance 1."""

    n_factors: int
    n_epochs: int
    learning_rate: float
    regularization: float


def training_memory(sizes: Sizes, training: Training, *, has_trial: bool) -> Arrays:
    """Return the arrays of a training beside the reports, with those of the trial that chooses the epochs."""
    n_rows, n = sizes.n_users + sizes.n_items, sizes.n_interactions
    n_trained, width = 0.9 * n * has_trial, -(-training.n_factors // _LANES) * _LANES
    return {
        "factors": Array.of("float64", n_rows, training.n_factors),
        "states of the training": Array.of("float32", min(training.n_epochs + 1, 5), n_rows, width),
        "records of the training": Array.of("float32", 4, n_trained or n),
        "residuals, scaled residuals, order": Array.of("float64", 3 * has_trial, n),
        "users, items and residuals of the trial": Array.of("float64", 3.5 * n_trained),
    }


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
    """Return user factors, item factors and the number of epochs, from training on residuals scaled to variance 1.

    The scale includes the noise, so that one regularization suits every noise.  Held-out reports, which are as private
    as the others, choose the number of epochs.  The factors are 0 (0 epochs) unless errors fall by two standard errors.
    """
    zero_factors = np.zeros((n_users, training.n_factors)), np.zeros((n_items, training.n_factors)), 0
    n, scale = len(residuals), float(residuals.std()) if len(residuals) else 0.0
    n_held_out = n // _HELD_OUT_EVERY
    if not training.n_factors or n_held_out < 2 or not scale:
        return zero_factors
    residuals = residuals / scale
    order = key.permutation("laplace_rr_svd.held_out", size=n, n_threads=n_threads)
    held_out, training_rows = split_permutation(order, n_held_out)
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
    validation = users[held_out], items[held_out], residuals[held_out]
    trial = sgd.fit_factors(
        users[training_rows],
        items[training_rows],
        residuals[training_rows],
        n_epochs=training.n_epochs,
        validation=validation,
        patience=_PATIENCE,
        **options,
    )
    # Differences of squared errors for the same reports have a much smaller variance than the errors.
    gain = validation[2] ** 2 - (validation[2] - trial.predict(*validation[:2])) ** 2
    if not trial.epoch or not gain.mean() > _MIN_GAIN_ERRORS * gain.std(ddof=1) / np.sqrt(n_held_out):
        return zero_factors
    # All reports, with the number of epochs from the trial, since a tenth more data help.
    final = sgd.fit_factors(users, items, residuals, n_epochs=trial.epoch, **options)
    scaled_factors = []
    for factors, ids, factor in ((final.user_factors, users, scale), (final.item_factors, items, 1.0)):
        has_reports = np.bincount(ids, minlength=len(factors)) > 0  # rows without reports have kept their random start
        scaled_factors.append(np.where(has_reports[:, None], factor * factors.astype(np.float64), 0.0))
    return scaled_factors[0], scaled_factors[1], final.epoch


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
    """Return factors from stochastic gradient descent on the noisy reports, scaled to [0, 1]: equations 7 to 9."""
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
