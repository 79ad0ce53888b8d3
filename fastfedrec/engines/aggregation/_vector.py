"""Check of the vector of whole numbers that a node adds to a sum."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastfedrec.mechanisms.report_checks import check_integers

__all__ = ["check_vector"]


def check_vector(values: ArrayLike, n_values: int, max_value: int) -> NDArray[np.int64]:
    """Return a node's vector of this length and these absolute values, or raise."""
    numbers = check_integers("values", values, "put them on an integer grid first")
    if numbers.shape != (n_values,):
        raise ValueError(f"values must have shape ({n_values},), got {numbers.shape}")
    if (largest := max(int(numbers.max()), -int(numbers.min()))) > max_value:
        raise ValueError(f"values must be from -{max_value} to {max_value}, got {largest}")
    return numbers.astype(np.int64)
