"""Renyi moments of mechanisms of one release, never below the truth.

Each function gives log(A - 1), where A is the mean of (P / Q)^alpha under Q, so that a divergence that is small is as
exact as one that is large: it is log(1 + e^that) / (alpha - 1).  With w = P / Q, whose mean is 1, A - 1 is the mean of
g(w) = w^alpha - 1 - alpha (w - 1), which is nowhere negative.
"""

import math
from typing import Any

import numpy as np
import scipy

from fastfedrec.accounting.rounding import ABSOLUTE, LARGEST_EXPONENT, UP, log1p_exp, up

_SERIES = 0.05  # of alpha |w - 1|, below which g is taken by its series
_TERMS = 12
_MOST_SUMMED, _LARGEST_SUMMED = 4096, 2**20  # terms of a sum: where a quadrature has fewer points, and at all
_MOST_POINTS = 20_000  # of a quadrature; a divergence that needs more is bounded by those of whole orders
_LOG_PRECISION = math.log(1e-10)  # of a quadrature, relative
_NOISE = 1e-150, 1e150  # whose squares are numbers
_LEAST_RATE = 1e-250
_LEAST_EPSILON = 1e-300  # whose products with orders less 1 are numbers
_RATIO = 1.006  # of neighbouring cells
_CANCELS = 1e-4  # below it differences of exponentials are bounded by a square
_FAR = 40.0  # stddevs, beyond which the normal law has no mass
_NEAREST, _OPPOSITE_RATIO = 1e-4, 1.003  # the first point above 0, in stddevs, and the ratio of neighbouring points
_LEAST_OPPOSITE_NOISE = 1e-3
_LARGE_RATIO = 1e100


def divergence(log_excess: float, order: float) -> float:
    """The divergence for log(A - 1)."""
    return up(log1p_exp(log_excess) / (order - 1))


def log_expm1(x: Any) -> Any:
    """log(e^x - 1) for x > 0, without overflow."""
    return x + np.log(-np.expm1(-x))


def randomized_response(orders: np.ndarray, epsilon: float) -> np.ndarray:
    """Binary randomized response, the worst of all epsilon-private mechanisms: A - 1 is a product."""
    epsilon = max(epsilon, _LEAST_EPSILON)  # and that of a larger one dominates it
    with np.errstate(over="ignore"):
        low, high = (orders - 1) * epsilon, orders * epsilon
        logs = log_expm1(low) + np.log(-np.expm1(-high)) - math.log1p(math.exp(-epsilon))
        return logs + ABSOLUTE * (high + np.abs(logs))


def bounded_range(orders: np.ndarray, epsilon: float, rho: float) -> np.ndarray:
    """Upper bounds of the divergences of all releases of bounded range; not logarithms of A - 1.

    With S(x) = log(sinh(x epsilon / 2) / (x epsilon / 2)) the largest divergence of order a is (a S(a) - (a - 1)
    S(a - 1) - S(1)) / (a - 1); it is at most rho a.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros(len(orders))
        for x, weight in ((orders, orders), (orders - 1, 1 - orders), (1.0, -1.0)):
            half = x * max(epsilon, _LEAST_EPSILON) / 2
            terms = half, np.log(-np.expm1(-2 * half)), -np.log(2 * half)
            total += weight * sum(terms) + ABSOLUTE * np.abs(weight) * (sum(map(np.abs, terms)))
        return np.fmin(np.fmin(total / (orders - 1), rho * orders) * UP, epsilon)


def laplace(orders: np.ndarray, scale: float) -> np.ndarray:
    """A = (alpha e^((alpha - 1) / scale) + (alpha - 1) e^(-alpha / scale)) / (2 alpha - 1)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        low, high = (orders - 1) / scale, orders / scale
        far = np.maximum(low, 1.0)
        larger = far + np.log(orders - (2 * orders - 1) * np.exp(-far) + (orders - 1) * np.exp(-far - high))
        smaller = np.log(orders * _less_linear(np.minimum(low, 1.0)) + (orders - 1) * _less_linear(-high))
    logs = np.where(low > 1, larger, smaller) - np.log(2 * orders - 1)
    return logs + 1e3 * ABSOLUTE * (1 + low)


