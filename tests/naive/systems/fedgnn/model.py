"""FedGNN on one client's graph in NumPy: the loss, as a function of all inputs, and its gradients.

Every function accepts complex numbers, so that derivatives by complex steps are exact to rounding.
"""

import numpy as np

JOINED, HIDDEN, OTHER = 0, 1, 2
SLOPE = 0.2


def bend(x):
    return x if x.real > 0 else SLOPE * x


def attention(weights):
    """Return the softmax of complex or real numbers."""
    powers = np.exp(np.array(weights) - max(w.real for w in weights))
    return powers / powers.sum()


def hidden_user(user, joined, neighbors, w, a):
    """Return h of a user joined with some items, by their embeddings."""
    nodes = [w @ e for e in (user, *joined, *neighbors)]
    return attention([bend(a[0] @ nodes[0] + a[1] @ z) for z in nodes]) @ np.array(nodes)


def hidden_item(user, item, w, a):
    """Return h of an item joined with the user."""
    z, z_user = w @ item, w @ user
    share = attention([bend(a[0] @ z + a[1] @ z), bend(a[0] @ z + a[1] @ z_user)])
    return share[0] * z + share[1] * z_user


def loss(user, rows, targets, kinds, neighbors, w, a, kind=JOINED):
    """Return the mean squared error of items that are not of `kind`; the user is joined with items of `kind`."""
    h = hidden_user(user, [row for row, k in zip(rows, kinds, strict=True) if k == kind], neighbors, w, a)
    errors = [h @ hidden_item(user, row, w, a) - y for row, y, k in zip(rows, targets, kinds, strict=True) if k != kind]
    return sum(error**2 for error in errors) / len(errors) if errors else 0.0


def derivative(function, x, step=1e-30):
    """Return the gradient of a real analytic function by complex steps."""
    slopes = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[index] += 1j * step
        slopes[index] = complex(function(moved)).imag / step
    return slopes


def tuned(rows, targets, kinds, neighbors, w, a, rate, n_steps):
    """Return a user's embedding after steps from 0 of at most `rate`; joined and hidden items swap after each."""
    user = np.zeros(len(w))
    for step in range(n_steps):
        kind = JOINED if (n_steps - step) % 2 == 0 else HIDDEN
        step = derivative(lambda u, k=kind: loss(u, rows, targets, kinds, neighbors, w, a, k), user)
        user = user - rate * step / max(1.0, np.linalg.norm(step))
    return user


def gradients(rows, targets, kinds, neighbors, w, a, rate, n_steps):
    """Return the user's embedding, and the loss's gradients by W, by both parts of the attention, and by each row."""
    user = tuned(rows, targets, kinds, neighbors, w, a, rate, n_steps)
    arguments = {"rows": rows, "w": w, "a": a}
    slopes = {
        name: derivative(
            lambda x, name=name: loss(
                user, targets=targets, kinds=kinds, neighbors=neighbors, **{**arguments, name: x}
            ),
            value,
        )
        for name, value in arguments.items()
    }
    return user, slopes["w"], slopes["a"], slopes["rows"]


def score(user, joined, neighbors, items, w, a):
    """Return the products from which predictions are computed."""
    h = hidden_user(user, joined, neighbors, w, a)
    return [h @ hidden_item(user, item, w, a) for item in items]
