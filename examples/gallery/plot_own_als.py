"""
The kernels in a program of one's own
=====================================

No system, no federation: alternating least squares for implicit feedback in a dozen
lines around :func:`fastfedrec.compute.als.solve_users`. Items are solved by the same
call on the transposed data.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Interactions, Key, als
from fastfedrec.datasets import generate_implicit

# %%
# Regularization and confidence are those of Hu, Koren and Volinsky's loss, which is
# computed here in full.

SETTING = {"regularization": 1.0, "confidence_weight": 10.0}
data = generate_implicit(2000, 300, key=Key.from_seed(1))
matrix = data.to_scipy()
transposed = Interactions.from_scipy(matrix.T.tocsr())
start = np.random.default_rng(0).normal(0, 0.1, (data.n_items, 16))


def loss(users, items):
    """Over all cells: 0 with confidence 1 where there is no interaction."""
    liked = np.einsum(
        "nk,nk->n", users[matrix.nonzero()[0]], items[matrix.nonzero()[1]]
    )
    everywhere = np.sum((users.T @ users) * (items.T @ items))
    weighted = (1 + SETTING["confidence_weight"]) * np.sum((1 - liked) ** 2) - np.sum(
        liked**2
    )
    return (
        everywhere
        + weighted
        + SETTING["regularization"] * (np.sum(users**2) + np.sum(items**2))
    )


def train(n_epochs=8, **solver):
    """Solve users for fixed items, then items for users; the loss after either."""
    users, items, losses = np.zeros((data.n_users, start.shape[1])), start, []
    warm = solver.get("solver") == "cg"
    for _ in range(n_epochs):
        users = als.solve_users(
            data, items, **SETTING, **solver, **({"start": users} if warm else {})
        )
        losses.append(loss(users, items))
        items = als.solve_users(
            transposed, users, **SETTING, **solver, **({"start": items} if warm else {})
        )
        losses.append(loss(users, items))
    return losses


losses = {"exact (Cholesky)": train()}
losses |= {
    f"conjugate gradients, steps: {n}": train(solver="cg", cg_steps=n) for n in (1, 3)
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
best = min(min(values) for values in losses.values())
for (name, values), style in zip(losses.items(), ("o-", "s-", "^-"), strict=True):
    axes.plot(
        np.arange(1, len(values) + 1) / 2,
        np.array(values) / best,
        style,
        markersize=4,
        label=name,
    )
axes.set(xlabel="epochs", ylabel="loss over the least one found", yscale="log")
axes.legend()

# %%
# No half epoch can raise the loss, for each is a minimisation over one side, or part of
# the way to it. Three steps of conjugate gradients that start where the last epoch
# ended come close to the exact solution.
