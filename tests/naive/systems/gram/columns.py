"""DPGram's rounds of columns by dense algebra: the encoder, and the estimate that agrees with the answer."""

import numpy as np


def hollow(matrix):
    return matrix - np.diag(matrix.diagonal())


def encoder_of(estimate, n_columns, length):
    """V diag(x^-1/4) of the largest eigenvalues x, the longest column of this length, not rounded."""
    values, vectors = np.linalg.eigh(estimate)
    values, vectors = values[::-1][:n_columns], vectors[:, ::-1][:, :n_columns]
    scales = values**-0.25
    return vectors * (length * scales / scales.max())


def corrected(estimate, sums, encoder, noise, vectors, strength):
    """R + UV' + VU' - V sym(V'U) V', without its negative eigenvalues."""
    n_items, n_columns = encoder.shape
    expected = hollow(estimate) @ encoder
    moved = sums / strength - expected
    for k in range(n_columns):
        of_noise = n_items * (noise / strength) ** 2 / (moved[:, k] @ moved[:, k])
        moved[:, k] *= max(1 - of_noise, 0) / np.linalg.norm(encoder[:, k])
    inner = vectors.T @ moved
    estimate = estimate + moved @ vectors.T + vectors @ moved.T - vectors @ (inner + inner.T) @ vectors.T / 2
    values, turn = np.linalg.eigh(estimate)
    return turn @ np.diag(np.maximum(values, 0)) @ turn.T
