"""Renyi moments of mechanisms of one release, never below the true value.

Each function gives log(A - 1), where A is the mean of (P / Q)^alpha under Q.  Therefore a small divergence is as exact
as a large one: it is log(1 + e^that) / (alpha - 1).  With w = P / Q, which has mean 1, A - 1 is the mean of g(w) =
w^alpha - 1 - alpha (w - 1), which is nowhere negative.
"""

import math
from typing import Any

import numpy as np
import scipy

from fastfedrec.accounting._work import count_work
from fastfedrec.accounting.rounding import ABSOLUTE, LARGEST_EXPONENT, UP, log1p_exp, up

# Below this alpha |w - 1|, g is computed by its series, with this number of terms.
_SERIES = 0.05
_TERMS = 12
# Maximum numbers of terms of a sum: above the first a quadrature has fewer points, and the second is the limit.
_MAX_SUMMED, _LARGEST_SUMMED = 4096, 2**20
# Maximum number of points of a quadrature; if it needs more, divergences of whole orders bound the result.
_MAX_POINTS = 20_000
# Logarithm of the relative precision of a quadrature.
_LOG_PRECISION = math.log(1e-10)
# Smallest and largest noise multiplier with finite squares.
_NOISE = 1e-150, 1e150
_MIN_RATE = 1e-250
# Smallest epsilon for which the products with order - 1 do not underflow.
_MIN_EPSILON = 1e-300
# Ratio of the sizes of neighbouring cells.
_RATIO = 1.006
# Below this, differences of exponentials are bounded by a square, because they would cancel.
_CANCELS = 1e-4
# Number of standard deviations above which the normal distribution has no mass.
_FAR = 40.0
# The first point above 0, in standard deviations, and the ratio of neighbouring points.
_NEAREST, _OPPOSITE_RATIO = 1e-4, 1.003
_MIN_OPPOSITE_NOISE = 1e-3
_LARGE_RATIO = 1e100


def divergence(log_excess: float, order: float) -> float:
    """Return the divergence for log(A - 1), rounded up."""
    return up(log1p_exp(log_excess) / (order - 1))


