"""Twin of a round of PrivRec: one client after the other, dense vectors."""

import numpy as np


def clip(update, bound, order):
    """Scale an update into the ball if it is longer."""
    norm = np.linalg.norm(update, order)
    return update * min(1.0, bound / norm) if norm > 0 else update


def server_step(parameters, updates, *, cohort_size, server_learning_rate, clip_norm=None, noise=None):
    """Step by equation 6, with noise before the server's rate; `updates` are dense, `noise` is on their sum."""
    total = np.zeros(len(parameters))
    for update in updates:
        total += update if clip_norm is None else clip(update, clip_norm, 2)
    if noise is not None:
        total += noise
    return parameters + server_learning_rate * total / cohort_size


def adam(parameters, means, *, learning_rate):
    """Step by Kingma and Ba, Algorithm 1, upward along each mean update, one parameter after another."""
    out = []
    for value, path in zip(parameters, np.array(means).T, strict=True):
        first = second = 0.0
        for step, mean in enumerate(path, 1):
            first = 0.9 * first + 0.1 * mean
            second = 0.99 * second + 0.01 * mean * mean
            value = np.float32(
                value + learning_rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-5)
            )
        out.append(value)
    return np.array(out)
