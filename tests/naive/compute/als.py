"""Readable twin of fastfedrec.als: one dense system a user, in double; solved exactly or by conjugate gradients."""

import numpy as np


def solve_users(rows, item_factors, regularization, confidence_weight, use_values):
    """Solve for each user's factors, given `rows`, a dict {item: value} for each, with zeros if none is positive.

    `regularization` is one number, or one for each user.
    """
    ridges = np.broadcast_to(regularization, len(rows))
    out = np.zeros((len(rows), np.shape(item_factors)[1]))
    for user, row in enumerate(rows):
        if any(value > 0 for value in row.values()):
            out[user] = np.linalg.solve(*system(row, item_factors, ridges[user], confidence_weight, use_values))
    return out


def solve_users_cg(rows, item_factors, regularization, confidence_weight, use_values, n_steps, start):
    """Apply `n_steps` steps of conjugate gradients from the rows of `start`."""
    ridges = np.broadcast_to(regularization, len(rows))
    out = np.zeros((len(rows), np.shape(item_factors)[1]))
    for user, row in enumerate(rows):
        if not any(value > 0 for value in row.values()):
            continue
        a, b = system(row, item_factors, ridges[user], confidence_weight, use_values)
        x = np.array(start[user], dtype=np.float64)
        residual = b - a @ x
        direction = residual
        for _ in range(n_steps):
            # An exact solution has no further direction.
            if not residual @ residual > 0:
                break
            step = (residual @ residual) / (direction @ a @ direction)
            x = x + step * direction
            new = residual - step * (a @ direction)
            direction = new + (new @ new) / (residual @ residual) * direction
            residual = new
        out[user] = x
    return out


def system(row, item_factors, regularization, confidence_weight, use_values):
    """Return A and b of one user's system A x = b."""
    factors = np.asarray(item_factors, dtype=np.float64)
    n_items, n_factors = factors.shape
    confidence, preference = np.ones(n_items), np.zeros(n_items)
    for item, value in row.items():
        if value > 0:
            confidence[item] += confidence_weight * (value if use_values else 1)
            preference[item] = 1
    # Hu, Koren, Volinsky 2008, equation 4: (V'CV + reg I) x = V'Cp.
    a = factors.T @ (confidence[:, None] * factors) + regularization * np.eye(n_factors)
    return a, factors.T @ (confidence * preference)
