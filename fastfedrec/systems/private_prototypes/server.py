"""The server of private prototypes: from noisy sums to prototypes, and to item factors.

The inputs are messages of entities and public numbers, so all of this is post-processing without privacy cost.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.nmf import NMF, fit_nmf
from fastfedrec.core.randomness import Key
from fastfedrec.data.ids import encode_ids

__all__ = ["Sums", "encode_labels", "factorize", "make_prototypes"]

_SPREAD = 0.25  # variance of one value, in squared half ranges: an assumption from public numbers
_MIN_ITEM_VARIANCE = 0.075  # of items, in the same unit: smaller noise hardly changes the weights of the fit


@dataclass(frozen=True)
class Sums:
    """Messages decoded to numbers of users and values, on all items.

    `known` marks the entries that were sent.  `counts` are noisy numbers of users, `sums` are noisy sums of values
    relative to `center`, and `stddev` is the noise's standard deviation.  The public range is from `low` to `high`, and
    `masked` states whether each entry has its own count or its prototype's.
    """

    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    known: NDArray[np.bool_]
    stddev: float
    low: float
    high: float
    center: float
    reach: float
    masked: bool


def make_prototypes(sums: Sums) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return prototypes within the range, and weights of their entries, 0 for a missing one.

    Without noise these are means over users, weighted by the number of users.
    """
    # With noise a mean is shrunk towards the mean over all prototypes of its item, which is shrunk towards a line in
    # the logarithm of the item's count, both according to the noise.  Then all entries have equal weight.
    if not sums.stddev:
        means = sums.center + sums.sums / np.maximum(sums.counts, 1e-300)
        weights = sums.counts * sums.known if sums.masked else np.broadcast_to(sums.known, means.shape).astype(float)
        return np.where(sums.counts > 0, np.clip(means, sums.low, sums.high), 0.0), weights
    pooled = _pool(sums)
    counts = np.maximum(sums.counts, 1.0)
    # The variance of a noisy mean: noise on sum and count, plus the spread of values among the users.
    variance = (sums.stddev**2 * (1 + pooled**2) + counts * _SPREAD * sums.reach**2 * sums.masked) / counts**2
    residuals = (sums.sums - pooled * sums.counts) / counts
    prototype_spread = _excess(residuals, variance, sums.known, _MIN_ITEM_VARIANCE * sums.reach**2)
    values = pooled + prototype_spread / (prototype_spread + variance) * residuals * sums.known
    prototypes = np.clip(sums.center + values, sums.low, sums.high)
    # The weights add up to the estimated number of users.
    weight = max(1.0, float(sums.counts[sums.known].mean())) if sums.masked else 1.0
    return prototypes, np.full(prototypes.shape, weight)


def _pool(sums: Sums) -> np.ndarray:
    """Return the mean of each item over all prototypes, relative to the centre."""
    n_known = np.maximum(sums.known.sum(axis=0), 1)
    stddev = sums.stddev * np.sqrt(n_known)
    counts, totals = (sums.counts * sums.known).sum(axis=0), (sums.sums * sums.known).sum(axis=0)
    mean = totals.sum() / max(counts.sum(), 1.0)
    users = np.maximum(counts, 1.0)
    variance = (stddev**2 * (1 + mean**2) + users * _SPREAD * sums.reach**2 * sums.masked) / users**2
    raw = totals / users
    known = np.asarray(sums.known.any(axis=0))
    min_variance = _MIN_ITEM_VARIANCE * sums.reach**2
    if sums.masked:
        # Frequent items have higher ratings: a line in the logarithm of the count, which is raised to its noise.
        line = np.stack([np.ones(len(users)), np.log(np.maximum(users, stddev))], axis=1)
        precision = known / (variance + min_variance)
        gram = line.T @ (precision[:, None] * line) + 1e-9 * precision.sum() * np.eye(2)
        prior = line @ np.linalg.solve(gram, line.T @ (precision * raw))
    else:
        prior = np.full(len(users), mean)
    # Empirical Bayes: the prior's weight depends on the spread of the items beyond their noise.
    spread = _excess(raw - prior, variance, known, min_variance)
    pooled = prior + spread / (spread + variance) * (raw - prior)
    return np.where(known, pooled, prior if sums.masked else 0.0)  # an item that no entity sent is rare


def _excess(residuals: np.ndarray, variance: np.ndarray, known: np.ndarray, min_variance: float) -> float:
    """Return the variance of residuals in excess of their noise, with a small positive minimum."""
    weights = known / (variance + min_variance) ** 2
    return max(1e-3 * min_variance, float((weights * (residuals**2 - variance)).sum() / weights.sum()))


def factorize(
    prototypes: np.ndarray, weights: np.ndarray, n_factors: int, regularization: float, n_epochs: int, seed: int,
    n_threads: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Return nonnegative item factors on the scale that a factorisation of the users' rows would have.

    `regularization` is per user; the other arguments are as in `fit_nmf`, and `seed` is public.
    """
    all_alike = weights.max() == weights.min()
    scale = (float(weights.max()) if all_alike else 0.0) or 1.0  # the maximum is 0 without users and noise
    factorization: NMF = fit_nmf(
        prototypes, n_factors, regularization=regularization / scale, n_epochs=n_epochs,
        weights=None if all_alike else weights, key=Key.from_seed(seed), n_threads=n_threads,
    )  # fmt: skip
    # A few prototypes replace many users, so their factors are larger and the items' factors smaller than usual.
    row_scale = np.sqrt((factorization.row_factors**2).mean(axis=0))
    item_scale = np.sqrt((factorization.item_factors**2).mean(axis=0))
    balance = np.sqrt(np.divide(row_scale, item_scale, out=np.ones(n_factors), where=item_scale > 0))
    # Multiplying items and dividing rows by the same balance keeps their products.
    return factorization.item_factors * balance


def encode_labels(name: str, labels: Any, n_rows: int) -> tuple[np.ndarray, NDArray[np.int64]]:
    """Return the distinct labels of entities or users in order, and the position of each row's label among them.

    None gives all rows one label; a wrong number of labels raises `ValueError`.
    """
    if labels is None:
        return np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    distinct, rows = encode_ids(name, labels)
    if len(rows) != n_rows:
        raise ValueError(f"{name} must have one label per user ({n_rows}), got {len(rows)}")
    return distinct, rows.astype(np.int64)