def _less_linear(x):
    """e^x - 1 - x."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7)))))
    return np.where(np.abs(x) < 1e-2, series, np.expm1(x) - x)


# ---- the Gaussian under Poisson sampling: w = 1 - q + q e^t, t = (2 x - 1) / (2 z^2), x normal with variance z^2 -----


def sampled_gaussian(order: float, rate: float, noise_multiplier: float) -> float:
    """The mixture against the rest; a removed user's loss, the larger of the two directions."""
    if noise_multiplier < _NOISE[0]:
        return math.inf
    z = min(noise_multiplier, _NOISE[1])
    if rate == 1:
        x = order * (order - 1) / (2 * z * z) * UP
        return x + math.log(-math.expm1(-x)) if x < math.inf else x
    is_sum = order == int(order) and order <= _MOST_SUMMED
    return _whole_order(int(order), rate, z) if is_sum else _any_order(order, rate, z)


def poisson_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """`sampled_gaussian` at each order."""
    return np.array([sampled_gaussian(float(order), rate, noise_multiplier) for order in orders])


def _whole_order(order, rate, z):
    """The binomial sum (Mironov, Talwar, Zhang 2019, equation 3), less the binomial sum that is 1: no term cancels."""
    k = np.arange(2.0, order + 1)
    known = scipy.special.gammaln([order + 1.0]), scipy.special.gammaln(k + 1), scipy.special.gammaln(order - k + 1)
    kept, used = (order - k) * math.log1p(-rate), k * math.log(rate)
    grown = k * (k - 1) / 2 / (z * z)
    logs = known[0] - known[1] - known[2] + kept + used + log_expm1(grown)
    logs += ABSOLUTE * (sum(known) - kept - used + grown + np.abs(logs))
    return _log_sum(logs)


def _any_order(order, rate, z):
    """The trapezoidal rule on x, which converges exponentially.

    g(w) phi is analytic where |Im x| < pi z^2, as w has no root there and does not meet the negative axis, and on the
    line Im x = a it is at most e^(a^2 / 2 z^2) (w^alpha + 1 + alpha (w + 1)) phi.  So with points h apart the sum is
    off by at most 2 e^(a^2 / 2 z^2) (A + 1 + 2 alpha) / (e^(2 pi a / h) - 1) (Trefethen, Weideman 2014, Theorem 5.1).
    That, what lies beyond the points, and a margin for rounding are added.
    """
    top = max(order, 2.0)
    growth = (top * top - top) / (2 * z * z)
    log_second = math.log(order * (order - 1) / 2) + 2 * math.log(rate)  # of the first term, before w's variance
    variance = min(0.0, -2 * math.log(z)) - 3
    needed = math.log(8 + 4 * order) - min(0.0, log_second + variance) - _LOG_PRECISION
    spacing = math.sqrt(2 * math.pi**2 / needed)  # in stddevs
    if z < 2 / spacing:
        spacing = 2 * math.pi**2 * z / (needed + math.pi**2 * z * z / 2)
    reach = math.sqrt(2 * growth + 120 + 4 * math.log1p(z))
    first, last = -reach, top / z + reach
    n_points = math.ceil((last - first) / spacing) + 1
    if n_points > (_MOST_POINTS if order <= _MOST_SUMMED else 10 * _MOST_POINTS) or rate < _LEAST_RATE:
        return _between_whole_orders(order, rate, z)
    x = first + spacing * np.arange(n_points)
    logs = -x * x / 2 + _log_g(order, *_sampled_ratio(rate, x / z - 1 / (2 * z * z)))
    inside = _log_sum(logs + ABSOLUTE * (x * x + np.abs(logs))) + math.log(spacing / math.sqrt(2 * math.pi))
    line = min(math.pi * z, 2 * math.pi / spacing)  # a / z
    log_error = math.log(2) + line * line / 2 - 2 * math.pi * line / spacing
    log_error += log1p_exp(math.log(2 + 2 * order) - inside)
    if log_error > -2:
        return _between_whole_orders(order, rate, z)
    # Beyond the points the bound falls, so that its sum is below its integral from the last of them on.
    outside = float(scipy.special.log_ndtr(-reach)) + log_second + math.log(2)
    return inside + math.log1p(2 * math.exp(log_error) + 2 * math.exp(outside + growth - inside)) + 2.0**-36


