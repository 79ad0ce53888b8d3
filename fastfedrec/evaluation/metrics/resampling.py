"""Intervals by the bootstrap over users, paired tests by permutation, Holm's correction, and errors of shares."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

__all__ = ["bootstrap_sums", "holm", "share_error", "sign_test"]

_BLOCK_CELLS = 2**20  # draws, or signs, held at once


def bootstrap_sums(columns: np.ndarray, n_resamples: int, key: Key) -> NDArray[np.float64]:
    """Sums of columns over users who are drawn with replacement, as many as there are.

    Parameters
    ----------
    columns : ndarray of shape (n_users, n_columns), float64
        What is added up; at least one user.
    n_resamples : int
        How often.
    key : Key
        Source of the draws; it is not used up.

    Returns
    -------
    ndarray of shape (n_resamples, n_columns), float64
        A row for each resample.

    References
    ----------
    .. [1] Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.
    """
    n_users = len(columns)
    sums = np.empty((n_resamples, columns.shape[1]))
    step = max(1, _BLOCK_CELLS // n_users)
    with one_blas_thread():  # a sum's order, and so its bits, would depend on threads
        for block, start in enumerate(range(0, n_resamples, step)):
            n_rows = min(step, n_resamples - start)
            words = key.words("evaluation.bootstrap", round=block, size=(n_rows * n_users + 1) // 2)
            drawn = words.view(np.uint32)[: n_rows * n_users].reshape(n_rows, n_users)
            # A 32-bit number times n_users, divided by 2^32: below n_users, and uniform to n_users / 2^32.
            users = (drawn * np.uint64(n_users)) >> np.uint64(32)
            users += np.arange(n_rows, dtype=np.uint64)[:, None] * np.uint64(n_users)
            counts = np.bincount(users.ravel().view(np.int64), minlength=n_rows * n_users)
            sums[start : start + n_rows] = counts.reshape(n_rows, n_users).astype(np.float64) @ columns
    return sums


def sign_test(differences: np.ndarray, n_permutations: int, key: Key) -> NDArray[np.float64]:
    """Two-sided p-values of a paired permutation test of each column: that both of a pair could be exchanged.

    Parameters
    ----------
    differences : ndarray of shape (n_users, n_tests), float64
        First minus second of each user.
    n_permutations : int
        How many exchanges are drawn; where that is as many as there are at all, all of them are taken instead.
    key : Key
        Source of the draws; it is not used up.

    Returns
    -------
    ndarray of shape (n_tests,), float64
        Share of exchanges whose sum is as far from 0 as the one that was seen, which is counted among those drawn.

    References
    ----------
    .. [1] Good, "Permutation, parametric and bootstrap tests of hypotheses", 2005, section 3.
    .. [2] Phipson and Smyth, "Permutation p-values should never be zero", Statistical Applications in Genetics and
       Molecular Biology 9(1), 2010.
    """
    n_users = len(differences)
    is_exact = n_users < 63 and 2**n_users <= n_permutations
    total = 2**n_users if is_exact else n_permutations
    seen = differences.sum(axis=0)
    # Sums that are equal but for rounding are as far from 0.
    least = np.abs(seen) - 1e-12 * np.abs(differences).sum(axis=0)
    as_far = np.zeros(differences.shape[1], dtype=np.int64)
    step = max(1, _BLOCK_CELLS // max(n_users, 1))
    with one_blas_thread():
        for block, start in enumerate(range(0, total, step)):
            n_rows = min(step, total - start)
            exchanged: np.ndarray
            if is_exact:
                exchanged = (np.arange(start, start + n_rows)[:, None] >> np.arange(n_users)) & 1
            else:
                words = key.words("evaluation.permutations", round=block, size=n_rows * ((n_users + 63) // 64))
                exchanged = np.unpackbits(words.view(np.uint8).reshape(n_rows, -1), axis=1, count=n_users)
            sums = seen - 2.0 * (exchanged.astype(np.float64) @ differences)
            as_far += (np.abs(sums) >= least).sum(axis=0)
    return as_far / total if is_exact else (as_far + 1) / (total + 1)


def holm(p_values: np.ndarray) -> NDArray[np.float64]:
    """Holm's correction of p-values, by which the chance of any false one among those below alpha is at most alpha.

    Parameters
    ----------
    p_values : ndarray of shape (n_tests,), float64
        Of all tests that are made.

    Returns
    -------
    ndarray of shape (n_tests,), float64
        In the same order.

    References
    ----------
    .. [1] Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.

    Examples
    --------
    >>> from fastfedrec.evaluation.metrics.resampling import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0) if len(p_values) else []
    return adjusted


def share_error(values: Sequence[float], n_tested: int) -> float:
    """Standard error of the mean of some shares.

    Parameters
    ----------
    values : sequence of float
        One for each seed, between 0 and 1.
    n_tested : int
        Users under one seed, who may be the same people under the next.

    Returns
    -------
    float
        Over seeds, and never less than that of a share among the users of one seed.
    """
    values = [check_real(f"values[{i}]", value, low=0.0, high=1.0) for i, value in enumerate(values)]
    n_tested = check_integer("n_tested", n_tested, low=1)
    share = statistics.fmean(values)
    of_users = math.sqrt(max(share * (1 - share), 0.0) / n_tested)
    return max(of_users, statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0)
