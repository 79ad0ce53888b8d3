"""
Accuracy of private prototypes over the size of entities
========================================================

This example shows how many users an entity needs for accurate private prototypes. In
:class:`~fastfedrec.systems.private_prototypes.model.PrivatePrototypes` each entity,
such as a hospital or a region, sends one noisy message about all its users. The noise
does not depend on the number of users, so that larger entities have a smaller error.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Key, PrivatePrototypes
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import KFold, evaluate_ratings
from fastfedrec.systems.rating_svd.baselines import GlobalMean

# %%
# The data have four entities of equal size. One fifth of the ratings is held out.

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
axes.set(xscale="log", xlabel="users of each entity", ylabel="RMSE on held-out ratings")
axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# Privacy increases the error of large entities a little and of small ones much. With
# 100 users and epsilon 1 the message is mostly noise. The model is still more accurate
# than the global mean, because it also uses the user's ratings, which do not leave the
# entity.
#
# Epsilon is pure and refers to adding or removing all data of one user. It holds
# against the server, against other entities, and against any party that sees the item
# factors. The entity that holds a user's data is trusted. Replacing a user costs twice
# as much:

print(fits["epsilon 1", SIZES[-1]].ledger_.summary())
