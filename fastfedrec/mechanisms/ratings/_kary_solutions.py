"""Outputs of `OptimalKary` and `BayesKary`, from the tables of the package or from the solvers."""

import functools
import json
from importlib import resources
from typing import Any

import numpy as np

OPTIMAL, BAYES = "optimal_kary.json", "bayes_kary.json"  # written by `.ci/kary_tables.py`


@functools.cache
def read_tables(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tables of a file that `.ci/kary_tables.py` wrote, by number of values and epsilon."""
    return json.loads(resources.files(__package__).joinpath(name).read_text())


def find_solution(name: str, x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
    """Return sets, weights, values and the gap in units of half the range from a file's tables, or None."""
    entry = read_tables(name).get(str(len(x)), {}).get(str(epsilon))
    # The tables hold evenly spaced values alone.
    if entry is None or not np.allclose(x, np.linspace(x[0], x[-1], len(x)), rtol=0.0, atol=1e-9 * (x[-1] - x[0])):
        return None
    masks, weights, values = zip(*entry["outputs"], strict=True)
    half = (x[-1] - x[0]) / 2
    # Bit i of a mask is input i.  Values are in units of half the range, around its middle.
    sets = np.array(masks)[:, None] >> np.arange(len(x)) & 1 == 1
    return sets, np.array(weights), np.array(values) * half + (x[0] + x[-1]) / 2, entry["gap"]


def propose(x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return sets, weights and values of the outputs, and the gap, from the table or from the solver."""
    solution = find_solution(OPTIMAL, x, epsilon)
    if solution is None:
        from fastfedrec.mechanisms.ratings._optimal_kary_solver import solve  # loads scipy.optimize

        return solve(x, epsilon)
    half = (x[-1] - x[0]) / 2
    return *solution[:3], solution[3] * half**2  # the gap is a variance
