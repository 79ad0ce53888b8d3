"""The encoder of DPGram's rounds of columns by dense algebra."""

import numpy as np


def hollow(matrix):
    return matrix - np.diag(matrix.diagonal())


def encoder_of(estimate, n_columns, length):
    """Return V diag(x^-1/4) of the largest eigenvalues x, with the longest column of this length, not rounded."""
    values, vectors = np.linalg.eigh(estimate)
    values, vectors = values[::-1][:n_columns], vectors[:, ::-1][:, :n_columns]
    scales = values**-0.25
    return vectors * (length * scales / scales.max())
