"""Means of users and items from noisy ratings, each shrunk by as much as its own noise asks for.

A rating is mean + user bias + item bias + rest, all of them random.  The variances are estimated from the ratings as
they came, noise and all, so a public estimate stays public and a louder mechanism shrinks more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.core.threads import one_blas_thread, threads_for_rows
from fastfedrec.data.pairs import sort_pairs

_N_SWEEPS = 20
_LEAST_VARIANCE = 1e-12  # below it a group's biases are all alike


@dataclass(frozen=True)
class Biases:
    """The additive part of a rating.

    Parameters
    ----------
    mean : float
        Of all ratings.
    users, items : ndarray of shape (n_users,) and (n_items,), float64
        What to add.
    spreads : tuple of float
        The variances that true biases of users and of items are estimated to have.
    """

    mean: float
    users: NDArray[np.float64]
    items: NDArray[np.float64]
    spreads: tuple[float, float] = (0.0, 0.0)


def fit_biases(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int, n_threads: int
) -> Biases:
    """Estimate both kinds of bias in turn, until they agree.

    A bias is drawn towards a line in the logarithm of the number of ratings, for items that are rated more are rated
    better, by rest variance / bias variance many ratings.
    """
    n_threads = threads_for_rows(len(values), n_threads, least=500_000)
    mean = float(values.mean()) if len(values) else 0.0
    biases = [np.zeros(n_users), np.zeros(n_items)]
    groups = (users, items)
    counts = [np.bincount(g, minlength=len(b)) for g, b in zip(groups, biases, strict=True)]
    spreads = [group_variance(g, values, n) for g, n in zip(groups, counts, strict=True)]
    rest = max(float(values.var()) - sum(spreads), 0.0) if len(values) else 0.0
    rated = _by_row(users, items, n_users, n_items, n_threads), _by_row(items, users, n_items, n_users, n_threads)
    centred = [np.bincount(g, values - mean, minlength=len(b)) for g, b in zip(groups, biases, strict=True)]
    for _ in range(_N_SWEEPS):
        for own, other in ((1, 0), (0, 1)):
            sums = np.empty(len(biases[own]))
            _kernel.sum_by_row(*rated[own], biases[other], sums, n_threads)
            np.subtract(centred[own], sums, out=sums)
            prior = _line(counts[own], sums, spreads[own], rest)
            biases[own] = shrink(sums, counts[own], spreads[own], rest, prior)
    return Biases(mean, biases[0], biases[1], (spreads[0], spreads[1]))


def _by_row(
    rows: np.ndarray, columns: np.ndarray, n_rows: int, n_columns: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where the ratings of each row begin, and the columns in that order."""
    rows, columns = rows.astype(np.int32), columns.astype(np.int32)
    starts, order = sort_pairs(rows, columns, n_rows, n_columns, n_threads=n_threads)
    return starts, columns if order is None else columns[order]


def fit_means(groups: np.ndarray, values: np.ndarray, n_groups: int) -> tuple[float, np.ndarray]:
    """The mean of all values, and what each group's mean adds to it, shrunk."""
    mean = float(values.mean()) if len(values) else 0.0
    counts = np.bincount(groups, minlength=n_groups)
    spread = group_variance(groups, values, counts)
    rest = max(float(values.var()) - spread, 0.0) if len(values) else 0.0
    return mean, shrink(np.bincount(groups, values - mean, minlength=n_groups), counts, spread, rest)


@one_blas_thread()
def group_variance(groups: np.ndarray, values: np.ndarray, counts: np.ndarray) -> float:
    """The variance of the groups' true means: the unbiased estimate of one-way analysis of variance, at least 0."""
    found = counts > 0
    n, n_groups = len(values), int(found.sum())
    if n_groups < 2 or n == n_groups:
        return 0.0
    centred = values - values.mean()
    squares = np.bincount(groups, centred, minlength=len(counts))[found] ** 2 / counts[found]
    within = (float(centred @ centred) - squares.sum()) / (n - n_groups)
    between = squares.sum() - (n_groups - 1) * within
    return max(float(between / (n - (counts[found].astype(np.float64) ** 2).sum() / n)), 0.0)


def shrink(
    sums: np.ndarray, counts: np.ndarray, spread: float, rest: float, prior: np.ndarray | float = 0.0
) -> np.ndarray:
    """The best linear estimate of each group's bias from the sum of its residuals."""
    if spread <= _LEAST_VARIANCE:
        return np.zeros(len(sums)) + prior
    weight = counts + rest / spread
    return prior + np.divide(sums - counts * prior, weight, out=np.zeros(len(sums)), where=weight > 0)


@one_blas_thread()
def _line(counts: np.ndarray, sums: np.ndarray, spread: float, rest: float) -> np.ndarray:
    """The groups' mean residuals as a line in log(1 + count), each weighted by how well it is known."""
    x = np.log1p(counts)
    weights = counts / np.maximum(counts * spread + rest, _LEAST_VARIANCE)
    total = weights.sum()
    if not total:
        return np.zeros(len(counts))
    means = sums / np.maximum(counts, 1)
    centre, level = weights @ x / total, weights @ means / total
    power = weights @ (x - centre) ** 2
    slope = weights @ ((x - centre) * means) / power if power > _LEAST_VARIANCE * total else 0.0
    return np.where(counts > 0, level + slope * (x - centre), level)


def fit_hidden_biases(
    users: np.ndarray,
    items: np.ndarray,
    rated: np.ndarray,
    products: np.ndarray,
    n_users: int,
    n_items: int,
    scale: tuple[float, float],
) -> Biases:
    """The same where it is hidden what was rated: from unbiased estimates of "is rated" and of it times the rating."""
    low, high = scale
    total = float(rated.sum())
    mean = min(max(float(products.sum()) / total, low), high) if total > 0 else (low + high) / 2
    excess = products - mean * rated
    found, spreads = [], []
    for groups, n_groups in ((users, n_users), (items, n_items)):
        asked = np.bincount(groups, minlength=n_groups)
        noise, noise_rated = float(np.mean(excess**2)), float(np.var(rated))
        sums = np.bincount(groups, excess, minlength=n_groups)
        counts = np.bincount(groups, rated, minlength=n_groups)
        # Squares are too large by the noise's variance, which is known: nearly every report is noise.
        signal = float((counts**2 - asked * noise_rated).sum())
        spread = max(float((sums**2 - asked * noise).sum()), 0.0) / signal if signal > 0 else 0.0
        # Counts below 0 or above what was asked are noise for certain.
        density = max(total, 0.0) / max(len(rated), 1)
        share = group_variance(groups, rated, asked)
        likely = asked * density + shrink(counts - asked * density, asked, share, noise_rated) * asked
        likely = np.clip(likely, 0.0, asked)
        power = likely**2 * spread + asked * noise
        found.append(np.divide(likely * spread * sums, power, out=np.zeros(n_groups), where=power > 0))
        spreads.append(spread)
    return Biases(mean, found[0], found[1], (spreads[0], spreads[1]))