def divergences(orders: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return the divergences for log(A - 1) at each order, rounded up."""
    return np.array([divergence(log, order) for log, order in zip(logs, orders, strict=True)])


def log_expm1(x: Any) -> Any:
    """Return log(e^x - 1) for x > 0, without overflow."""
    return x + np.log(-np.expm1(-x))


def randomized_response(orders: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the moments of binary randomized response, the worst epsilon-private mechanism: A - 1 is a product."""
    # A larger epsilon dominates a smaller one.
    epsilon = max(epsilon, _MIN_EPSILON)
    with np.errstate(over="ignore"):
        low, high = (orders - 1) * epsilon, orders * epsilon
        logs = log_expm1(low) + np.log(-np.expm1(-high)) - math.log1p(math.exp(-epsilon))
        return logs + ABSOLUTE * (high + np.abs(logs))


def bounded_range_rho(epsilon: float) -> float:
    """Return the rho of bounded range `epsilon`, log((e^epsilon - 1) / epsilon) - 1 + epsilon / (e^epsilon - 1)."""
    # Rounded up, and at most epsilon^2 / 8: the smallest rho that holds for all releases of this range
    # (docs/explanation/accounting/pure-releases.md).
    epsilon = max(epsilon, _MIN_EPSILON)
    half = epsilon / 2
    terms = half, math.log(-math.expm1(-epsilon)), -math.log(epsilon), half / math.tanh(half), -1.0
    return up(min(epsilon * epsilon / 8, math.fsum(terms) + ABSOLUTE * math.fsum(map(abs, terms))))


def bounded_range(orders: np.ndarray, epsilon: float) -> np.ndarray:
    """Return upper bounds of the divergences of all releases of bounded range; not logarithms of A - 1."""
    # With S(x) = log(sinh(x epsilon / 2) / (x epsilon / 2)) the largest divergence of order a is (a S(a) - (a - 1)
    # S(a - 1) - S(1)) / (a - 1); it is at most rho a.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros(len(orders))
        for x, weight in ((orders, orders), (orders - 1, 1 - orders), (1.0, -1.0)):
            half = x * max(epsilon, _MIN_EPSILON) / 2
            terms = half, np.log(-np.expm1(-2 * half)), -np.log(2 * half)
            total += weight * sum(terms) + ABSOLUTE * np.abs(weight) * (sum(map(np.abs, terms)))
        return np.fmin(np.fmin(total / (orders - 1), bounded_range_rho(epsilon) * orders) * UP, epsilon)


def laplace(orders: np.ndarray, scale: float) -> np.ndarray:
    """Return the moments of Laplace noise around 0 and around 1."""
    # A = (alpha e^((alpha - 1) / scale) + (alpha - 1) e^(-alpha / scale)) / (2 alpha - 1).
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        low, high = (orders - 1) / scale, orders / scale
        far = np.maximum(low, 1.0)
        larger = far + np.log(orders - (2 * orders - 1) * np.exp(-far) + (orders - 1) * np.exp(-far - high))
        smaller = np.log(orders * _less_linear(np.minimum(low, 1.0)) + (orders - 1) * _less_linear(-high))
    logs = np.where(low > 1, larger, smaller) - np.log(2 * orders - 1)
    return logs + 1e3 * ABSOLUTE * (1 + low)


def skellam(orders: np.ndarray, variance: float, l1_sensitivity: float, l2_sensitivity: float) -> np.ndarray:
    """Return upper bounds of the divergences of Skellam noise; not logarithms of A - 1."""
    # Agarwal, Kairouz, Liu, NeurIPS 2021, Corollary 3.6, for whole orders: the smaller of two lines slope * a + level.
    # (a - 1) times the divergence is convex in a, and 0 at a = 1.  So between whole orders its chord is a bound: the
    # chord of slope * a^2 is slope * t (1 - t) above it, t the fraction of a.
    with np.errstate(over="ignore", invalid="ignore"):
        square, fraction = l2_sensitivity * l2_sensitivity / (2 * variance), orders % 1
        ratio = 1.5 * l1_sensitivity / variance
        chord = orders + fraction * (1 - fraction) / (orders - 1)
        # The level of the first line, (6 l1 - l2^2) / (4 variance^2), may be below 0: it cannot cancel the slope.
        first = square * chord + (square * (chord - 0.5) + ratio) / variance
        return np.fmin(first, square * chord + ratio) * UP


def _less_linear(x):
    """Return e^x - 1 - x, by its series for small x."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return np.where(np.abs(x) < 1e-2, series, np.expm1(x) - x)


# ---- the Gaussian under Poisson sampling: w = 1 - q + q e^t, t = (2 x - 1) / (2 z^2), x normal with variance z^2 -----


def sampled_gaussian(order: float, rate: float, noise_multiplier: float) -> float:
    """Return the moment of the mixture against Q: a removed user's loss, the larger of the two directions."""
    if noise_multiplier < _NOISE[0]:
        return math.inf
    z = min(noise_multiplier, _NOISE[1])
    # Without sampling A = e^(alpha (alpha - 1) / (2 z^2)).
    if rate == 1:
        x = order * (order - 1) / (2 * z * z) * UP
        return x + math.log(-math.expm1(-x)) if x < math.inf else x
    is_sum = order == int(order) and order <= _MAX_SUMMED
    return _whole_order(int(order), rate, z) if is_sum else _any_order(order, rate, z)


def poisson_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Return `sampled_gaussian` at each order."""
    return np.array([sampled_gaussian(float(order), rate, noise_multiplier) for order in orders])


def _whole_order(order, rate, z):
    """Return the binomial sum (Mironov, Talwar, Zhang 2019, equation 3) less the one that is 1: no term cancels."""
    count_work(order)
    k = np.arange(2.0, order + 1)
    known = scipy.special.gammaln([order + 1.0]), scipy.special.gammaln(k + 1), scipy.special.gammaln(order - k + 1)
    log_unused, log_used = (order - k) * math.log1p(-rate), k * math.log(rate)
    grown = k * (k - 1) / 2 / (z * z)
    logs = known[0] - known[1] - known[2] + log_unused + log_used + log_expm1(grown)
    logs += ABSOLUTE * (sum(known) - log_unused - log_used + grown + np.abs(logs))
    return _log_sum(logs)


def _any_order(order, rate, z):
    """Return the moment by the trapezoidal rule on x, which converges exponentially."""
    # g(w) phi is analytic where |Im x| < pi z^2, as w has no root there and does not meet the negative axis.  On the
    # line Im x = a it is at most e^(a^2 / 2 z^2) (w^alpha + 1 + alpha (w + 1)) phi.  Therefore with points h apart the
    # sum is off by at most 2 e^(a^2 / 2 z^2) (A + 1 + 2 alpha) / (e^(2 pi a / h) - 1) (Trefethen, Weideman 2014,
    # Theorem 5.1).  This error, the tails outside of the points, and a margin for rounding are added.
    top = max(order, 2.0)
    growth = (top * top - top) / (2 * z * z)
    # Logarithm of the first term of the binomial series, without the variance of w.
    log_second = math.log(order * (order - 1) / 2) + 2 * math.log(rate)
    variance = min(0.0, -2 * math.log(z)) - 3
    needed = math.log(8 + 4 * order) - min(0.0, log_second + variance) - _LOG_PRECISION
    spacing = math.sqrt(2 * math.pi**2 / needed)  # in stddevs
    if z < 2 / spacing:
        spacing = 2 * math.pi**2 * z / (needed + math.pi**2 * z * z / 2)
    reach = math.sqrt(2 * growth + 120 + 4 * math.log1p(z))
    first, last = -reach, top / z + reach
    n_points = math.ceil((last - first) / spacing) + 1
    if n_points > (_MAX_POINTS if order <= _MAX_SUMMED else 10 * _MAX_POINTS) or rate < _MIN_RATE:
        return _between_whole_orders(order, rate, z)
    count_work(n_points)
    x = first + spacing * np.arange(n_points)
    logs = -x * x / 2 + _log_g(order, *_sampled_ratio(rate, x / z - 1 / (2 * z * z)))
    log_sum = _log_sum(logs + ABSOLUTE * (x * x + np.abs(logs))) + math.log(spacing / math.sqrt(2 * math.pi))
    line = min(math.pi * z, 2 * math.pi / spacing)  # a / z
    log_error = math.log(2) + line * line / 2 - 2 * math.pi * line / spacing
    log_error += log1p_exp(math.log(2 + 2 * order) - log_sum)
    if log_error > -2:
        return _between_whole_orders(order, rate, z)
    # Outside of the points the bound falls, so its sum is below its integral from the last point on.
    outside = float(scipy.special.log_ndtr(-reach)) + log_second + math.log(2)
    return log_sum + math.log1p(2 * math.exp(log_error) + 2 * math.exp(outside + growth - log_sum)) + 2.0**-36


def _between_whole_orders(order, rate, z):
    """Return a bound from the whole orders around `order`."""
    # (alpha - 1) times the divergence is convex in alpha, and 0 at alpha = 1, so its chord is an upper bound.
    if order > _LARGEST_SUMMED:
        return math.inf
    low = math.floor(order)
    ends = [log1p_exp(_whole_order(n, rate, z)) if n > 1 else 0.0 for n in (low, low + 1)]
    value = up((low + 1 - order) * ends[0] + (order - low) * ends[1])
    return float(log_expm1(value)) if value < math.inf else value


def _sampled_ratio(rate, t):
    """Return the ratio w = 1 - rate + rate e^t as w - 1 and log(w)."""
    y = rate * np.expm1(np.minimum(t, LARGEST_EXPONENT))
    return y, np.where(t > LARGEST_EXPONENT, t + math.log(rate), np.log1p(y))


def _log_g(order, y, u):
    """Return a close upper bound of log(g(w)) for y = w - 1 and u = log(w), without overflow and cancellation."""
    # Three ranges of w: large powers, a series where terms cancel, and plain differences between these.
    scaled = order * u
    out = np.empty_like(u)
    is_far = scaled > 1
    v = u[is_far]
    linear = np.exp(-scaled[is_far]) - order * np.exp(v - scaled[is_far]) * np.expm1(-v)
    out[is_far] = scaled[is_far] + np.log(1 - linear + 2.0**-48 * (1 + linear))
    is_near = np.abs(y) * order < _SERIES
    out[is_near] = np.log(_series(order, y[is_near]))
    is_medium = ~(is_far | is_near)
    risen, tangent = np.expm1(scaled[is_medium]), order * y[is_medium]
    out[is_medium] = np.log(risen - tangent + 2.0**-48 * (np.abs(risen) + np.abs(tangent)))
    return out


def _series(order, y):
    """Return g(1 + y) for small y: the binomial series from its second power on."""
    total = np.ones_like(y)
    for j in range(_TERMS, 2, -1):
        total = 1 + (order - j + 1) / j * y * total
    return order * (order - 1) / 2 * y * y * total * (1 + 2.0**-40) + np.finfo(float).tiny


def _log_sum(logs):
    """Return a close upper bound of the logarithm of the sum of exponentials."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum())) + 2.0**-44 if math.isfinite(top) else top


# ---- the Gaussian under sampling of fixed size: the symmetric pair that dominates it ---------------------------------


def fixed_size_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Return the moments of the symmetric pair that dominates sampling of fixed size."""
    # Losses above 0 are of the mixture against Q, and losses below 0 are of Q against the mixture.  A - 1 is
    # the mean, where w > 1, of g(w) + w g(1 / w), and the second is at most the first.  Therefore A - 1 is the Poisson
    # pair's, less the mean of g(w) where w < 1, plus the mean of w g(1 / w) where w > 1.  These two are bounded by
    # their values at the ends of cells, as both grow with |log w|.
    poisson = poisson_gaussian(orders, rate, noise_multiplier)
    doubled = poisson + math.log(2)
    if not 1e-3 < noise_multiplier < 1e6:
        return doubled
    z, a = noise_multiplier, orders[:, None]
    r = 1e-4 * _RATIO ** np.arange(math.ceil(math.log(1e4 * (_FAR + 1 / z)) / math.log(_RATIO)) + 1)
    r = np.concatenate([[0.0], r])  # |x - 1/2| in stddevs
    count_work(2 * len(r) * len(orders))
    half = 1 / (2 * z)
    # Where w < 1, the end of each cell that is nearer to w = 1 counts, and the mass outside of the last cell is
    # omitted.
    mass = _mass(r[:-1] - half, r[1:] - half) * (1 - 1e-9)
    y = rate * np.expm1(-r[:-1] / z)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_w = np.log1p(y)
        exact = np.maximum(np.expm1(a * log_w) - a * y * (1 - ABSOLUTE), 0.0)
        square = a * (a - 1) / 2 * y * y * np.minimum(1.0, np.exp((a - 2) * log_w))
        below = (np.where(a * -y < _CANCELS, square, exact) * mass).sum(axis=1)
    # Where w > 1, the other end counts, up to w = e^5.  Above that, w g(1 / w) is at most (alpha - 1) (w - 1).
    t = r / z
    u = np.where(t > LARGEST_EXPONENT, t + math.log(rate), np.log1p(rate * np.expm1(np.minimum(t, LARGEST_EXPONENT))))
    last = min(int(np.searchsorted(u, 5.0)), len(r) - 1)
    mass = _mass(r[:last] + half, r[1 : last + 1] + half) * (1 + 1e-9)
    u = u[1 : last + 1]
    y = np.expm1(u)
    square = a * (a - 1) / 2 * y * y
    exact = (a - 1) * y * (1 + ABSOLUTE) + np.expm1(-(a - 1) * u)
    above = (np.where(a * u < _CANCELS, square, np.minimum(exact, square)) * mass).sum(axis=1)
    above += (orders - 1) * rate * scipy.special.ndtr(1 / z - r[last] - half) * (1 + 1e-9)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = np.log(np.exp(poisson) * (1 + 1e-9) - below + above)
    return np.where(np.isfinite(exact), np.minimum(exact, doubled), doubled)


def _mass(first, last):
    """Return the mass of the normal distribution from first to last, on the side where the tails do not cancel."""
    from_below = scipy.special.ndtr(last) - scipy.special.ndtr(first)
    from_above = scipy.special.ndtr(-first) - scipy.special.ndtr(-last)
    return np.maximum(np.where(first > 0, from_above, from_below), 0.0)


# ---- the Gaussian under Poisson sampling when a user is replaced: two opposite contributions -------------------------


def opposite_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Return the moments of the mixture of N(0) and N(1) against the mixture of N(0) and N(-1), by sums over cells."""
    # Let m = 1 / noise_multiplier, and x be standard normal.  Relative to N(0) the densities are
    # p = 1 - q + q e^(m x - m^2 / 2) and r = p at -x.  A - 1 is the mean of h = r g(p / r), which is convex in x,
    # 0 at 0, and rises on both sides (docs/explanation/accounting/poisson-replacement.md).  In a cell h is below its
    # chord, and the mean of |x| is below the middle.  Therefore half of the cell's mass at either end is an upper
    # bound.
    if not noise_multiplier > _MIN_OPPOSITE_NOISE:
        return np.full(len(orders), math.inf)  # the caller has the divergence without sampling
    m, rate = 1 / min(noise_multiplier, _NOISE[1]), max(rate, _MIN_RATE)
    x = _NEAREST * _OPPOSITE_RATIO ** np.arange(math.log((2 * orders.max() * m + _FAR) / _NEAREST, _OPPOSITE_RATIO) + 2)
    x = np.concatenate([x[x < 1], [1.0], x[x > 1]])
    count_work(2 * len(x) * len(orders))
    log_mass = _log_mass(np.concatenate([[0.0], x]))
    log_weights = np.logaddexp(log_mass, np.append(log_mass[1:], -math.inf)) - math.log(2)
    with np.errstate(divide="ignore", over="ignore"):
        log_rest, up_, down = np.log1p(-rate), m * x - m * m / 2, -m * x - m * m / 2
        log_p, log_r = np.logaddexp(log_rest, math.log(rate) + up_), np.logaddexp(log_rest, math.log(rate) + down)
        # Logarithm of p - r.
        log_excess = math.log(rate) + up_ + np.log(-np.expm1(-2 * m * x))
        y = np.exp(log_excess - log_r)
        u = np.where(y < _LARGE_RATIO, np.log1p(y), log_p - log_r)
    sides = (
        (log_weights + log_r, y, u, np.searchsorted(x, 2 * orders * m + _FAR)),
        (log_weights + log_p, -np.exp(log_excess - log_p), -u, np.full(len(orders), np.searchsorted(x, m + _FAR))),
    )
    sums = [_opposite_sums(orders, *side) for side in sides]
    return np.logaddexp(np.logaddexp(*sums), _opposite_tails(orders, rate, m)) + 2.0**-36


def _opposite_sums(orders, log_weights, y, u, stops):
    """Return the logarithms of the sums of h over the first `stops` points, one for each order."""
    sums = []
    for order, stop in zip(orders, stops, strict=True):
        log_g = _log_g(order, y[: stop + 1], u[: stop + 1])
        logs = log_weights[: stop + 1] + log_g
        sums.append(_log_sum(logs + ABSOLUTE * (np.abs(logs) + 2 * np.abs(log_g))))
    return np.array(sums)


def _opposite_tails(orders, rate, m):
    """Return the logarithm of the mean of h outside of the points, with x > 0 and x < 0."""
    # For x > 0 the mean is at most the mean of p^a r^(1 - a).  There p is at most e^(m x - m^2 / 2).  The arithmetic
    # mean is above the geometric, so r is at least e^(-q (m x + m^2 / 2)).  For x < 0 it is at most the mean of a r.
    tail = scipy.special.log_ndtr
    slope, level = (orders + (orders - 1) * rate) * m, (orders - (orders - 1) * rate) * m * m / 2
    return np.logaddexp(slope**2 / 2 - level + tail(slope - 2 * orders * m - _FAR), np.log(orders) + tail(-_FAR))


def _log_mass(edges):
    """Return an upper bound of the logarithm of the normal distribution's mass between edges from 0 on."""
    # Up to 1 the density is concave, so the mass of a cell is at most its width times the density in its middle.
    first, last = edges[:-1], edges[1:]
    near = np.log(last - first) - (first + last) ** 2 / 8 - math.log(2 * math.pi) / 2
    log_tail = scipy.special.log_ndtr(-first)
    far = log_tail + np.log(-np.expm1(scipy.special.log_ndtr(-last) - log_tail))
    return np.where(last <= 1, near, far) + 1e-9
