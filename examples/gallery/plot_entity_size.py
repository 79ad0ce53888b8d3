"""
How large must a hospital be for private prototypes?
====================================================

With :class:`~fastfedrec.systems.private_prototypes.model.PrivatePrototypes` each entity
(a hospital, a region) sends one noisy message about all its users. The noise is the
same for a small entity as for a large one, so what is left of the message grows with
the number of users behind it.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Key, PrivatePrototypes
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.systems.rating_svd.baselines import GlobalMean

# %%
# Four entities of equal size, in data of growing size; a fifth of the ratings is held
# out.

SIZES = [100, 300, 1000, 3000]
BUDGETS = {"epsilon 1": 1.0, "epsilon 5": 5.0, "no privacy": None}
fits, errors = {}, {name: [] for name in (*BUDGETS, "global mean")}
for size in SIZES:
    data = generate_implicit(
        4 * size, 100, key=Key.from_seed(1), ratings=True, mean_interactions=30
    )
    train, test = next(KFold(5).split(data, key=Key.from_seed(2)))
    entities = np.arange(data.n_users) % 4
    for name, epsilon in BUDGETS.items():
        model = PrivatePrototypes(
            n_prototypes=1, n_factors=1, epsilon=epsilon, max_entries=30
        )
        fits[name, size] = model.fit(
            train, entities=entities, key=Key.from_seed(3), n_threads=1
        )
        errors[name].append(evaluate_ratings(model, test)["rmse"])
    errors["global mean"].append(
        evaluate_ratings(GlobalMean().fit(train), test)["rmse"]
    )

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(
    errors.items(), ("o-", "s-", "^--", "k:"), strict=True
):
    axes.plot(SIZES, values, style, label=name)
axes.set(xscale="log", xlabel="users of an entity", ylabel="RMSE on held-out ratings")
axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
axes.minorticks_off()
axes.legend()

# %%
# A large entity pays little for its users' privacy, a small one much: at 100 users and
# epsilon 1 most of the message is noise, though a user's own ratings, which never leave
# the entity, still tell more than a global mean.
#
# Epsilon is pure, for adding or removing all of a user's data, against the server,
# other entities and whoever sees the item factors. The user's own entity is trusted.
# Replacing a user costs twice as much:

print(fits["epsilon 1", SIZES[-1]].ledger_.summary())
