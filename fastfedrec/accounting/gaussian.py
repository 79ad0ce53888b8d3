"""Gaussian noise without sampling: its exact delta and epsilon, and the noise that a target asks for.

With mu = sensitivity / stddev (the root of the sum of squares, where several releases are composed), a = epsilon / mu -
mu / 2 and b = a + mu, delta = Phi(-a) - e^epsilon Phi(-b) = phi(a) (R(a) - R(b)), where R(x) = Phi(-x) / phi(x) falls.
"""

import math
from fractions import Fraction

import numpy as np
import scipy

from fastfedrec.core.check import check_epsilon, check_real
from fastfedrec.core.numbers import float_up

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_mu"]

_MARGIN = 2.0**-40  # of the logarithm of delta: a thousand times its rounding errors
_LOG_ROOT = math.log(2 * math.pi) / 2
_ROOT_HALF = math.sqrt(0.5)
_BEYOND = 40.0  # stddevs: further out there is less mass than the least float, and delta from the other side is 1
_FAR, _FAR_OUT = 20.0, 1e3
_MOST_STEPS = 200
_PRECISION = 2.0**-46  # at which a search stops
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu = sensitivity / stddev at which Gaussian noise is (`epsilon`, `delta`)-differentially private.

    The root of delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu); releases compose as mu^2 adds up.

    Parameters
    ----------
    epsilon : float
        In nats.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Rounded down: the delta of the float itself, in exact arithmetic, is at most `delta`.

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
    # At epsilon 0 delta is below mu / 2; and at the upper end a is below -40.
    low, high = delta, 2 * math.sqrt(epsilon) + 2 * _BEYOND
    for _ in range(_MOST_STEPS):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high or high - low <= _PRECISION * low:
            break
        meets = _log_delta(_centre(exact, Fraction(middle) ** 2, middle), middle) <= target
        low, high = (middle, high) if meets else (low, middle)
    return low


def gaussian_delta(mu_squared: Fraction, epsilon: float) -> float:
    """The delta of Gaussian noise at an epsilon.

    Parameters
    ----------
    mu_squared : Fraction
        Of all releases together, exact.
    epsilon : float
        At least 0.

    Returns
    -------
    float
        Rounded up.
    """
    mu = _root(mu_squared)
    if math.isinf(mu):
        return 1.0
    return math.nextafter(math.exp(_log_delta(_centre(Fraction(epsilon), mu_squared, mu), mu)), 1.0)


def gaussian_epsilon(mu_squared: Fraction, delta: float) -> float:
    """The epsilon of Gaussian noise at a delta.

    Parameters
    ----------
    mu_squared : Fraction
        Of all releases together, exact.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Rounded up: the exact delta of the float is at most `delta`.
    """
    mu, target = _root(mu_squared), math.log(delta)

    def meets(epsilon):
        return _log_delta(_centre(Fraction(epsilon), mu_squared, mu), mu) <= target

    if math.isinf(mu):
        return math.inf
    if meets(0.0):
        return 0.0
    low, high = 0.0, float_up(mu_squared / 2 + Fraction(_BEYOND) * Fraction(mu))
    if math.isinf(high):
        return high
    for _ in range(_MOST_STEPS):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= _PRECISION * low:
            break
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def _root(square):
    """The root of an exact number, to the last place but one; infinite where it is as good as that."""
    if square > Fraction(10) ** 320:
        return math.inf
    shift = (square.denominator.bit_length() - square.numerator.bit_length()) // 2 + 64
    scaled = square * Fraction(4) ** shift
    return max(math.ldexp(math.isqrt(scaled.numerator // scaled.denominator), -shift), 1e-300)


def _centre(epsilon, mu_squared, mu):
    """A = (epsilon - mu^2 / 2) / mu, whose difference is exact."""
    try:
        return float(epsilon - mu_squared / 2) / mu
    except OverflowError:
        return math.inf if epsilon > mu_squared / 2 else -math.inf


def _log_delta(a, mu):
    """The logarithm of delta, rounded up."""
    if a < -_BEYOND:
        return 0.0
    if a > _FAR_OUT:
        # delta is at most phi(a) / a; the square of a number beyond 1e100 might not be one
        return -(min(a, 1e100) ** 2) / 2 * (1 - 2.0**-48) - _LOG_ROOT - math.log(a) + _MARGIN
    b = a + mu
    if mu < 1:
        # R(a) - R(b) as the integral of -R' = 1 - x R(x), which is positive.
        at = a + mu * (1 + _NODES) / 2
        log_difference = math.log(mu / 2) + math.log(float((_WEIGHTS * _slope(at)).sum()))
    elif a > 0:
        log_difference = math.log(_ratio(a) - _ratio(b))
    else:
        inner = scipy.special.ndtr(-a) - math.exp(-a * a / 2 - _LOG_ROOT) * _ratio(b)
        return min(0.0, math.log(inner) + _MARGIN)
    # a is off by a few 2^-53 of itself, and its square by as many of a^2.
    exponent = -a * a / 2 * (1 - 2.0**-48)
    return min(0.0, exponent - _LOG_ROOT + log_difference + _MARGIN)


def _ratio(x):
    """Mills' ratio R(x)."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(x * _ROOT_HALF))


def _slope(x):
    """1 - x R(x) at each x of a rising array: far out by its continued fraction, where the difference would cancel."""
    near = 1 - x * math.sqrt(math.pi / 2) * scipy.special.erfcx(np.minimum(x, _FAR) * _ROOT_HALF)
    if x[-1] < _FAR:
        return near
    far = np.maximum(x, _FAR)
    tail = far
    for k in range(30, 1, -1):  # R(x) = 1 / (x + 1 / (x + 2 / (x + 3 / ...)))
        tail = far + k / tail
    return np.where(x < _FAR, near, 1 / (far * tail + 1))
