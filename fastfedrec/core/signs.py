"""One sign for each column that a decomposition gives with either: libraries and their versions differ in it."""

import numpy as np

__all__ = ["with_signs"]


def with_signs(columns: np.ndarray) -> np.ndarray:
    """Give each column the sign by which its product with fixed numbers is at least 0.

    The model that the same noise gives would depend on the library otherwise.

    Parameters
    ----------
    columns : ndarray of shape (n, n_columns)
        Eigenvectors, say.

    Returns
    -------
    ndarray of shape (n, n_columns)
        Of the same type.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec.core.signs import with_signs
    >>> columns = np.array([[0.6, -0.8], [0.8, 0.6]])
    >>> bool((with_signs(columns) == with_signs(-columns)).all())
    True
    """
    products = np.cos(np.arange(len(columns))) @ columns
    return columns * np.where(products < 0, -1, 1).astype(columns.dtype)