def _between_whole_orders(order, rate, z):
    """(alpha - 1) times the divergence is convex in alpha, and 0 at alpha = 1."""
    if order > _LARGEST_SUMMED:
        return math.inf
    low = math.floor(order)
    ends = [log1p_exp(_whole_order(n, rate, z)) if n > 1 else 0.0 for n in (low, low + 1)]
    value = up((low + 1 - order) * ends[0] + (order - low) * ends[1])
    return float(log_expm1(value)) if value < math.inf else value


def _sampled_ratio(rate, t):
    """The ratio w = 1 - rate + rate e^t as w - 1 and log(w)."""
    y = rate * np.expm1(np.minimum(t, LARGEST_EXPONENT))
    return y, np.where(t > LARGEST_EXPONENT, t + math.log(rate), np.log1p(y))


def _log_g(order, y, u):
    """The logarithm of g(w) for y = w - 1 and u = log(w), a little above it, without overflow and cancellation."""
    scaled = order * u
    out = np.empty_like(u)
    far = scaled > 1
    v = u[far]
    linear = np.exp(-scaled[far]) - order * np.exp(v - scaled[far]) * np.expm1(-v)
    out[far] = scaled[far] + np.log(1 - linear + 2.0**-48 * (1 + linear))
    near = np.abs(y) * order < _SERIES
    out[near] = np.log(_series(order, y[near]))
    rest = ~(far | near)
    risen, tangent = np.expm1(scaled[rest]), order * y[rest]
    out[rest] = np.log(risen - tangent + 2.0**-48 * (np.abs(risen) + np.abs(tangent)))
    return out


def _series(order, y):
    """g(1 + y) for small y: the binomial series from its second power on."""
    total = np.ones_like(y)
    for j in range(_TERMS, 2, -1):
        total = 1 + (order - j + 1) / j * y * total
    return order * (order - 1) / 2 * y * y * total * (1 + 2.0**-40) + np.finfo(float).tiny


def _log_sum(logs):
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum())) + 2.0**-44 if math.isfinite(top) else top


# ---- the Gaussian under sampling of fixed size: the symmetric pair that dominates it ---------------------------------


