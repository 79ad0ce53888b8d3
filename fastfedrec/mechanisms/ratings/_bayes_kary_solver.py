"""The linear program behind `BayesKary`, which determines the outputs, their weights and their values.

An output is a set S of inputs as in `_optimal_kary_solver`, where it is e^epsilon times as likely as elsewhere, with a
weight w and a value a.  The share of the prior's variance that a report explains is the sum of w score(S) over the
outputs.  With p_i = e^epsilon on S and 1 elsewhere, score(S) is

    (sum_i prior_i p_i (x_i - mean))^2 / (variance sum_i prior_i p_i).

So for given outputs the largest share is a linear program in the weights:

    maximise sum w score(S)  subject to, for every input i,
    sum w p_i = 1,   sum w p_i a = x_i,   sum w p_i a^2 - x_i^2 <= the largest variance allowed.

For each of the 2^k sets, the dual prices (nu, mu, lambda) make the reduced cost a parabola in a:
sum_i p_i (lambda_i a^2 - mu_i a - nu_i) - score(S).  So its minimum over all sets and values is exact.  The best
outputs are added, until no cost is below 0 by more than the tolerance.  The weights add up to at most 1, so minus the
smallest reduced cost bounds the distance of the result from the optimum.
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
_N_MORE = 64  # outputs added in one step
_OPTIMAL_SHARE = 0.05  # weight of the least-variance outputs if the others do not identify all inputs
_MIN_SINGULAR_VALUE = 1e-9  # of a table that identifies all inputs


def solve(
    inputs: np.ndarray,
    epsilon: float,
    prior: np.ndarray,
    variance_ratio: float,
    optimal: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return sets (n_outputs, n_values; bool), weights and values of outputs, and the gap to the largest share."""
    # `optimal` holds sets, weights and values of the outputs with the smallest worst-case variance.  The variance of
    # the result is at most `variance_ratio` times as large.
    centre, half = (inputs[0] + inputs[-1]) / 2, (inputs[-1] - inputs[0]) / 2
    unit = half / math.tanh(epsilon / 2)  # as in `_optimal_kary_solver`
    x, ratio = (inputs - centre) / unit, math.exp(epsilon)
    all_factors, scores = _score_all(x, ratio, prior)
    sets, values = _first_outputs(len(x))
    optimal = optimal[0], optimal[1], (optimal[2] - centre) / unit
    sets, values = np.concatenate([sets, optimal[0]]), np.concatenate([values, optimal[2]])
    max_variance = variance_ratio * _worst_variance(*optimal, x, ratio)
    # The explained share is at most 1, which bounds the gap of the least-variance outputs.
    best, solution = 1.0 - _share(*optimal[:2], x, ratio, prior), optimal
    for _ in range(_MAX_STEPS):
        factors = np.where(sets, ratio, 1.0)
        optimum = _linear_programme(factors, values, score(factors, x, prior), x, max_variance)
        if optimum is None:
            break
        weights, share, nu, mu, lam = optimum
        more_values, costs = _price(all_factors, scores, lam, mu, nu)
        # Column generation as in `_optimal_kary_solver`: the smallest reduced cost bounds the gap.
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
    if not _identifies_inputs(sets, weights, ratio):
        # Such reports identify the mean, but not the share of every value.  A few least-variance outputs do.
        share = _share(sets, weights, x, ratio, prior)
        weights = np.concatenate([(1 - _OPTIMAL_SHARE) * weights, _OPTIMAL_SHARE * optimal[1]])
        all_sets, all_values = np.concatenate([sets, optimal[0]]), np.concatenate([values, optimal[2]])
        sets, weights, values = _merge(all_sets, weights, all_values)
        best += share - _share(sets, weights, x, ratio, prior)
    return sets, weights, values * unit + centre, best


def score(factors: np.ndarray, x: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return each output's contribution to the explained share of the prior's variance, for a weight of 1."""
    deviations = x - prior @ x
    return (factors @ (prior * deviations)) ** 2 / (factors @ prior * (prior @ deviations**2))


def _identifies_inputs(sets: np.ndarray, weights: np.ndarray, ratio: float) -> bool:
    """Return whether the distribution of reports determines the shares of all inputs."""
    probabilities = np.where(sets, ratio, 1.0).T * weights
    return len(weights) >= sets.shape[1] and np.linalg.svd(probabilities, compute_uv=False)[-1] > _MIN_SINGULAR_VALUE


def _share(sets: np.ndarray, weights: np.ndarray, x: np.ndarray, ratio: float, prior: np.ndarray) -> float:
    return float(weights @ score(np.where(sets, ratio, 1.0), x, prior))


def _score_all(x: np.ndarray, ratio: float, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    masks = np.arange(1, 2 ** len(x) - 1)[:, None]  # all sets but the empty and the full one
    factors = np.where(masks >> np.arange(len(x)) & 1 == 1, ratio, 1.0)
    return factors, score(factors, x, prior)


def _worst_variance(sets: np.ndarray, weights: np.ndarray, values: np.ndarray, x: np.ndarray, ratio: float) -> float:
    return float((np.where(sets, ratio, 1.0).T @ (weights * values**2) - x**2).max())


def _linear_programme(factors, values, scores, x, max_variance):
    """Return the weights, the share, and the dual prices nu, mu and lambda; None if all attempts fail."""
    for method, is_scaled, tolerance in _ATTEMPTS:
        scales = factors.max(axis=1) if is_scaled else np.ones(len(values))  # as in `_optimal_kary_solver`
        scaled = factors / scales[:, None]
        result = linprog(
            -scores / scales,
            A_ub=(scaled * values[:, None] ** 2).T,
            b_ub=x**2 + max_variance,
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
    """Return the best value of every set, and its reduced cost."""
    # The reduced cost a v^2 - b v - c - score has its minimum at v = b / (2 a), or at a bound if a is 0.
    a, b, c = (factors @ price for price in (lam, mu, nu))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(a > 0, b / (2 * a), np.sign(b) * _FARTHEST).clip(-_FARTHEST, _FARTHEST)
    return values, a * values**2 - b * values - c - scores
