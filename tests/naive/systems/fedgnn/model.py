"""FedGNN on one client's graph in plain NumPy: the loss, as a function of everything, and gradients of it.

Every function takes complex numbers too, so that derivatives by complex steps are exact to rounding.
"""

import numpy as np

JOINED, HIDDEN, OTHER = 0, 1, 2
SLOPE = 0.2


def bend(x):
    return x if x.real > 0 else SLOPE * x


def attention(weights):
    """The softmax of complex or real numbers."""
    powers = np.exp(np.array(weights) - max(w.real for w in weights))
    return powers / powers.sum()


def hidden_user(user, joined, neighbors, w, a):
    """h of a user joined with some items, by their embeddings."""
    nodes = [w @ e for e in (user, *joined, *neighbors)]
    return attention([bend(a[0] @ nodes[0] + a[1] @ z) for z in nodes]) @ np.array(nodes)


def hidden_item(user, item, w, a):
    """h of an item joined with the user."""
    z, z_user = w @ item, w @ user
    share = attention([bend(a[0] @ z + a[1] @ z), bend(a[0] @ z + a[1] @ z_user)])
    return share[0] * z + share[1] * z_user


def loss(user, rows, wanted, kinds, neighbors, w, a, kind=JOINED):
    """Mean square over what the user is not joined with, where it is joined with its items of a kind."""
    h = hidden_user(user, [row for row, k in zip(rows, kinds, strict=True) if k == kind], neighbors, w, a)
    errors = [h @ hidden_item(user, row, w, a) - y for row, y, k in zip(rows, wanted, kinds, strict=True) if k != kind]
    return sum(error**2 for error in errors) / len(errors) if errors else 0.0


def derivative(function, x, step=1e-30):
    """The gradient of a real analytic function by complex steps."""
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[place] += 1j * step
        found[place] = complex(function(moved)).imag / step
    return found


def tuned(rows, wanted, kinds, neighbors, w, a, rate, n_steps):
    """A user's embedding after steps from 0, none longer than `rate`, in which the parts of its items change places."""
    user = np.zeros(len(w))
    for step in range(n_steps):
        kind = JOINED if (n_steps - step) % 2 == 0 else HIDDEN
        step = derivative(lambda u, k=kind: loss(u, rows, wanted, kinds, neighbors, w, a, k), user)
        user = user - rate * step / max(1.0, np.linalg.norm(step))
    return user


def gradients(rows, wanted, kinds, neighbors, w, a, rate, n_steps):
    """The user's embedding, and the loss's gradients by W, by both parts of the attention, and by each row."""
    user = tuned(rows, wanted, kinds, neighbors, w, a, rate, n_steps)
    arguments = {"rows": rows, "w": w, "a": a}
    found = {
        name: derivative(
            lambda x, name=name: loss(user, wanted=wanted, kinds=kinds, neighbors=neighbors, **{**arguments, name: x}),
            value,
        )
        for name, value in arguments.items()
    }
    return user, found["w"], found["a"], found["rows"]


def score(user, joined, neighbors, items, w, a):
    """The products of which predictions are made."""
    h = hidden_user(user, joined, neighbors, w, a)
    return [h @ hidden_item(user, item, w, a) for item in items]
