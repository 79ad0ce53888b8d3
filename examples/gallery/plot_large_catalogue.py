"""
A large catalogue of items
==========================

The pairs of 1,500 items are a million numbers, each with noise.
:class:`~fastfedrec.systems.subspace.model.DPSubspace` asks for the products of each
row with a few dozen columns instead, and looks closer where it found something.
"""

import matplotlib.pyplot as plt

from fastfedrec import DPSubspace, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

SIZES, N_ITEMS = [1000, 2000, 5000], 1500


def hit_ratio(model, train, test):
    """HR@10 among 99 items that the user does not have."""
    model = model.fit(train, key=Key.from_seed(3))
    protocol = {"metrics": ["hr@10"], "candidates": Sampled(99)}
    return evaluate(model, train, test, key=Key.from_seed(4), **protocol)["hr@10"]


# %%
# ``signal_`` is known beforehand. Where noise covers the projections, devices measure
# no gain, and the rest of the budget goes to popularity.

found = {"DPSubspace, epsilon 2": [], "popularity, no privacy": []}
signals = []
everybody = generate_implicit(
    max(SIZES), N_ITEMS, key=Key.from_seed(1), mean_interactions=50
)
for n_users in SIZES:
    data = everybody.select_users(everybody.user_ids[:n_users])
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
    model = DPSubspace(epsilon=2.0)
    found["DPSubspace, epsilon 2"].append(hit_ratio(model, train, test))
    found["popularity, no privacy"].append(hit_ratio(Popularity(), train, test))
    signals.append(model.signal_)

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(found.items(), ("o-", "k--"), strict=True):
    axes.plot(SIZES, values, style, label=name)
axes.set_xticks(
    SIZES, [f"{n:,}\nsignal {x:.2f}" for n, x in zip(SIZES, signals, strict=True)]
)
axes.set(xlabel="users, and the signal that they make", ylabel="HR@10", ylim=0)
axes.legend()
