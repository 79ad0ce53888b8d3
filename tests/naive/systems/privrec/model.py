"""Twin of a round of PrivRec: one client after the other, dense vectors."""

import numpy as np


def clip(update, bound, order):
    """The update, scaled into the ball where it is longer."""
    norm = np.linalg.norm(update, order)
    return update * min(1.0, bound / norm) if norm > 0 else update


def server_step(parameters, updates, *, cohort_size, server_learning_rate, clip_norm=None, noise=None):
    """Equation 6 with the noise before the server's rate; `updates` are dense, `noise` is on their sum."""
    total = np.zeros(len(parameters))
    for update in updates:
        total += update if clip_norm is None else clip(update, clip_norm, 2)
    if noise is not None:
        total += noise
    return parameters + server_learning_rate * total / cohort_size
