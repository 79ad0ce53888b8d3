"""
Why was this recommended?
=========================

A linear model's score is a sum over what the person has, so each recommendation comes
with its reasons. They are computed on the device, from the released model alone.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import DPGram, Key
from fastfedrec.datasets import generate_implicit

data = generate_implicit(6000, 200, key=Key.from_seed(1))
model = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(2))
person = data.user_ids[np.argmin(data.interactions_per_user())]
ids, scores = model.recommend([person], n=1)
reasons, parts = model.explain(person, ids[0, 0])

# %%
# The eight items that speak most for it, and all others together.

shown = np.argsort(-np.abs(parts))[:8]
rest = parts.sum() - parts[shown].sum()
labels = [f"has item {reasons[i]}" for i in shown] + ["all else it has"]
values = [*parts[shown], rest]

figure, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
axes.barh(labels, values, color=["C0"] * len(shown) + ["0.6"])
axes.invert_yaxis()
axes.set(xlabel=f"part of the score of item {ids[0, 0]}", ylabel="because the person")

# %%
# No further data are looked at: an explanation costs no privacy.
