"""Means of users and items from noisy ratings, shrunk according to their noise.

A rating is mean + user bias + item bias + residual, all random.  The variances are estimated from the noisy ratings, so
the estimate is as public as they are, and a mechanism with more noise shrinks more.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.systems.rating_svd import laplace_rr_svd as _kernel
from fastfedrec.core.threads import one_blas_thread, threads_for_rows
from fastfedrec.data.pairs import sort_pairs

_N_SWEEPS = 20  # alternations between the two kinds of biases
_MIN_VARIANCE = 1e-12  # below it all biases of a group are equal


@dataclass(frozen=True)
class Biases:
    """The additive part of a rating: mean, biases, and the estimated variances of true user and item biases."""

    mean: float
    users: NDArray[np.float64]
    items: NDArray[np.float64]
    spreads: tuple[float, float] = (0.0, 0.0)


def fit_biases(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int, n_threads: int
) -> Biases:
    """Estimate user and item biases in alternation.

    A bias is shrunk towards a line in the logarithm of the number of ratings, since frequent items have higher ratings.
    The line counts as residual variance / bias variance ratings.
    """
    n_threads = threads_for_rows(len(values), n_threads, min_rows=500_000)
    mean = float(values.mean()) if len(values) else 0.0
    biases = [np.zeros(n_users), np.zeros(n_items)]
    groups = (users, items)
    counts = [np.bincount(g, minlength=len(b)) for g, b in zip(groups, biases, strict=True)]
    spreads = [group_variance(g, values, n) for g, n in zip(groups, counts, strict=True)]
    residual_variance = max(float(values.var()) - sum(spreads), 0.0) if len(values) else 0.0
    # Both orders of the ratings, so that the kernel reads each row's ratings in sequence.
    rated = _by_row(users, items, n_users, n_items, n_threads), _by_row(items, users, n_items, n_users, n_threads)
    centred = [np.bincount(g, values - mean, minlength=len(b)) for g, b in zip(groups, biases, strict=True)]
    for _ in range(_N_SWEEPS):
        for side, other in ((1, 0), (0, 1)):
            sums = np.empty(len(biases[side]))
            _kernel.sum_by_row(*rated[side], biases[other], sums, n_threads)
            np.subtract(centred[side], sums, out=sums)
            # The line is fitted again in each sweep, since it depends on the other side's biases.
            prior = _line(counts[side], sums, spreads[side], residual_variance)
            biases[side] = shrink(sums, counts[side], spreads[side], residual_variance, prior)
    return Biases(mean, biases[0], biases[1], (spreads[0], spreads[1]))


def _by_row(
    rows: np.ndarray, columns: np.ndarray, n_rows: int, n_columns: int, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of each row's ratings, and the columns in that order."""
    rows, columns = rows.astype(np.int32), columns.astype(np.int32)
    starts, order = sort_pairs(rows, columns, n_rows, n_columns, n_threads=n_threads)
    return starts, columns if order is None else columns[order]


def fit_means(groups: np.ndarray, values: np.ndarray, n_groups: int) -> tuple[float, np.ndarray]:
    """Return the mean of all values, and each group's deviation from it, shrunk."""
    mean = float(values.mean()) if len(values) else 0.0
    counts = np.bincount(groups, minlength=n_groups)
    spread = group_variance(groups, values, counts)
    residual_variance = max(float(values.var()) - spread, 0.0) if len(values) else 0.0
    return mean, shrink(np.bincount(groups, values - mean, minlength=n_groups), counts, spread, residual_variance)


def global_mean(users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int) -> Biases:
    """Return the mean of all values, 0 without values."""
    return Biases(float(values.mean()) if len(values) else 0.0, np.zeros(n_users), np.zeros(n_items))


def user_means(users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int) -> Biases:
    """Return the mean of all values, and each user's deviation from it, shrunk."""
    mean, biases = fit_means(users, values, n_users)
    return Biases(mean, biases, np.zeros(n_items))


