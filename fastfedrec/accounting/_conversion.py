"""Conversion of Renyi divergences and rho to (epsilon, delta), rounded up."""

import math
from collections.abc import Callable

import numpy as np

from fastfedrec.accounting.rounding import ABSOLUTE, UP, up

# The search for alpha - 1 covers e^-353 to e^353, which have finite squares.
_MAX_LOG = 353.0


def renyi_epsilon(orders: np.ndarray, divergences: np.ndarray, delta: float) -> float:
    """Return the smallest epsilon at `delta`, rounded up, that upper bounds of Renyi divergences prove."""
    # A total variation of at most sqrt(1 - e^-D) is the delta of epsilon 0 (Bretagnolle, Huber, "Estimation des
    # densites: risque minimax", 1979).
    if -math.expm1(-float(divergences.min())) * UP <= delta * delta:
        return 0.0
    excess = orders - 1
    # Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    gain, paid = np.log(excess / orders), -math.log(delta) / excess
    bounds = divergences + gain + paid - np.log(orders) / excess
    bounds += ABSOLUTE * (divergences - gain + paid + np.log(orders) / excess)
    return max(0.0, up(float(bounds.min())))


def renyi_delta(orders: np.ndarray, divergences: np.ndarray, epsilon: float) -> float:
    """Return the smallest delta at `epsilon`, rounded up, that upper bounds of Renyi divergences prove."""
    excess, logs = orders - 1, np.log(orders)
    gain = np.log(excess / orders)
    with np.errstate(over="ignore"):
        # The margin is inside the product, because the product may overflow.
        margin = ABSOLUTE * (divergences + epsilon - gain)
        exponents = excess * (divergences - epsilon + gain + margin) - logs * (1 - ABSOLUTE)
    # The delta of epsilon 0 is a bound at every epsilon.
    distance = math.sqrt(-math.expm1(-float(divergences.min())))
    return min(1.0, up(distance), up(math.exp(min(0.0, float(exponents.min())))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon at orders 1 + x: rho (1 + x) + log(x / (1 + x)) - log(delta (1 + x)) / x."""
    if math.isinf(rho):
        return math.inf
    if -math.expm1(-rho) * UP <= delta * delta:
        return 0.0
    log_delta = math.log(delta)
    # The derivative is rho + (log(delta) + log(1 + x)) / x^2; every x gives a valid bound.
    x = _find_sign_change(lambda x: rho * x * x + log_delta + math.log1p(x))
    terms = (rho, rho * x, -math.log1p(1 / x), -log_delta / x, -math.log1p(x) / x)
    return max(0.0, up(math.fsum(terms) + ABSOLUTE * math.fsum(map(abs, terms))))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the smallest delta, rounded up, that rho proves at epsilon."""
    if math.isinf(rho):
        return 1.0
    # Every x gives a valid bound, so a smaller x may replace one at which the products overflow.
    x = _find_sign_change(lambda x: rho + 2 * rho * x - epsilon - math.log1p(1 / x))
    x = min(x, 1e300 / max(epsilon, 1.0))
    terms = (x * rho, x * x * rho, -x * epsilon, -x * math.log1p(1 / x), -math.log1p(x))
    exponent = math.fsum(terms) + ABSOLUTE * math.fsum(map(abs, terms))
    return min(1.0, up(math.sqrt(-math.expm1(-rho))), up(math.exp(min(0.0, exponent))))


def _find_sign_change(rising: Callable[[float], float]) -> float:
    """Return approximately where a rising function of x > 0 changes its sign."""
    low, high = -_MAX_LOG, _MAX_LOG
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(math.exp(middle)) > 0 else (middle, high)
    return math.exp(high)
