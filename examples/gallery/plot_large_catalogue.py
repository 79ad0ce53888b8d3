"""
Private recommendations for many items
======================================

This example compares :class:`~fastfedrec.systems.subspace.model.DPSubspace` with
popularity on 1,500 items. The pairs of so large a catalogue are a million numbers, and
each of them needs noise. ``DPSubspace`` releases products with a few dozen columns
instead. Later rounds use the directions with the strongest signal.
"""

import matplotlib.pyplot as plt

from fastfedrec import DPSubspace, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

SIZES, N_ITEMS = [1000, 2000, 5000], 1500


def hit_ratio(model, train, test):
    """Return HR@10 among 99 items that the user does not have."""
    model = model.fit(train, key=Key.from_seed(3))
    protocol = {"metrics": ["hr@10"], "candidates": Sampled(99)}
    return evaluate(model, train, test, key=Key.from_seed(4), **protocol)["hr@10"]


# %%
# If noise covers the projections, devices measure no gain, and the remaining budget is
# spent on popularity. The attribute ``signal_`` is a public number that grows with the
# number of users.

hit_ratios = {"DPSubspace, epsilon 2": [], "popularity, no privacy": []}
signals = []
all_users = generate_implicit(
    max(SIZES), N_ITEMS, key=Key.from_seed(1), mean_interactions=50
)
for n_users in SIZES:
    data = all_users.select_users(all_users.user_ids[:n_users])
    train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
    model = DPSubspace(epsilon=2.0)
    hit_ratios["DPSubspace, epsilon 2"].append(hit_ratio(model, train, test))
    hit_ratios["popularity, no privacy"].append(hit_ratio(Popularity(), train, test))
    signals.append(model.signal_)

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(hit_ratios.items(), ("o-", "k--"), strict=True):
    axes.plot(SIZES, values, style, label=name)
axes.set_xticks(
    SIZES, [f"{n:,}\nsignal {x:.2f}" for n, x in zip(SIZES, signals, strict=True)]
)
axes.set(xlabel="number of users, and their signal", ylabel="HR@10", ylim=0)
axes.legend()
plt.show()
