"""Detection of mechanisms that use the same random bits in every call."""

import math
from typing import Any

import numpy as np

from fastfedrec.audit._outputs import Outputs, read_outputs
from fastfedrec.audit.draws import Draw, Raised, try_draw

# Number of draws in each of the two calls.
_N_DRAWS = 256


def log_chance_of_repeat(draw: Draw, x: Any) -> float:
    """Return the logarithm of the largest chance that independent calls return these two series; 0 if they differ."""
    raws = [try_draw(draw, x, _N_DRAWS) for _ in range(2)]
    if any(isinstance(raw, Raised) for raw in raws):
        return 0.0
    first, second = map(_codes, read_outputs(raws, _N_DRAWS))
    if first != second:
        return 0.0
    counts = [first.count(code) for code in set(first)]
    # All orders of the second series are equally likely, and this number of them equals the first one.
    return sum(math.lgamma(k + 1) for k in counts) - math.lgamma(_N_DRAWS + 1)


def _codes(outputs: Outputs) -> list[tuple[bytes, ...]]:
    """Return the content of each output as bytes."""
    parts = [part for part in (*outputs.parts, outputs.keys, outputs.labels) if part is not None]
    return [tuple(np.ascontiguousarray(part[i]).tobytes() for part in parts) for i in range(len(outputs))]
