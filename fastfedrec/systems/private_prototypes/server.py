"""What the server of private prototypes makes of noisy sums: prototypes, and item factors.

Everything here looks at what entities sent, and at public numbers, so it costs nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.compute.nmf import NMF, fit_nmf
from fastfedrec.core.randomness import Key
from fastfedrec.data.ids import encode_ids

__all__ = ["Sums", "encode_labels", "factorize", "make_prototypes"]

_SPREAD = 0.25  # variance of one value, in units of the squared reach of the range: a guess from public numbers
_FAR = 0.075  # the same of items: below it the noise of an estimate hardly counts in what fits the prior


@dataclass(frozen=True)
class Sums:
    """Messages decoded to users and values, on all items.

    Parameters
    ----------
    counts : ndarray of shape (n_prototypes, n_items), float64
        Users behind each entry, noisy; 0 outside a support.
    sums : ndarray of shape (n_prototypes, n_items), float64
        Of values relative to `center`, noisy.
    known : ndarray of shape (n_prototypes, n_items), bool
        The support.
    stddev : float
        Of the noise on either; 0 without.
    low, high, center, reach : float
        Of the public range.
    masked : bool
        Whether an entry's count is its own, or its prototype's.
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
    """Estimate each prototype and say how much each of its entries weighs.

    Without noise: means over users, weighted by how many they are.  With noise: a mean is drawn toward that of all
    prototypes of its item, and that toward a line in the logarithm of the item's count, by as much as the noise asks
    for; then all entries weigh the same, those outside a support too.

    Parameters
    ----------
    sums : Sums
        As sent.

    Returns
    -------
    prototypes, weights : ndarray of shape (n_prototypes, n_items), float64
        Values within the range; weight 0 is missing.
    """
    if not sums.stddev:
        means = sums.center + sums.sums / np.maximum(sums.counts, 1e-300)
        weights = sums.counts * sums.known if sums.masked else np.broadcast_to(sums.known, means.shape).astype(float)
        return np.where(sums.counts > 0, np.clip(means, sums.low, sums.high), 0.0), weights
    pooled = _pool(sums)
    counts = np.maximum(sums.counts, 1.0)
    variance = (sums.stddev**2 * (1 + pooled**2) + counts * _SPREAD * sums.reach**2 * sums.masked) / counts**2
    rest = (sums.sums - pooled * sums.counts) / counts
    own = _excess(rest, variance, sums.known, _FAR * sums.reach**2)
    values = pooled + own / (own + variance) * rest * sums.known
    prototypes = np.clip(sums.center + values, sums.low, sums.high)
    # Together they weigh as many users as there seem to be.
    weight = max(1.0, float(sums.counts[sums.known].mean())) if sums.masked else 1.0
    return prototypes, np.full(prototypes.shape, weight)


def _pool(sums: Sums) -> np.ndarray:
    """The mean of each item over all prototypes, relative to the centre."""
    n_known = np.maximum(sums.known.sum(axis=0), 1)
    stddev = sums.stddev * np.sqrt(n_known)
    counts, totals = (sums.counts * sums.known).sum(axis=0), (sums.sums * sums.known).sum(axis=0)
    mean = totals.sum() / max(counts.sum(), 1.0)
    users = np.maximum(counts, 1.0)
    variance = (stddev**2 * (1 + mean**2) + users * _SPREAD * sums.reach**2 * sums.masked) / users**2
    raw = totals / users
    known = np.asarray(sums.known.any(axis=0))
    far = _FAR * sums.reach**2
    if sums.masked:
        # What is rated more is rated better: a line in the logarithm of the count, no finer than its noise.
        line = np.stack([np.ones(len(users)), np.log(np.maximum(users, stddev))], axis=1)
        precision = known / (variance + far)
        gram = line.T @ (precision[:, None] * line) + 1e-9 * precision.sum() * np.eye(2)
        prior = line @ np.linalg.solve(gram, line.T @ (precision * raw))
    else:
        prior = np.full(len(users), mean)
    spread = _excess(raw - prior, variance, known, far)
    pooled = prior + spread / (spread + variance) * (raw - prior)
    return np.where(known, pooled, prior if sums.masked else 0.0)  # an item in no support is rare


def _excess(residuals: np.ndarray, variance: np.ndarray, known: np.ndarray, far: float) -> float:
    """By how much residuals vary beyond their noise, at least a little more than nothing."""
    weights = known / (variance + far) ** 2
    return max(1e-3 * far, float((weights * (residuals**2 - variance)).sum() / weights.sum()))


def factorize(
    prototypes: np.ndarray, weights: np.ndarray, n_factors: int, regularization: float, n_epochs: int, seed: int,
    n_threads: int,
) -> NDArray[np.float64]:  # fmt: skip
    """Item factors, as long as an ordinary factorisation of users would make them.

    Parameters
    ----------
    prototypes, weights : ndarray of shape (n_prototypes, n_items), float64
        As from `make_prototypes`.
    n_factors : int
        Columns.
    regularization : float
        As of one user.
    n_epochs : int
        Of alternating least squares.
    seed : int
        Public.
    n_threads : int
        At least 1.

    Returns
    -------
    ndarray of shape (n_items, n_factors), float64
        At least 0.
    """
    all_alike = weights.max() == weights.min()
    scale = (float(weights.max()) if all_alike else 0.0) or 1.0  # 0 where no entity has a user, without noise
    found: NMF = fit_nmf(
        prototypes, n_factors, regularization=regularization / scale, n_epochs=n_epochs,
        weights=None if all_alike else weights, key=Key.from_seed(seed), n_threads=n_threads,
    )  # fmt: skip
    # Few prototypes share what many users would, so their factors come out long and those of items short.
    long = np.sqrt((found.row_factors**2).mean(axis=0))
    short = np.sqrt((found.item_factors**2).mean(axis=0))
    balance = np.sqrt(np.divide(long, short, out=np.ones(n_factors), where=short > 0))
    return found.item_factors * balance


def encode_labels(name: str, labels: Any, n_rows: int) -> tuple[np.ndarray, NDArray[np.int64]]:
    """Distinct labels of entities or users, and the place of each row's among them.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    labels : array_like of shape (n_rows,) or None
        None is one for all.
    n_rows : int
        How many there must be.

    Returns
    -------
    distinct : ndarray
        In order.
    places : ndarray of shape (n_rows,), int64
        In `distinct`.
    """
    if labels is None:
        return np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    distinct, rows = encode_ids(name, labels)
    if len(rows) != n_rows:
        raise ValueError(f"{name} must have one label per user ({n_rows}), got {len(rows)}")
    return distinct, rows.astype(np.int64)
