"""Writes ``optimal_kary.json``: run ``python -m fastfedrec.mechanisms._optimal_kary_tables``, a few minutes.

One entry for each number of values, evenly spaced on [-1, 1], and each epsilon: the gap to the optimal variance, and
for each output the set of inputs that it favours (bit x for input x), its weight and its value.
"""

import json
from pathlib import Path

import numpy as np

from fastfedrec.mechanisms._optimal_kary import solve

SIZES = range(2, 12)
EPSILONS = (*np.arange(1, 10) / 10, *np.arange(4, 16) / 4, *np.arange(8, 17) / 2)


def entry(size: int, epsilon: float) -> dict:
    """What the table holds for one pair."""
    sets, weights, values, gap = solve(np.linspace(-1, 1, size), epsilon)
    masks = (sets << np.arange(size)).sum(axis=1)
    outputs = [
        [int(mask), float(weight), float(f"{value:.9g}")]  # outputs are solved for again; weights are not
        for mask, weight, value in zip(masks, weights, values, strict=True)
    ]
    return {"gap": float(f"{gap:.2g}"), "outputs": outputs}


def main() -> None:
    """Solve all pairs and write the file beside this one."""
    tables = {str(size): {str(float(e)): entry(size, float(e)) for e in EPSILONS} for size in SIZES}
    path = Path(__file__).with_name("optimal_kary.json")
    path.write_text(json.dumps(tables, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
