"""The sign of eigenvectors, in which libraries of linear algebra and their versions differ."""

import numpy as np

__all__ = ["with_signs"]


def with_signs(columns: np.ndarray) -> np.ndarray:
    """Give each column the sign by which its product with fixed numbers is at least 0.

    Otherwise the library would decide which model the same noise gives.

    Parameters
    ----------
    columns : ndarray of shape (n, n_columns)
        Eigenvectors or other vectors with a sign that is arbitrary.

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
