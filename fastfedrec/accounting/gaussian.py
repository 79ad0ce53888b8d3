"""Gaussian noise without sampling: its exact delta and epsilon, and the noise that a target requires.

With mu = sensitivity / stddev (the root of the sum of squares, if several releases are composed), a = epsilon / mu -
mu / 2 and b = a + mu, delta = Phi(-a) - e^epsilon Phi(-b) = phi(a) (R(a) - R(b)), where R(x) = Phi(-x) / phi(x) falls.
"""

import math
from fractions import Fraction

import numpy as np
import scipy

from fastfedrec.accounting.rounding import log1p_exp, up
from fastfedrec.core.check import check_epsilon, check_real
from fastfedrec.core.numbers import float_up

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu", "pure_mu"]

# Margin of the logarithm of delta, a thousand times its rounding errors.
_MARGIN = 2.0**-40
_LOG_ROOT = math.log(2 * math.pi) / 2
_ROOT_HALF = math.sqrt(0.5)
# Number of standard deviations above which the tail mass is below the smallest float.  On the other side delta is 1.
_MAX_STDDEVS = 40.0
# Arguments above which 1 - x R(x) is a continued fraction, and above which delta has a simple bound.
_FAR, _FAR_OUT = 20.0, 1e3
_MAX_STEPS = 200
# Relative precision at which a search stops.
_PRECISION = 2.0**-46
_SMALL_EPSILON = 1 / 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Compute the largest mu = sensitivity / stddev of (`epsilon`, `delta`)-differentially private Gaussian noise.

    The result is the root of delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).  Releases compose by
    the sum of mu^2.

    Parameters
    ----------
    epsilon : float
        Epsilon in nats.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Largest mu, rounded down: the delta of the float itself, in exact arithmetic, is at most `delta`.

    References
    ----------
    .. [1] Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018, Theorem 8.
    .. [2] Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022, Corollary 1 (composition).

    Examples
    --------
    >>> from fastfedrec.accounting import gaussian_mu
    >>> [round(gaussian_mu(epsilon, 1e-6), 3) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    [0.124, 0.237, 0.448, 0.838]
    """
    epsilon = check_epsilon("epsilon", epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, exclusive=True)
    exact, target = Fraction(epsilon), math.log(delta)
    # At epsilon 0 delta is below mu / 2, so the lower end is valid.  At the upper end a is below -40.
    low, high = delta, 2 * math.sqrt(epsilon) + 2 * _MAX_STDDEVS
    for _ in range(_MAX_STEPS):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high or high - low <= _PRECISION * low:
            break
        meets = _log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target
        low, high = (middle, high) if meets else (low, middle)
    return low


def gaussian_delta(mu_squared: Fraction, epsilon: float) -> float:
    """Return the delta of Gaussian noise at an epsilon.

    Parameters
    ----------
    mu_squared : Fraction
        Exact sum of mu^2 over all releases.
    epsilon : float
        Epsilon in nats, at least 0.

    Returns
    -------
    float
        Delta, rounded up.
    """
    mu = _root(mu_squared)
    if math.isinf(mu):
        return 1.0
    return math.nextafter(math.exp(_log_delta(_centre(Fraction(epsilon), mu_squared, mu), mu)), 1.0)


def gaussian_epsilon(mu_squared: Fraction, delta: float) -> float:
    """Return the epsilon of Gaussian noise at a delta.

    Parameters
    ----------
    mu_squared : Fraction
        Exact sum of mu^2 over all releases.
    delta : float
        Delta, in (0, 1).

    Returns
    -------
    float
        Epsilon, rounded up: the exact delta of the float is at most `delta`.
    """
    mu, target = _root(mu_squared), math.log(delta)

    def meets(epsilon):
        return _log_delta(_centre(Fraction(epsilon), mu_squared, mu), mu) <= target

    if math.isinf(mu):
        return math.inf
    if meets(0.0):
        return 0.0
    low, high = 0.0, float_up(mu_squared / 2 + Fraction(_MAX_STDDEVS) * Fraction(mu))
    if math.isinf(high):
        return high
    for _ in range(_MAX_STEPS):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= _PRECISION * low:
            break
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def pure_mu(epsilon: float) -> float:
    """Return the mu of Gaussian noise that costs at least as much as every epsilon-private release.

    Parameters
    ----------
    epsilon : float
        Pure epsilon in nats, above 0; it may be infinite.

    Returns
    -------
    float
        -2 Phi^-1(1 / (1 + e^epsilon)), rounded up.

    Notes
    -----
    The trade-off of an epsilon-private release is at least the one of randomized response, which is linear from (0, 1)
    to (p, p) and to (1, 0) with p = 1 / (1 + e^epsilon).  The trade-off of Gaussian noise is convex and has these three
    points for this mu, so it is nowhere above.
    """
    # Near 0 the quantile would cancel.  Since Mills' ratio has a convex inverse (Sampford 1953), mu is concave in
    # epsilon, and its tangent at 0 is a bound, off by less than 1e-4 of itself here.
    if epsilon < _SMALL_EPSILON:
        return up(epsilon * math.sqrt(math.pi / 2))
    return up(-2 * float(scipy.special.ndtri_exp(-log1p_exp(epsilon))))


def _root(square):
    """Return the root of an exact number, to the last place but one; infinite for very large numbers."""
    if square > Fraction(10) ** 320:
        return math.inf
    # The number is scaled by a power of 4, so that the integer root has about 64 bits.
    shift = (square.denominator.bit_length() - square.numerator.bit_length()) // 2 + 64
    scaled = square * Fraction(4) ** shift
    return max(math.ldexp(math.isqrt(scaled.numerator // scaled.denominator), -shift), 1e-300)


def _centre(epsilon, mu_squared, mu):
    """Return a = (epsilon - mu^2 / 2) / mu, with an exact difference."""
    try:
        return float(epsilon - mu_squared / 2) / mu
    except OverflowError:
        return math.inf if epsilon > mu_squared / 2 else -math.inf


def _log_delta(a, mu):
    """Return the logarithm of delta, rounded up."""
    if a < -_MAX_STDDEVS:
        return 0.0
    if a > _FAR_OUT:
        # delta is at most phi(a) / a.  The square of a number above 1e100 might overflow.
        return -(min(a, 1e100) ** 2) / 2 * (1 - 2.0**-48) - _LOG_ROOT - math.log(a) + _MARGIN
    b = a + mu
    if mu < 1:
        # R(a) - R(b) is the integral of -R' = 1 - x R(x), which is positive.
        at = a + mu * (1 + _NODES) / 2
        log_difference = math.log(mu / 2) + math.log(float((_WEIGHTS * _slope(at)).sum()))
    elif a > 0:
        log_difference = math.log(_ratio(a) - _ratio(b))
    else:
        inner = scipy.special.ndtr(-a) - math.exp(-a * a / 2 - _LOG_ROOT) * _ratio(b)
        return min(0.0, math.log(inner) + _MARGIN)
    # a is off by a few 2^-53 of itself, and its square by a few 2^-53 of a^2.
    exponent = -a * a / 2 * (1 - 2.0**-48)
    return min(0.0, exponent - _LOG_ROOT + log_difference + _MARGIN)


def _ratio(x):
    """Return Mills' ratio R(x)."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(x * _ROOT_HALF))


def _slope(x):
    """Return 1 - x R(x) at each x of a rising array."""
    near = 1 - x * math.sqrt(math.pi / 2) * scipy.special.erfcx(np.minimum(x, _FAR) * _ROOT_HALF)
    if x[-1] < _FAR:
        return near
    # For large x the difference would cancel, so the continued fraction R(x) = 1 / (x + 1 / (x + 2 / (x + 3 / ...)))
    # is evaluated from its end.
    far = np.maximum(x, _FAR)
    tail = far
    for k in range(30, 1, -1):
        tail = far + k / tail
    return np.where(x < _FAR, near, 1 / (far * tail + 1))
