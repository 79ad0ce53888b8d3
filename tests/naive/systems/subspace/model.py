"""DPSubspace's server by dense algebra."""

import numpy as np


def ease_weights(factors, uniqueness):
    """Return B = -P / diag(P) with a zero diagonal, P the inverse of L L' + diag(u)."""
    precision = np.linalg.inv(factors @ factors.T + np.diag(uniqueness))
    weights = -precision / precision.diagonal()
    np.fill_diagonal(weights, 0)
    return weights


def nearest_symmetric(values, directions):
    """Return the symmetric B for which B X is nearest to Z, by least squares over its free entries."""
    k = len(values)
    positions = [(i, j) for i in range(k) for j in range(i, k)]
    columns = []
    for i, j in positions:
        one = np.zeros((k, k))
        # Basis of symmetric matrices: one free entry for each i <= j.
        one[i, j] = one[j, i] = 1
        columns.append((one @ directions).ravel())
    entries = np.linalg.lstsq(np.array(columns).T, values.ravel(), rcond=None)[0]
    symmetric = np.zeros((k, k))
    for (i, j), x in zip(positions, entries, strict=True):
        symmetric[i, j] = symmetric[j, i] = x
    return symmetric


def shrink(matrix):
    """Shrink the singular values of a matrix with noise of variance 1 (Gavish, Donoho 2017)."""
    n_rows, n_columns = matrix.shape
    left_vectors, values, right = np.linalg.svd(matrix, full_matrices=False)
    beta = n_columns / n_rows
    shrunk = []
    for value in values / np.sqrt(n_rows):
        discriminant = (value**2 - beta - 1) ** 2 - 4 * beta
        # Values up to 1 + sqrt(beta), the edge of the noise's spectrum, become 0.
        shrunk.append(np.sqrt(discriminant) / value if value > 1 + np.sqrt(beta) else 0.0)
    return left_vectors * (np.sqrt(n_rows) * np.array(shrunk)) @ right


def pair_matrix(rows, mean):
    """Return the sum of z z' / |z|^2 over users with items, for z = x / |x| - mean."""
    lengths = np.sqrt(rows.sum(axis=1))
    z = rows[lengths > 0] / lengths[lengths > 0, None] - mean
    return (z / np.square(z).sum(axis=1)[:, None]).T @ z
