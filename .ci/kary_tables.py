"""Write both tables of channels of `mechanisms.ratings`: ``python -P .ci/kary_tables.py``, which takes minutes.

A table has an entry for each epsilon and each number of values, which are evenly spaced on [-1, 1].  An entry has the
gap to the optimum, and for each output the set of inputs that it favours (bit x for input x), its weight and its value.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fastfedrec.mechanisms.ratings import _bayes_kary_solver, _optimal_kary_solver
from fastfedrec.mechanisms.ratings._kary_solutions import BAYES, OPTIMAL, propose
from fastfedrec.mechanisms.ratings.bayes_kary import VARIANCE_RATIO

SIZES = range(2, 12)
EPSILONS = (*np.arange(1, 10) / 10, *np.arange(4, 16) / 4, *np.arange(8, 17) / 2)


def optimal_entry(size: int, epsilon: float) -> dict:
    """Return the entry of the table of `OptimalKary` for one size and epsilon."""
    return _entry(*_optimal_kary_solver.solve(np.linspace(-1, 1, size), epsilon))


def bayes_entry(size: int, epsilon: float) -> dict:
    """Return the entry of the table of `BayesKary`, for equally likely values and the default limit of variance."""
    x = np.linspace(-1, 1, size)
    sets, weights, values, _ = propose(x, epsilon)
    solution = _bayes_kary_solver.solve(x, epsilon, np.full(size, 1 / size), VARIANCE_RATIO, (sets, weights, values))
    return _entry(*solution)


def _entry(sets: np.ndarray, weights: np.ndarray, values: np.ndarray, gap: float) -> dict:
    masks = (sets << np.arange(sets.shape[1])).sum(axis=1)
    outputs = [
        [int(mask), float(weight), float(f"{value:.9g}")]  # readers compute the values again: nine digits suffice
        for mask, weight, value in zip(masks, weights, values, strict=True)
    ]
    return {"gap": float(f"{gap:.2g}"), "outputs": outputs}


def write(name: str, entry: Callable[[int, float], dict]) -> None:
    """Solve all pairs of size and epsilon, and write the file into the package."""
    tables = {str(size): {str(float(e)): entry(size, float(e)) for e in EPSILONS} for size in SIZES}
    path = Path(__file__).parents[1] / "fastfedrec" / "mechanisms" / "ratings" / name
    path.write_text(json.dumps(tables, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    write(OPTIMAL, optimal_entry)
    write(BAYES, bayes_entry)
