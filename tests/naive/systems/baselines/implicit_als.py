"""ImplicitALS by dense matrices: each user's and item's weighted least squares over all pairs."""

import numpy as np


def weights(values, confidence_weight, unobserved_weight):
    """Return C and P for every user and item."""
    values = np.asarray(values, dtype=np.float64)
    return unobserved_weight + confidence_weight * values, (values > 0).astype(np.float64)


def regularizations(values, regularization, scaling, unobserved_weight):
    """Return lambda_u of every row of `values`."""
    n_columns = np.shape(values)[1]
    return [regularization * ((row > 0).sum() + unobserved_weight * n_columns) ** scaling for row in np.asarray(values)]


def solve_rows(confidence, preference, factors, ridges):
    """Return argmin over x of sum_i c_i (p_i - x'v_i)^2 + ridge |x|^2 for every row."""
    out = []
    for c, p, ridge in zip(confidence, preference, ridges, strict=True):
        a = sum(c[i] * np.outer(v, v) for i, v in enumerate(factors)) + ridge * np.eye(len(factors[0]))
        out.append(np.linalg.solve(a, sum(c[i] * p[i] * v for i, v in enumerate(factors))))
    return np.array(out)


def fit(values, items, n_epochs, regularization, scaling, confidence_weight, unobserved_weight):
    """Return users, items and loss after each epoch, starting from these items' factors."""
    values = np.asarray(values, dtype=np.float64)
    confidence, preference = weights(values, confidence_weight, unobserved_weight)
    of_users = regularizations(values, regularization, scaling, unobserved_weight)
    of_items = regularizations(values.T, regularization, scaling, unobserved_weight)
    epochs = []
    for _ in range(n_epochs):
        users = solve_rows(confidence, preference, items, of_users)
        items = solve_rows(confidence.T, preference.T, users, of_items)
        epochs.append((users, items, loss(confidence, preference, users, items, of_users, of_items)))
    return epochs


def loss(confidence, preference, users, items, of_users, of_items):
    total = 0.0
    for u, x in enumerate(users):
        for i, v in enumerate(items):
            total += confidence[u, i] * (preference[u, i] - x @ v) ** 2
    return total + np.dot(of_users, (users**2).sum(axis=1)) + np.dot(of_items, (items**2).sum(axis=1))
