"""The linear programme behind `BayesKary`: which outputs, how often, and what they stand for.

Outputs are those of `_optimal_kary_solver`: a set S of inputs, on which one is e^epsilon times as likely as elsewhere,
with a weight w and a value a.  How much of the prior's variance a report explains is a sum over the outputs, each of
which adds w score(S), score(S) = (sum_i prior_i p_i (x_i - mean))^2 / (variance sum_i prior_i p_i), with p_i =
e^epsilon on S and 1 elsewhere.  So for given outputs it is a linear programme in the weights:

    maximise sum w score(S)  subject to, for every input i,
    sum w p_i = 1,   sum w p_i a = x_i,   sum w p_i a^2 - x_i^2 <= the largest variance allowed.

There are 2^k sets, and for each the dual prices (nu, mu, lambda) make the reduced cost a parabola in a,
sum_i p_i (lambda_i a^2 - mu_i a - nu_i) - score(S), so its least value over all sets and values is found exactly.  The
best are added, until none is below 0 by more than the tolerance: since the weights add up to at most 1, minus the least
reduced cost bounds how far the result is from the best one.
"""

import math

import numpy as np
from scipy.optimize import linprog

from fastfedrec.mechanisms.ratings._optimal_kary_solver import (
    _ATTEMPTS,
    _FARTHEST,
    _MAX_STEPS,
    _balance,
    _first_outputs,
    _merge,
)

_GAP = 1e-4  # relative distance from the optimum at which to stop
_N_MORE = 64  # outputs added at a time
_OTHERS = 0.05  # share of the least-variance outputs where the others do not tell all inputs apart
_LEAST_SIGNAL = 1e-9  # singular value of a table that does


def solve(
    inputs: np.ndarray,
    epsilon: float,
    prior: np.ndarray,
    variance_ratio: float,
    least: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Sets (n_outputs, n_values) of bool, weights and values of the outputs, and the gap to the largest share.

    `least` holds sets, weights and values of the outputs whose worst-case variance is least; the result's is at most
    `variance_ratio` times as large.
    """
    centre, half = (inputs[0] + inputs[-1]) / 2, (inputs[-1] - inputs[0]) / 2
    unit = half / math.tanh(epsilon / 2)  # as in `_optimal_kary_solver`
    x, ratio = (inputs - centre) / unit, math.exp(epsilon)
    all_factors, scores = _score_all(x, ratio, prior)
    sets, values = _first_outputs(len(x))
    least = least[0], least[1], (least[2] - centre) / unit
    sets, values = np.concatenate([sets, least[0]]), np.concatenate([values, least[2]])
    largest = variance_ratio * _worst_variance(*least, x, ratio)
    # No report explains more than all of the variance, so the outputs of least variance are within the rest of it.
    best, solution = 1.0 - _share(*least[:2], x, ratio, prior), least
    for _ in range(_MAX_STEPS):
        factors = np.where(sets, ratio, 1.0)
        optimum = _linear_programme(factors, values, score(factors, x, prior), x, largest)
        if optimum is None:
            break
        weights, share, nu, mu, lam = optimum
        more_values, costs = _price(all_factors, scores, lam, mu, nu)
        gap = max(-costs.min(), 0.0)
        if gap < best:
            best, solution = gap, (sets, weights, values)
        if gap <= _GAP * share:
            break
        more = np.argsort(costs, kind="stable")[:_N_MORE]
        more = more[costs[more] < 0]
        sets, values = np.concatenate([sets, all_factors[more] > 1]), np.concatenate([values, more_values[more]])
    sets, weights, values = _merge(*solution)
    weights = _balance(sets, weights, ratio)
    if not _tells_apart(sets, weights, ratio):
        # Such reports tell the mean, but not the share of every value: a few of the least-variance ones do.
        found = _share(sets, weights, x, ratio, prior)
        weights = np.concatenate([(1 - _OTHERS) * weights, _OTHERS * least[1]])
        sets, weights, values = _merge(np.concatenate([sets, least[0]]), weights, np.concatenate([values, least[2]]))
        best += found - _share(sets, weights, x, ratio, prior)
    return sets, weights, values * unit + centre, best


def score(factors: np.ndarray, x: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """What each output adds to the share of the prior's variance that a report explains, by the unit of its weight."""
    deviations = x - prior @ x
    return (factors @ (prior * deviations)) ** 2 / (factors @ prior * (prior @ deviations**2))


def _tells_apart(sets: np.ndarray, weights: np.ndarray, ratio: float) -> bool:
    """Whether the shares of all inputs can be told from reports."""
    probabilities = np.where(sets, ratio, 1.0).T * weights
    return len(weights) >= sets.shape[1] and np.linalg.svd(probabilities, compute_uv=False)[-1] > _LEAST_SIGNAL


def _share(sets: np.ndarray, weights: np.ndarray, x: np.ndarray, ratio: float, prior: np.ndarray) -> float:
    return float(weights @ score(np.where(sets, ratio, 1.0), x, prior))


def _score_all(x: np.ndarray, ratio: float, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    masks = np.arange(1, 2 ** len(x) - 1)[:, None]
    factors = np.where(masks >> np.arange(len(x)) & 1 == 1, ratio, 1.0)
    return factors, score(factors, x, prior)


def _worst_variance(sets: np.ndarray, weights: np.ndarray, values: np.ndarray, x: np.ndarray, ratio: float) -> float:
    return float((np.where(sets, ratio, 1.0).T @ (weights * values**2) - x**2).max())


def _linear_programme(factors, values, scores, x, largest):
    """The weights, the share, and the dual prices nu, mu and lambda; None where all attempts give up."""
    for method, is_scaled, tolerance in _ATTEMPTS:
        scales = factors.max(axis=1) if is_scaled else np.ones(len(values))  # as in `_optimal_kary_solver`
        scaled = factors / scales[:, None]
        result = linprog(
            -scores / scales,
            A_ub=(scaled * values[:, None] ** 2).T,
            b_ub=x**2 + largest,
            A_eq=np.concatenate([scaled.T, (scaled * values[:, None]).T]),
            b_eq=np.concatenate([np.ones(len(x)), x]),
            method=method,
            options={"dual_feasibility_tolerance": tolerance, "primal_feasibility_tolerance": tolerance},
        )
        if result.status == 0:
            nu, mu = result.eqlin.marginals.reshape(2, -1)
            return result.x / scales, -result.fun, nu, mu, -result.ineqlin.marginals
    return None


def _price(factors, scores, lam, mu, nu):
    """The best value of every set, and its reduced cost."""
    a, b, c = (factors @ price for price in (lam, mu, nu))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(a > 0, b / (2 * a), np.sign(b) * _FARTHEST).clip(-_FARTHEST, _FARTHEST)
    return values, a * values**2 - b * values - c - scores
