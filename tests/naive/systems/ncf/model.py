"""NCF with its gradient by complex steps, and Adam in its printed form, for all parameters in every step."""

import numpy as np

# A complex step has no subtraction, and so no cancellation.
STEP = 1e-30


def logits(parameters, users, items, n_users, n_items, product, layers):
    """Return z of each pair; parameters are the table's rows, then the dense weights."""
    tower = layers[0] if layers else 0
    n_rows, width = n_users + n_items, product + tower
    table, dense = parameters[: n_rows * width].reshape(n_rows, width), list(parameters[n_rows * width :])
    out = []
    for user, item in zip(users, items, strict=True):
        p, q = table[user], table[n_users + item]
        remaining = iter(dense)
        x = [*p[product:], *q[product:]]
        for n_out in layers:
            weights = [[next(remaining) for _ in range(n_out)] for _ in x]
            biases = [next(remaining) for _ in range(n_out)]
            y = [b + sum(x[i] * weights[i][o] for i in range(len(x))) for o, b in enumerate(biases)]
            x = [value if value.real > 0 else 0 for value in y]
        features = [*(p[:product] * q[:product]), *(x if layers else [])]
        out.append(sum(next(remaining) * feature for feature in features) + next(remaining))
    return np.array(out)


def loss(parameters, batch, *shape):
    """Return the mean logistic loss of (user, item, label)."""
    users, items, labels = zip(*batch, strict=True)
    z = logits(parameters, users, items, *shape)
    return np.mean(np.log(1 + np.exp(z)) - np.array(labels) * z)


def lengths(parameters, batch, n_users, n_items, product, layers):
    """Return half the mean squared length of the parameters that each example's score uses."""
    n_rows, width = n_users + n_items, product + (layers[0] if layers else 0)
    table = parameters[: n_rows * width].reshape(n_rows, width)
    squares = [(table[user] ** 2).sum() + (table[n_users + item] ** 2).sum() for user, item, _ in batch]
    return (np.mean(squares) + (parameters[n_rows * width :] ** 2).sum()) / 2


def gradient(parameters, batch, *shape, regularization=0.0):
    moved = np.tile(parameters.astype(complex), (len(parameters), 1))
    np.fill_diagonal(moved, parameters + 1j * STEP)
    whole = (loss(row, batch, *shape) + regularization * lengths(row, batch, *shape) for row in moved)
    return np.array([value.imag / STEP for value in whole])


def adam(parameters, gradient_of, n_steps, rate):
    """Step by Kingma and Ba, Algorithm 1."""
    x, m, v = parameters.copy(), 0.0, 0.0
    for t in range(1, n_steps + 1):
        g = gradient_of(x, t - 1)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return x


def sgd(parameters, gradient_of, n_steps, rate):
    x = parameters.copy()
    for t in range(n_steps):
        x = x - rate * gradient_of(x, t)
    return x
