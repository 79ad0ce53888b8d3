"""Valid arrays of rows, and each way to spoil them."""

import numpy as np
import scipy.sparse

from fastfedrec._kernels.data import interactions as _kernel

NAMES = ("no_fault", "start", "decrease", "end", "column", "order", "value")
KINDS = {name: getattr(_kernel, name.upper()) for name in NAMES}


def sound(**changes):
    """Return the constructor's arguments for three users and four items, with some replaced."""
    fields = {
        "indptr": [0, 2, 2, 5],
        "indices": [0, 3, 0, 1, 2],
        "values": np.array([1.0, 2.0, 0.0, 4.0, 5.0]),
        "timestamps": [5, 4, 3, 2, 1],
        "user_ids": ["ann", "bob", "cem"],
        "item_ids": [10, 20, 30, 40],
        "global_user_ids": [7, 8, 9],
        "user_features": {"age": [1, 2, 3]},
        "item_features": {"kind": ["a", "b", "c", "d"]},
    }
    return fields | changes


def spoiled(**arrays):
    matrix = scipy.sparse.csr_matrix(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]))
    for name, array in arrays.items():
        setattr(matrix, name, np.asarray(array))
    return matrix
