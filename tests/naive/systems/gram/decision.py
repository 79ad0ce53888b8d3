"""Scores of candidates by dense algebra, with explicit matrices."""

import math

import numpy as np
from naive.systems.gram.dp_gram import ease_weights


def test_matrix(pairs, training, split):
    """Return P - s E / sqrt(a) for the training matrix P + sqrt(a) s E, with the shared part and the diagonal."""
    scaled_noise = (training.astype(float) - pairs.values) / math.sqrt(split)
    matrix = pairs.values - scaled_noise / math.sqrt(split)
    if pairs.popularity is not None:
        matrix = matrix + np.outer(pairs.popularity, pairs.popularity)
    np.fill_diagonal(matrix, pairs.item_squares)
    return matrix


def weights_of(pairs, factors, personal_weight, ridge):
    """Return EASE's weights for a personal weight; the users' diagonal is at least a tenth of the items' diagonal."""
    # Popularity is the row sums of the matrix.
    if pairs.popularity is None and not personal_weight:
        sums = np.maximum((factors @ factors.T).sum(axis=1), 0)
        personal, shared = factors, sums[:, None] / math.sqrt(sums.sum() or 1.0)
    elif pairs.popularity is None:
        # The leading factor of uncentred pairs is popularity.
        personal, shared = factors[:, 1:], factors[:, :1]
    else:
        personal, shared = factors, pairs.popularity[:, None]
    gram = shared @ shared.T + personal_weight * personal @ personal.T
    diagonal = pairs.item_squares
    return ease_weights(gram, np.diag(np.maximum(diagonal - gram.diagonal(), 0.1 * diagonal) + ridge))


def score(matrix, weights):
    """Return <G, B> / sqrt(tr(B'GB)), and 0 if noise makes the trace negative."""
    square = np.trace(weights.T @ matrix @ weights)
    return (matrix * weights).sum() / math.sqrt(square) if square > 0 else 0.0
