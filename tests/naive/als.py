"""Readable twin of fastfedrec.als: one dense system a user, in double."""

import numpy as np


def solve_users(rows, item_factors, regularization, confidence_weight, use_values):
    """`rows`: for each user a dict {item: value}; a user without positive values gets zeros."""
    factors = np.asarray(item_factors, dtype=np.float64)
    n_items, n_factors = factors.shape
    out = np.zeros((len(rows), n_factors))
    for user, row in enumerate(rows):
        row = {item: value for item, value in row.items() if value > 0}
        if not row:
            continue
        confidence, preference = np.ones(n_items), np.zeros(n_items)
        for item, value in row.items():
            confidence[item] += confidence_weight * (value if use_values else 1)
            preference[item] = 1
        system = factors.T @ (confidence[:, None] * factors) + regularization * np.eye(n_factors)
        out[user] = np.linalg.solve(system, factors.T @ (confidence * preference))
    return out
