"""Sums in sparse form: ascending coordinates, and the total at each."""

from collections.abc import Mapping

import numpy as np

_DENSE = 8  # coordinates per total: up to this ratio a full array is faster than a sort


def sparse_sums(sums: np.ndarray, n_reports: int) -> dict[str, np.ndarray]:
    """Return the arrays of an update: the nonzero sums, and the number of reports."""
    touched = np.flatnonzero(sums)
    return {
        "coordinate": touched.astype(np.int64),
        "total": sums[touched],
        "n_reports": np.array([n_reports], dtype=np.int64),
    }


def add_sums(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates and totals of the sum of two sparse sums."""
    n = max((int(side["coordinate"][-1]) + 1 for side in (a, b) if len(side["coordinate"])), default=0)
    if n <= _DENSE * (len(a["coordinate"]) + len(b["coordinate"])):
        sums = np.zeros(n, dtype=np.int64)
        sums[a["coordinate"]] = a["total"]
        sums[b["coordinate"]] += b["total"]
        # Opposite totals cancel, and the sparse form has no zeros.
        touched = np.flatnonzero(sums)
        return touched, sums[touched]
    coordinate, positions = np.unique(np.concatenate([a["coordinate"], b["coordinate"]]), return_inverse=True)
    total = np.zeros(len(coordinate), dtype=np.int64)
    np.add.at(total, positions, np.concatenate([a["total"], b["total"]]))
    return coordinate[total != 0], total[total != 0]
