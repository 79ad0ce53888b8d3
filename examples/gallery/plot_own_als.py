"""
Alternating least squares with the compiled kernels
===================================================

This example implements alternating least squares for implicit feedback with
:func:`fastfedrec.compute.als.solve_users`, without a federation. The same function
solves the items on the transposed data.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Interactions, Key, als
from fastfedrec.datasets import generate_implicit

# %%
# Regularization and confidence weight are the parameters of the loss of Hu, Koren and
# Volinsky. The program computes this loss over all cells of the matrix.

LOSS_PARAMETERS = {"regularization": 1.0, "confidence_weight": 10.0}
data = generate_implicit(2000, 300, key=Key.from_seed(1))
matrix = data.to_scipy()
transposed = Interactions.from_scipy(matrix.T.tocsr())
start = np.random.default_rng(0).normal(0, 0.1, (data.n_items, 16))


def loss(users, items):
    """Return the loss. A cell without an interaction has value 0 and confidence 1."""
    scores = np.einsum(
        "nk,nk->n", users[matrix.nonzero()[0]], items[matrix.nonzero()[1]]
    )
    # The sum of squared scores over all cells is the trace of U'U V'V.
    all_cells = np.sum((users.T @ users) * (items.T @ items))
    confidence = 1 + LOSS_PARAMETERS["confidence_weight"]
    corrections = confidence * np.sum((1 - scores) ** 2) - np.sum(scores**2)
    squared_norms = np.sum(users**2) + np.sum(items**2)
    return all_cells + corrections + LOSS_PARAMETERS["regularization"] * squared_norms


def train(n_epochs=8, **solver):
    """Solve users and items alternately, and return the loss after each half epoch."""
    users, items, losses = np.zeros((data.n_users, start.shape[1])), start, []
    is_iterative = solver.get("solver") == "cg"
    for _ in range(n_epochs):
        users = als.solve_users(
            data,
            items,
            **LOSS_PARAMETERS,
            **solver,
            **({"start": users} if is_iterative else {}),
        )
        losses.append(loss(users, items))
        items = als.solve_users(
            transposed,
            users,
            **LOSS_PARAMETERS,
            **solver,
            **({"start": items} if is_iterative else {}),
        )
        losses.append(loss(users, items))
    return losses


losses = {"exact (Cholesky)": train()}
losses |= {
    f"conjugate gradients, steps: {n}": train(solver="cg", cg_steps=n) for n in (1, 3)
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
smallest_loss = min(min(values) for values in losses.values())
for (name, values), style in zip(losses.items(), ("o-", "s-", "^-"), strict=True):
    axes.plot(
        np.arange(1, len(values) + 1) / 2,
        np.array(values) / smallest_loss,
        style,
        markersize=4,
        label=name,
    )
axes.set(xlabel="epochs", ylabel="loss divided by the smallest loss", yscale="log")
axes.legend()
plt.show()

# %%
# No half epoch can increase the loss, because it minimizes the loss over one side, or
# takes steps of descent toward this minimum. Three steps of conjugate gradients from
# the last epoch's factors come close to the exact solution.
