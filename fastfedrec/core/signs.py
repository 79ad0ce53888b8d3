"""Signs of eigenvectors, which depend on the linear algebra library and its version."""

import numpy as np

__all__ = ["with_signs"]


def with_signs(columns: np.ndarray) -> np.ndarray:
    """Give each column the sign for which its product with fixed numbers is at least 0."""
    # Otherwise the library would determine the model that the same noise gives.
    products = np.cos(np.arange(len(columns))) @ columns
    return columns * np.where(products < 0, -1, 1).astype(columns.dtype)
