"""Bootstrap intervals over users, paired permutation tests, Holm's correction, and standard errors of shares."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer, check_real
from fastfedrec.core.randomness import Key
from fastfedrec.core.threads import one_blas_thread

__all__ = ["bootstrap_sums", "fit_deviations", "holm", "share_error", "sign_test"]

# Number of draws, or signs, in memory at a time.
_BLOCK_CELLS = 2**20


def bootstrap_sums(columns: np.ndarray, n_resamples: int, key: Key) -> NDArray[np.float64]:
    """Return sums of columns over bootstrap resamples of the users, each with `n_users` draws with replacement.

    Parameters
    ----------
    columns : ndarray of shape (n_users, n_columns), float64
        Values to add up, of at least one user.
    n_resamples : int
        Number of resamples.
    key : Key
        Random key of the draws; the function does not consume it.

    Returns
    -------
    ndarray of shape (n_resamples, n_columns), float64
        Sums of each resample.

    References
    ----------
    .. [1] Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.
    """
    n_users = len(columns)
    sums = np.empty((n_resamples, columns.shape[1]))
    step = max(1, _BLOCK_CELLS // n_users)
    with one_blas_thread():  # the order of a sum, and so its rounding, would depend on the number of threads
        for block, start in enumerate(range(0, n_resamples, step)):
            n_rows = min(step, n_resamples - start)
            words = key.words("evaluation.bootstrap", round=block, size=(n_rows * n_users + 1) // 2)
            drawn = words.view(np.uint32)[: n_rows * n_users].reshape(n_rows, n_users)
            # A 32-bit word times n_users, divided by 2^32, is below n_users, and uniform up to n_users / 2^32.
            users = (drawn * np.uint64(n_users)) >> np.uint64(32)
            # One `bincount` counts the draws of all resamples: resample r has the bins from r * n_users.
            users += np.arange(n_rows, dtype=np.uint64)[:, None] * np.uint64(n_users)
            counts = np.bincount(users.ravel().view(np.int64), minlength=n_rows * n_users)
            sums[start : start + n_rows] = counts.reshape(n_rows, n_users).astype(np.float64) @ columns
    return sums


def fit_deviations(values: Sequence[float], n_draws: int, key: Key, name: str) -> NDArray[np.float64]:
    """Draw deviations of the mean over fits from its expectation, by the t distribution.

    Parameters
    ----------
    values : sequence of float
        Metric of each fit.
    n_draws : int
        Number of draws.
    key : Key
        Random key of the draws; the function does not consume it.
    name : str
        Name of the metric; each name has draws of its own.

    Returns
    -------
    ndarray of shape (n_draws,), float64
        Draws of t times the standard error of the mean, with one degree of freedom less than there are fits; zeros for
        a single fit, which shows no variation.

    References
    ----------
    .. [1] Student, "The probable error of a mean", Biometrika 6, 1908.
    """
    if len(values) < 2:
        return np.zeros(n_draws)
    from scipy.special import stdtrit

    standard_error = statistics.stdev(values) / math.sqrt(len(values))
    return standard_error * stdtrit(len(values) - 1, key.uniform(f"evaluation.fits/{name}", size=n_draws))


def sign_test(
    differences: np.ndarray, n_permutations: int, key: Key, noise: np.ndarray | None = None
) -> NDArray[np.float64]:
    """Return two-sided p-values of a paired permutation test of each column.

    Parameters
    ----------
    differences : ndarray of shape (n_users, n_tests), float64
        Value of the first minus value of the second model for each user.
    n_permutations : int
        Number of random permutations.  If there are at most this many, 2^n_users, the test uses all of them.
    key : Key
        Random key of the draws; the function does not consume it.
    noise : ndarray of shape (n_permutations, n_tests), float64, or None
        Draws of the deviations of both models' sums between fits, which are added to the sums of the permutations.

    Returns
    -------
    ndarray of shape (n_tests,), float64
        Share of permutations with a sum at least as far from 0 as the observed sum, which counts as one of the random
        permutations.

    References
    ----------
    .. [1] Good, "Permutation, parametric and bootstrap tests of hypotheses", 2005, section 3.
    .. [2] Phipson and Smyth, "Permutation p-values should never be zero", Statistical Applications in Genetics and
       Molecular Biology 9(1), 2010.
    """
    n_users = len(differences)
    is_exact = noise is None and n_users < 63 and 2**n_users <= n_permutations
    total = 2**n_users if is_exact else n_permutations
    observed = differences.sum(axis=0)
    # The tolerance makes sums that differ only by rounding equally far from 0.
    min_distance = np.abs(observed) - 1e-12 * np.abs(differences).sum(axis=0)
    as_far = np.zeros(differences.shape[1], dtype=np.int64)
    step = max(1, _BLOCK_CELLS // max(n_users, 1))
    with one_blas_thread():
        for block, start in enumerate(range(0, total, step)):
            n_rows = min(step, total - start)
            exchanged: np.ndarray
            if is_exact:
                # Bit u of a permutation's number states whether user u's two values are exchanged.
                exchanged = (np.arange(start, start + n_rows)[:, None] >> np.arange(n_users)) & 1
            else:
                words = key.words("evaluation.permutations", round=block, size=n_rows * ((n_users + 63) // 64))
                exchanged = np.unpackbits(words.view(np.uint8).reshape(n_rows, -1), axis=1, count=n_users)
            # An exchange changes the sign of a user's difference, so it subtracts the difference twice.
            sums = observed - 2.0 * (exchanged.astype(np.float64) @ differences)
            if noise is not None:
                sums += noise[start : start + n_rows]
            as_far += (np.abs(sums) >= min_distance).sum(axis=0)
    return as_far / total if is_exact else (as_far + 1) / (total + 1)


def holm(p_values: np.ndarray) -> NDArray[np.float64]:
    """Return p-values with Holm's correction.

    The probability of at least one false rejection among the tests with a corrected p-value below alpha is at most
    alpha.

    Parameters
    ----------
    p_values : ndarray of shape (n_tests,), float64
        p-values of all tests.

    Returns
    -------
    ndarray of shape (n_tests,), float64
        Corrected p-values in the same order.

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
    """Return the standard error of a mean of shares over seeds.

    Parameters
    ----------
    values : sequence of float
        Share of each seed, in [0, 1].
    n_tested : int
        Number of tested users of one seed; the seeds may test the same users.

    Returns
    -------
    float
        Maximum of the standard error over seeds and the binomial standard error over the users of one seed.
    """
    values = [check_real(f"values[{i}]", value, low=0.0, high=1.0) for i, value in enumerate(values)]
    n_tested = check_integer("n_tested", n_tested, low=1)
    share = statistics.fmean(values)
    # More seeds do not reduce the variation between users if all seeds test the same users.
    binomial_error = math.sqrt(max(share * (1 - share), 0.0) / n_tested)
    return max(binomial_error, statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0)
