"""
Explain a recommendation
========================

This example explains a recommendation by the items of the user. The score of a linear
model is a sum over these items, so that each item has a share in the score. The shares
are computed on the device from the released model.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import DPGram, Key
from fastfedrec.datasets import generate_implicit

data = generate_implicit(6000, 200, key=Key.from_seed(1))
model = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(2))
user = data.user_ids[np.argmin(data.interactions_per_user())]
ids, scores = model.recommend([user], n=1)
reasons, parts = model.explain(user, ids[0, 0])

# %%
# The plot shows the eight items with the largest shares, and the sum of all others.

shown = np.argsort(-np.abs(parts))[:8]
remaining_score = parts.sum() - parts[shown].sum()
labels = [f"item {reasons[i]}" for i in shown] + ["all other items"]
values = [*parts[shown], remaining_score]

figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
axes.barh(labels, values, color=["C0"] * len(shown) + ["0.6"])
axes.invert_yaxis()
axes.set(xlabel=f"share in the score of item {ids[0, 0]}", ylabel="the user has")
plt.show()

# %%
# An explanation has no privacy cost, because it uses the released model and the data of
# the same user.
