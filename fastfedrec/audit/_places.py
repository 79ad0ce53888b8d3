"""Places of the numbers of long outputs that the audit compares one by one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.core.arrays import distinct


def choose_places(samples: list[list[list[Any]]], n_places: int) -> list[int]:
    """Return the places of all numbers of an output, or of the `n_places` that differ most between two inputs."""
    longest = max(len(atoms) for some in samples for atoms in some)
    if longest <= n_places:
        return list(range(longest))
    differences = np.array(
        [_difference([[atoms[j] for atoms in some if len(atoms) > j] for some in samples]) for j in range(longest)]
    )
    return sorted(np.argsort(-differences, kind="stable")[:n_places].tolist())


def _difference(samples: list[list[Any]]) -> float:
    """Return the largest difference of the shares of a value or a tail, and 0 for an empty sample."""
    # The lengths of the outputs decide how many have the number, which is an event of its own.
    if not all(samples):
        return 0.0
    values = sorted({value for some in samples for value in some if value == value})
    ranks = {value: rank for rank, value in enumerate(values)}
    # NaN has the last rank.
    codes = ([ranks.get(value, len(values)) for value in some] for some in samples)
    return _compare([np.bincount(some, minlength=len(values) + 1).cumsum() for some in codes])


def difference_of_arrays(samples: Sequence[np.ndarray]) -> float:
    """Return the same as `_difference` for arrays of numbers."""
    ordered = [np.sort(some) for some in samples]
    values = distinct(np.concatenate(ordered))
    return _compare([np.searchsorted(some, values, side="right") for some in ordered])


def _compare(up_to: Sequence[np.ndarray]) -> float:
    """Return the largest difference of shares in standard errors, by the numbers of entries up to each value."""
    below = np.array(up_to)
    sizes = below[:, -1:]
    shares = np.concatenate([np.diff(below, axis=1, prepend=0), below, sizes - below], axis=1) / sizes
    errors = np.sqrt((shares / sizes).sum(axis=0))
    return float((np.abs(shares[1] - shares[0]) / np.where(errors > 0, errors, 1)).max())