def item_means(users: np.ndarray, items: np.ndarray, values: np.ndarray, n_users: int, n_items: int) -> Biases:
    """Return the mean of all values, and each item's deviation from it, shrunk."""
    mean, biases = fit_means(items, values, n_items)
    return Biases(mean, np.zeros(n_users), biases)


@one_blas_thread()
def group_variance(groups: np.ndarray, values: np.ndarray, counts: np.ndarray) -> float:
    """Return the unbiased estimate, at least 0, of the variance of group means by one-way analysis of variance."""
    is_present = counts > 0
    n, n_groups = len(values), int(is_present.sum())
    if n_groups < 2 or n == n_groups:
        return 0.0
    centred = values - values.mean()
    squares = np.bincount(groups, centred, minlength=len(counts))[is_present] ** 2 / counts[is_present]
    # Mean squares within and between groups; the divisor corrects for groups of different sizes.
    within = (float(centred @ centred) - squares.sum()) / (n - n_groups)
    between = squares.sum() - (n_groups - 1) * within
    return max(float(between / (n - (counts[is_present].astype(np.float64) ** 2).sum() / n)), 0.0)


def shrink(
    sums: np.ndarray, counts: np.ndarray, spread: float, residual_variance: float, prior: np.ndarray | float = 0.0
) -> np.ndarray:
    """Return the best linear estimate of each group's bias from the sum of its residuals."""
    if spread <= _MIN_VARIANCE:
        return np.zeros(len(sums)) + prior
    # The weight adds residual_variance / spread pseudo-ratings with the prior's value.
    weight = counts + residual_variance / spread
    return prior + np.divide(sums - counts * prior, weight, out=np.zeros(len(sums)), where=weight > 0)


@one_blas_thread()
def _line(counts: np.ndarray, sums: np.ndarray, spread: float, residual_variance: float) -> np.ndarray:
    """Return the line in log(1 + count) through the groups' mean residuals, weighted by their precision."""
    # The variance of a group's mean residual is spread + residual_variance / count.
    x = np.log1p(counts)
    weights = counts / np.maximum(counts * spread + residual_variance, _MIN_VARIANCE)
    total = weights.sum()
    if not total:
        return np.zeros(len(counts))
    means = sums / np.maximum(counts, 1)
    centre, level = weights @ x / total, weights @ means / total
    power = weights @ (x - centre) ** 2
    slope = weights @ ((x - centre) * means) / power if power > _MIN_VARIANCE * total else 0.0
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
    """Estimate biases if rated items are hidden, from unbiased estimates of "is rated", and of it times the rating."""
    low, high = scale
    total = float(rated.sum())
    mean = min(max(float(products.sum()) / total, low), high) if total > 0 else (low + high) / 2
    # Its expected value is the sum of both biases for a rated item, and 0 for any other.
    excess = products - mean * rated
    biases, spreads = [], []
    for groups, n_groups in ((users, n_users), (items, n_items)):
        n_reports = np.bincount(groups, minlength=n_groups)
        noise, noise_rated = float(np.mean(excess**2)), float(np.var(rated))
        sums = np.bincount(groups, excess, minlength=n_groups)
        counts = np.bincount(groups, rated, minlength=n_groups)
        # Squares exceed their noiseless value by the noise's variance, which is known: nearly every report is noise.
        signal = float((counts**2 - n_reports * noise_rated).sum())
        spread = max(float((sums**2 - n_reports * noise).sum()), 0.0) / signal if signal > 0 else 0.0
        # Counts below 0 or above the number of reports can only be noise.
        density = max(total, 0.0) / max(len(rated), 1)
        share = group_variance(groups, rated, n_reports)
        rated_estimate = (
            n_reports * density + shrink(counts - n_reports * density, n_reports, share, noise_rated) * n_reports
        )
        rated_estimate = np.clip(rated_estimate, 0.0, n_reports)
        # The best linear estimate with the variances of signal and noise, as in `shrink`.
        power = rated_estimate**2 * spread + n_reports * noise
        biases.append(np.divide(rated_estimate * spread * sums, power, out=np.zeros(n_groups), where=power > 0))
        spreads.append(spread)
    return Biases(mean, biases[0], biases[1], (spreads[0], spreads[1]))