def fixed_size_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Losses above 0 as those of the mixture against the rest, losses below 0 as those of the rest against it.

    A - 1 is the mean, where w > 1, of g(w) + w g(1 / w); of these the second is at most the first.  So it is the
    Poisson pair's, less the mean of g(w) where w < 1, plus that of w g(1 / w) where w > 1.  These two are bounded by
    their values at the ends of cells, as both grow with |log w|.
    """
    poisson = poisson_gaussian(orders, rate, noise_multiplier)
    twice = poisson + math.log(2)
    if not 1e-3 < noise_multiplier < 1e6:
        return twice
    z, a = noise_multiplier, orders[:, None]
    r = 1e-4 * _RATIO ** np.arange(math.ceil(math.log(1e4 * (_FAR + 1 / z)) / math.log(_RATIO)) + 1)
    r = np.concatenate([[0.0], r])  # |x - 1/2| in stddevs
    half = 1 / (2 * z)
    # Below: the end of each cell that is nearer to w = 1, and what lies beyond the last is left out.
    mass = _mass(r[:-1] - half, r[1:] - half) * (1 - 1e-9)
    y = rate * np.expm1(-r[:-1] / z)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_w = np.log1p(y)
        exact = np.maximum(np.expm1(a * log_w) - a * y * (1 - ABSOLUTE), 0.0)
        square = a * (a - 1) / 2 * y * y * np.minimum(1.0, np.exp((a - 2) * log_w))
        below = (np.where(a * -y < _CANCELS, square, exact) * mass).sum(axis=1)
    # Above: the other end, up to w = e^5; beyond, w g(1 / w) is at most (alpha - 1) (w - 1).
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
    return np.where(np.isfinite(exact), np.minimum(exact, twice), twice)


def _mass(first, last):
    """Of the normal law between first and last, on the side where the tails do not cancel."""
    left = scipy.special.ndtr(last) - scipy.special.ndtr(first)
    right = scipy.special.ndtr(-first) - scipy.special.ndtr(-last)
    return np.maximum(np.where(first > 0, right, left), 0.0)


# ---- the Gaussian under Poisson sampling when a user is replaced: two opposite contributions -------------------------


def opposite_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """The mixture of N(0) and N(1) against the mixture of N(0) and N(-1), by sums over cells that are never too small.

    Relative to N(0) the densities are p = 1 - q + q e^(m x - m^2 / 2) and r = p at -x, where m = 1 / noise_multiplier
    and x is standard normal.  A - 1 is the mean of h = r g(p / r), which is convex in x, 0 at 0, and rises on both
    sides (docs/explanation/accounting/poisson-replacement.md).  In a cell h is below its chord, and the mean of |x| is
    below the middle, so half of the cell's mass at either end is an upper bound.
    """
    if not noise_multiplier > _LEAST_OPPOSITE_NOISE:
        return np.full(len(orders), math.inf)  # the caller has the divergence without sampling
    m, rate = 1 / min(noise_multiplier, _NOISE[1]), max(rate, _LEAST_RATE)
    x = _NEAREST * _OPPOSITE_RATIO ** np.arange(math.log((2 * orders.max() * m + _FAR) / _NEAREST, _OPPOSITE_RATIO) + 2)
    x = np.concatenate([x[x < 1], [1.0], x[x > 1]])
    log_mass = _log_mass(np.concatenate([[0.0], x]))
    log_weights = np.logaddexp(log_mass, np.append(log_mass[1:], -math.inf)) - math.log(2)
    with np.errstate(divide="ignore", over="ignore"):
        log_rest, up_, down = np.log1p(-rate), m * x - m * m / 2, -m * x - m * m / 2
        log_p, log_r = np.logaddexp(log_rest, math.log(rate) + up_), np.logaddexp(log_rest, math.log(rate) + down)
        log_excess = math.log(rate) + up_ + np.log(-np.expm1(-2 * m * x))  # of p - r
        y = np.exp(log_excess - log_r)
        u = np.where(y < _LARGE_RATIO, np.log1p(y), log_p - log_r)
    sides = (
        (log_weights + log_r, y, u, np.searchsorted(x, 2 * orders * m + _FAR)),
        (log_weights + log_p, -np.exp(log_excess - log_p), -u, np.full(len(orders), np.searchsorted(x, m + _FAR))),
    )
    sums = [_opposite_sums(orders, *side) for side in sides]
    return np.logaddexp(np.logaddexp(*sums), _beyond_opposite(orders, rate, m)) + 2.0**-36


def _opposite_sums(orders, log_weights, y, u, stops):
    """The logarithms of the sums of h, the first `stops` points of each."""
    sums = []
    for order, stop in zip(orders, stops, strict=True):
        log_g = _log_g(order, y[: stop + 1], u[: stop + 1])
        logs = log_weights[: stop + 1] + log_g
        sums.append(_log_sum(logs + ABSOLUTE * (np.abs(logs) + 2 * np.abs(log_g))))
    return np.array(sums)


def _beyond_opposite(orders, rate, m):
    """The logarithm of the mean of h beyond the points, with x > 0 and x < 0.

    The first is at most the mean of p^a r^(1 - a), where p is at most e^(m x - m^2 / 2), and r at least e^(-q (m x +
    m^2 / 2)), as the arithmetic mean is above the geometric; the second is at most that of a r.
    """
    tail = scipy.special.log_ndtr
    slope, level = (orders + (orders - 1) * rate) * m, (orders - (orders - 1) * rate) * m * m / 2
    return np.logaddexp(slope**2 / 2 - level + tail(slope - 2 * orders * m - _FAR), np.log(orders) + tail(-_FAR))


def _log_mass(edges):
    """The logarithm of the normal law's mass between edges from 0 on: never below it.

    Up to 1 the density is concave, so the mass of a cell is at most its width times the density in its middle.
    """
    first, last = edges[:-1], edges[1:]
    near = np.log(last - first) - (first + last) ** 2 / 8 - math.log(2 * math.pi) / 2
    beyond = scipy.special.log_ndtr(-first)
    far = beyond + np.log(-np.expm1(scipy.special.log_ndtr(-last) - beyond))
    return np.where(last <= 1, near, far) + 1e-9
