"""The convex program behind `OptimalKary`, which determines the outputs, their weights and their values.

The columns that epsilon allows form a cone.  Its extreme rays take two values in the ratio e^epsilon (Kairouz, Oh,
Viswanath 2016).  An output may be split into such columns with one value and the same variance.  So an output is a set
S of inputs, where it is e^epsilon times as likely as elsewhere, with a value a and a weight w.  For given outputs, the
smallest worst-case variance is a linear program in the weights:

    minimise t  subject to, for every input i with p_i = e^epsilon on S and 1 elsewhere,
    sum w p_i = 1,   sum w p_i a = x_i,   sum w p_i a^2 - x_i^2 <= t.

Its dual prices (nu, mu, lambda) determine the missing outputs.  Let q_i(a) = lambda_i a^2 - mu_i a - nu_i.  The set S
where q_i(a) < 0 has the reduced cost f(a) = sum_i min(q_i(a), e^epsilon q_i(a)).  An output with a cost below 0 is
missing.  Between the roots of the q_i, f is a parabola, so all local minima are computed exactly and added, until no
minimum is below 0 by more than the tolerance.  The weights add up to at most 1, so -min f bounds the distance of t from
the optimum.
"""

import math

import numpy as np
from scipy.optimize import linprog

_TOLERANCE = 1e-9  # of the linear programs
# Each attempt is a solver, a flag for scaled columns, and a tolerance.  At a few epsilons, most of them large, the
# first attempts fail.
_ATTEMPTS = (
    ("highs", False, _TOLERANCE), ("highs-ipm", False, _TOLERANCE), ("highs", True, _TOLERANCE),
    ("highs-ipm", True, _TOLERANCE), ("highs", True, 1e-7), ("highs-ipm", True, 1e-7),
)  # fmt: skip
_GAP = 1e-7  # relative distance from the optimum at which to stop
_MAX_STEPS = 60
_FARTHEST = 100.0  # an output further out would cost ten thousand times the variance of binary response
_MIN_WEIGHT = 1e-12  # outputs with a smaller weight are dropped


def solve(inputs: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return sets (n_outputs, n_values; bool), weights and values of outputs, and the gap to the optimal variance."""
    centre, half = (inputs[0] + inputs[-1]) / 2, (inputs[-1] - inputs[0]) / 2
    # In units of the output of binary response, values are of order 1 at any epsilon.
    unit = half / math.tanh(epsilon / 2)
    x, ratio = (inputs - centre) / unit, math.exp(epsilon)
    best, solution = 1.0, _binary_response(x, ratio)
    sets, values = _first_outputs(len(x))
    for _ in range(_MAX_STEPS):
        factors = np.where(sets, ratio, 1.0)
        optimum = _linear_programme(factors, values, x)
        if optimum is None:
            break
        weights, variance, nu, mu, lam = optimum
        more_sets, more_values, costs = _price(lam, mu, nu, ratio)
        # Column generation: the most negative reduced cost bounds the gap of the current solution.
        gap = max(-costs.min(), 0.0)
        if gap <= best:
            best, solution = gap, (sets, weights, values)
        if gap <= _GAP * variance + _TOLERANCE:
            break
        sets, values = np.concatenate([sets, more_sets]), np.concatenate([values, more_values])
    sets, weights, values = _merge(*solution)
    return sets, _balance(sets, weights, ratio), values * unit + centre, best * unit**2


def _first_outputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return upper sets, lower sets and single inputs with coarse values, which suffice for a first solution."""
    upper = np.arange(n) >= np.arange(1, n)[:, None]
    sets = np.concatenate([upper, ~upper, np.eye(n, dtype=bool)])
    values = np.linspace(-1.5, 1.5, 31)
    return np.repeat(sets, len(values), axis=0), np.tile(values, len(sets))


def _binary_response(x, ratio):
    """Return sets, weights and values of binary response, which is unbiased with a variance of at most 1."""
    # It answers 1 with probability (1 + x) / 2, and -1 otherwise.  Over the inputs this probability rises from
    # 1 / (1 + ratio) to ratio / (1 + ratio), so it is a sum of columns of upper sets, one for each step.  The
    # probability of -1 is a sum of columns of lower sets.
    upper = np.arange(len(x)) >= np.arange(1, len(x))[:, None]
    weights = np.diff(x) / 2 / (ratio - 1)
    return np.concatenate([upper, ~upper]), np.tile(weights, 2), np.repeat([1.0, -1.0], len(weights))


def _linear_programme(factors, values, x):
    """Return the weights, the variance t, and the dual prices nu, mu and lambda; None if all attempts fail."""
    n = len(x)
    for method, is_scaled, tolerance in _ATTEMPTS:
        # A column is divided by its largest factor and its weight is multiplied by it, which keeps the prices.
        scales = factors.max(axis=1) if is_scaled else np.ones(len(values))
        scaled = factors / scales[:, None]
        result = linprog(
            np.append(np.zeros(len(values)), 1.0),
            A_ub=np.column_stack([(scaled * values[:, None] ** 2).T, -np.ones(n)]),
            b_ub=x**2,
            A_eq=np.column_stack([np.concatenate([scaled.T, (scaled * values[:, None]).T]), np.zeros(2 * n)]),
            b_eq=np.concatenate([np.ones(n), x]),
            bounds=[(0, None)] * (len(values) + 1),
            method=method,
            options={"dual_feasibility_tolerance": tolerance, "primal_feasibility_tolerance": tolerance},
        )
        if result.status == 0:
            nu, mu = result.eqlin.marginals.reshape(2, -1)
            return result.x[:-1] / scales, result.x[-1], nu, mu, -result.ineqlin.marginals
    return None


def _price(lam, mu, nu, ratio):
    """Return the set, the value and the reduced cost at every local minimum of f."""
    root = np.sqrt(np.maximum(mu**2 + 4 * lam * nu, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.concatenate([(mu - root) / (2 * lam), (mu + root) / (2 * lam), -nu / mu])
    edges = np.unique(roots[np.abs(roots) < _FARTHEST])  # drops NaN, from a parabola without a root or a price
    edges = np.concatenate([[edges[0] - 1.0], edges, [edges[-1] + 1.0]])
    middles = (edges[1:] + edges[:-1])[:, None] / 2
    # Between two edges the set is constant, so f is a parabola with its minimum at b / (2 a) or at an edge.
    sets = lam * middles**2 - mu * middles - nu < 0
    a, b, c = (np.where(sets, ratio, 1.0) @ price for price in (lam, mu, nu))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(a > 0, b / (2 * a), middles[:, 0]).clip(edges[:-1], edges[1:])
    return sets, values, a * values**2 - b * values - c


def _merge(sets, weights, values):
    """Merge the outputs of each set into one output at the mean of their values."""
    # The square is convex, so merging never increases the variance.
    used = weights > _MIN_WEIGHT
    sets, set_of_output = np.unique(sets[used], axis=0, return_inverse=True)
    total = np.bincount(set_of_output.reshape(-1), weights[used])
    means = np.bincount(set_of_output.reshape(-1), weights[used] * values[used]) / total
    order = np.argsort(means)
    return sets[order], total[order], means[order]


def _balance(sets, weights, ratio):
    """Return the nearest weights with rows that add up to 1, without the linear program's tolerance."""
    factors = np.where(sets, ratio, 1.0).T
    return weights + np.linalg.lstsq(factors, 1 - factors @ weights)[0]
