"""Which outputs `OptimalKary` and `BayesKary` have: from the tables that are shipped, or solved on the spot."""

import functools
import json
from importlib import resources
from typing import Any

import numpy as np

OPTIMAL, BAYES = "optimal_kary.json", "bayes_kary.json"  # written by `.ci/kary_tables.py`


@functools.cache
def read_tables(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """A file of `.ci/kary_tables.py`."""
    return json.loads(resources.files(__package__).joinpath(name).read_text())


def find_solution(name: str, x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
    """Sets, weights, values and the gap in units of half the range, from a file of tables; None where it has none."""
    entry = read_tables(name).get(str(len(x)), {}).get(str(epsilon))
    if entry is None or not np.allclose(x, np.linspace(x[0], x[-1], len(x)), rtol=0.0, atol=1e-9 * (x[-1] - x[0])):
        return None
    masks, weights, values = zip(*entry["outputs"], strict=True)
    half = (x[-1] - x[0]) / 2
    sets = np.array(masks)[:, None] >> np.arange(len(x)) & 1 == 1
    return sets, np.array(weights), np.array(values) * half + (x[0] + x[-1]) / 2, entry["gap"]


def propose(x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Sets, weights and values of the outputs, and the gap: from the table, or from the solver."""
    found = find_solution(OPTIMAL, x, epsilon)
    if found is None:
        from fastfedrec.mechanisms.ratings._optimal_kary_solver import solve  # loads scipy.optimize

        return solve(x, epsilon)
    half = (x[-1] - x[0]) / 2
    return *found[:3], found[3] * half**2
