"""Sums that are sent as their nonzero entries: rising coordinates, and a total for each."""

from collections.abc import Mapping

import numpy as np

_DENSE = 8  # times as many coordinates as there are totals: up to here a full array is faster than a sort


def add_sums(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates of a sum and its totals there, of two whose coordinates rise."""
    n = max((int(side["coordinate"][-1]) + 1 for side in (a, b) if len(side["coordinate"])), default=0)
    if n <= _DENSE * (len(a["coordinate"]) + len(b["coordinate"])):
        sums = np.zeros(n, dtype=np.int64)
        sums[a["coordinate"]] = a["total"]
        sums[b["coordinate"]] += b["total"]
        touched = np.flatnonzero(sums)
        return touched, sums[touched]
    coordinate, where = np.unique(np.concatenate([a["coordinate"], b["coordinate"]]), return_inverse=True)
    total = np.zeros(len(coordinate), dtype=np.int64)
    np.add.at(total, where, np.concatenate([a["total"], b["total"]]))
    return coordinate[total != 0], total[total != 0]
