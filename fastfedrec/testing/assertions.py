"""Assertions about private mechanisms.

Each assertion includes a negative control: the same check must reject a mechanism that is wrong by a stated share.  A
check that cannot detect the error fails as well, because it would pass for any mechanism.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fastfedrec.audit import AuditResult, audit
from fastfedrec.core.check import check_array, check_choice, check_integer, check_real
from fastfedrec.core.randomness import Key

__all__ = ["ALPHA", "assert_clipped", "assert_epsilon", "assert_unbiased"]

__dir__ = __all__.copy  # dir() lists only the public names

#: Probability that one statistical assertion fails for a correct mechanism.  A suite of a thousand such assertions
#: then raises a false alarm once in a thousand runs.
ALPHA = 1e-6

_N_ROWS = 128  # rows of each kind in `assert_clipped`


def assert_unbiased(estimates: ArrayLike, expected: Any, *, stddev: Any, control: float = 0.1) -> None:
    """Assert that the mean of independent estimates is the expected one, and that a bias would be detected.

    Parameters
    ----------
    estimates : array_like of shape (n,) or (n, d)
        Estimates, independent from row to row.
    expected : float or array_like of shape (d,)
        Expected mean.
    stddev : float or array_like of shape (d,)
        Known standard deviation of one estimate, or an upper bound.  Do not pass the sample's standard deviation: a
        mechanism with too much noise would widen its test.
    control : float
        Bias that must be detected, as a share of the largest ``abs(expected)``; greater than 0.

    Raises
    ------
    AssertionError
        A mean is wrong, an estimate is not finite, or n is too small for the control.
    ValueError
        `expected` is 0 everywhere, so that the bias of the control would be 0.

    Notes
    -----
    The means are compared with normal quantiles at `ALPHA`, divided by the number of coordinates, so n must be large
    enough for the central limit theorem.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> from fastfedrec.mechanisms import BinaryResponse
    >>> from fastfedrec.testing import assert_unbiased
    >>> channel = BinaryResponse(1.0)
    >>> answers = channel.privatize([0.5] * 200_000, key=Key.from_seed(1))
    >>> assert_unbiased(channel.estimate(answers), 0.5, stddev=channel.value_variance(0.5) ** 0.5)
    >>> assert_unbiased(1.1 * channel.estimate(answers), 0.5, stddev=channel.value_variance(0.5) ** 0.5)
    Traceback (most recent call last):
    AssertionError: the mean is 0.55..., expected 0.5 +- 0.023
    """
    estimates = np.asarray(estimates, dtype=np.float64)
    control = check_real("control", control, low=0.0, exclusive=True)
    if estimates.ndim not in (1, 2) or not estimates.size:
        raise ValueError(f"estimates must have shape (n,) or (n, d) and not be empty, got {estimates.shape}")
    is_vector = estimates.ndim == 2
    estimates = estimates.reshape(len(estimates), -1)
    expected, stddev = (
        np.broadcast_to(check_array(name, np.atleast_1d(value), ndim=1), estimates.shape[1:])
        for name, value in (("expected", expected), ("stddev", stddev))
    )
    if (stddev <= 0).any():
        raise ValueError(f"stddev must be greater than 0, got {stddev.min()}")
    if not expected.any():
        raise ValueError("expected must not be 0 everywhere: no share of it is a bias; estimate another value")
    if not np.isfinite(estimates).all():
        raise AssertionError(f"{(~np.isfinite(estimates)).sum()} of {estimates.size} estimates are not finite")
    quantile = -float(scipy.special.ndtri(ALPHA / 2 / expected.size))
    # The quantile is two-sided, with a Bonferroni correction for the coordinates.
    width = quantile * stddev / math.sqrt(len(estimates))
    means = estimates.mean(axis=0)

    def is_rejected(supposed: np.ndarray) -> np.ndarray:
        return np.abs(means - supposed) > width

    if (wrong := is_rejected(expected)).any():
        j = int(np.argmax(wrong))
        coordinate = f" of coordinate {j}" if is_vector else ""
        raise AssertionError(f"the mean{coordinate} is {means[j]:.6g}, expected {expected[j]:.6g} +- {width[j]:.3g}")
    bias = control * float(np.abs(expected).max())
    # Negative control: the same test must reject a bias in either direction, in every coordinate.
    if not (is_rejected(expected + bias).all() and is_rejected(expected - bias).all()):
        # If twice `width` is at most the bias, the control succeeds on every sample that passes the test.
        n_sufficient = math.ceil((2 * quantile * float(stddev.max()) / bias) ** 2)
        raise AssertionError(
            f"control: a bias of {bias:.3g} would pass with {len(estimates)} estimates; use {n_sufficient} or more"
        )


def assert_epsilon(
    mechanism: Any,
    x0: Any,
    x1: Any,
    claim: float,
    n: int | None = None,
    *,
    delta: float = 0.0,
    measure: str = "auto",
    key: Key | None = None,
    control: float = 0.1,
) -> AuditResult:
    """Assert that an audit does not refute a claim, and that it refutes a slightly smaller one.

    Parameters
    ----------
    mechanism, x0, x1, claim, n, delta, measure, key : object
        Arguments of `fastfedrec.audit.audit`; its alpha is `ALPHA`.
    control : float
        Share in (0, 1): the claim lowered by it must be violated.  Raise it if the inputs spend less than the claim.

    Returns
    -------
    AuditResult
        Result of the audit.

    Raises
    ------
    AssertionError
        The claim is violated, or the lowered claim of the control is not.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import Key
    >>> from fastfedrec.testing import assert_epsilon
    >>> class Mine:  # randomized response of a bit, claimed to be 1-DP
    ...     keep = np.e / (1 + np.e)
    ...     def privatize(self, bits, *, key, round):
    ...         return np.where(key.uniform("mine", round=round, size=len(bits)) < self.keep, bits, 1 - bits)
    >>> result = assert_epsilon(Mine(), 0, 1, claim=1.0, key=Key.from_seed(1))
    >>> 0.9 < result.lower_bound <= 1.0
    True
    >>> Mine.keep *= 1.05
    >>> assert_epsilon(Mine(), 0, 1, claim=1.0, key=Key.from_seed(1))
    Traceback (most recent call last):
    AssertionError: VIOLATED: epsilon is at least 1.1..., the claim is 1...
    """
    control = check_real("control", control, low=0.0, high=1.0, exclusive=True)
    claim = check_real("claim", claim)
    result = audit(mechanism, x0, x1, claim, n, ALPHA, delta=delta, measure=measure, key=key)
    if result.verdict == "violated":
        raise AssertionError(str(result))
    shown = result.lower_bound if result.overall is None else result.overall
    if not shown > (1 - control) * result.claim:  # both are in the measure of the result
        raise AssertionError(
            f"control: a claim of {(1 - control) * result.claim:.5g} would pass too, because only {shown:.5g} is "
            "shown; draw more, choose inputs further apart, or lower the claim or raise control if no inputs spend it\n"
            f"{result}"
        )
    return result


def assert_clipped(
    clip: Callable[[np.ndarray, float], np.ndarray],
    clip_norm: float = 1.0,
    *,
    norm: str = "l2",
    dtype: Any = np.float64,
    n_columns: int = 20,
) -> None:
    """Assert that no clipped row exceeds its bound in exact arithmetic, and that rows are not clipped too much.

    Parameters
    ----------
    clip : callable
        Function ``clip(rows, clip_norm)`` from an array of shape (n_rows, n_columns) to one of the same shape.
    clip_norm : float
        Upper bound on the norm, greater than 0.
    norm : str
        Norm of rows: "l2" or "l1".
    dtype : dtype
        Type of rows: np.float64 or np.float32.
    n_columns : int
        Number of columns, from 2 to 2^24: a row of one value is clipped without rounding.

    Raises
    ------
    AssertionError
        A clipped row is too long or not finite; a row within half the bound was changed; a long row is shorter than
        0.999 of the bound; or a control passes.

    Notes
    -----
    The rows are fixed: long and short rows, zeros, subnormal and huge values, NaN and infinities.  Three controls must
    fail on them: the textbook ``x * min(1, c / |x|)``, and `clip` at 0.9 and 1.1 of the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.testing import assert_clipped
    >>> def textbook(rows, c):
    ...     norms = np.linalg.norm(rows, axis=1, keepdims=True)
    ...     return rows * np.where(norms > c, c / norms, 1)
    >>> with np.errstate(all="ignore"):
    ...     assert_clipped(textbook)
    Traceback (most recent call last):
    AssertionError: row ... is longer than 1 by a factor of 1 + ...e-1...; ... of 390 rows are wrong
    """
    clip_norm = check_real("clip_norm", clip_norm, low=0.0, exclusive=True)
    check_choice("norm", norm, ("l1", "l2"))
    n_columns = check_integer("n_columns", n_columns, low=2, high=2**24)
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, got {kind}")
    rows = _rows_to_clip(clip_norm, norm, kind, n_columns)

    def find_faults(clipped: Any) -> list[str]:
        clipped = np.asarray(clipped)
        if clipped.shape != rows.shape or clipped.dtype.kind != "f":
            raise AssertionError(f"clip must return floats of shape {rows.shape}, got {clipped.dtype} {clipped.shape}")
        faults = (
            _fault(i, row, result, clip_norm, norm) for i, (row, result) in enumerate(zip(rows, clipped, strict=True))
        )
        return [fault for fault in faults if fault]

    if faults := find_faults(clip(rows.copy(), clip_norm)):
        raise AssertionError(f"{faults[0]}; {len(faults)} of {len(rows)} rows are wrong")
    # The textbook clip overflows on huge rows and divides by 0 on rows of zeros.
    with np.errstate(all="ignore"):
        textbook = rows * np.minimum(1, clip_norm / _float_norms(rows, norm)).astype(kind)
    for name, clipped in (
        ("the textbook clip", textbook),
        ("a bound 10% too small", clip(rows.copy(), 0.9 * clip_norm)),
        ("a bound 10% too large", clip(rows.copy(), 1.1 * clip_norm)),
    ):
        if not find_faults(clipped):
            raise AssertionError(f"control: {name} would pass on these rows; use more columns")


def _rows_to_clip(clip_norm: float, norm: str, kind: np.dtype, n_columns: int) -> np.ndarray:
    size = (_N_ROWS, n_columns)
    long, short, factors = (
        Key.from_seed(0).normal("testing.rows", user=i, size=size[0] * size[1]).reshape(size) for i in range(3)
    )
    long *= clip_norm * (1.5 + 1000.0 ** factors[:, :1]) / _float_norms(long, norm)
    short *= clip_norm * 0.5 * np.abs(np.tanh(factors[:, :1])) / _float_norms(short, norm)
    limits = np.finfo(kind)
    single = [0.0, limits.smallest_subnormal, limits.max / 2, math.nan, math.inf, -math.inf]
    special = np.zeros((len(single) + _N_ROWS, n_columns))
    special[: len(single)] = np.array(single)[:, None]
    special[len(single) :, 0] = clip_norm * np.geomspace(1.01, 1e6, _N_ROWS)  # long in one coordinate
    special[len(single) :, 1] = clip_norm
    return np.concatenate([long, short, special]).astype(kind)


def _float_norms(rows: np.ndarray, norm: str) -> np.ndarray:
    lengths = np.abs(rows).sum(axis=1) if norm == "l1" else np.sqrt((rows**2).sum(axis=1))
    return lengths[:, None]


def _fault(i: int, row: np.ndarray, clipped: np.ndarray, clip_norm: float, norm: str) -> str | None:
    """Return the fault of one clipped row, by rational arithmetic, or None."""
    if not np.isfinite(clipped).all():
        return f"row {i} is not finite after clipping"
    # The p-th power of the norm is rational, unlike the L2 norm.
    power = 1 if norm == "l1" else 2
    length = sum(abs(Fraction(float(v))) ** power for v in clipped)
    bound = Fraction(clip_norm) ** power
    if length > bound:
        return f"row {i} is longer than {clip_norm:g} by a factor of 1 + {float(length / bound - 1) / power:.1e}"
    largest = float(np.abs(row).max())
    if not largest < 1e30:
        return None  # a function may reject such a long row as a whole
    exact = [Fraction(float(v)) for v in row]
    before = sum(abs(v) ** power for v in exact)
    if before > bound and length < bound * Fraction(999, 1000) ** power:
        return f"row {i} is {float(length / bound) ** (1 / power):.4f} of the bound long, clipped more than needed"
    tolerance = Fraction(clip_norm) / 1000
    if before <= bound / 2**power and any(
        abs(Fraction(float(v)) - x) > tolerance for v, x in zip(clipped, exact, strict=True)
    ):
        return f"row {i} was within half of {clip_norm:g} and was changed"
    return None
