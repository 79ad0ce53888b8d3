"""
Beware of metrics among sampled items
=====================================

Many papers rank the held-out item among 99 others instead of all. The figure is higher,
and the distance between two models another one.
"""

import matplotlib.pyplot as plt

from fastfedrec import EASE, DPGram, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

data = generate_implicit(4000, 500, key=Key.from_seed(1), mean_interactions=40)
train, test = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
models = {
    "EASE": EASE().fit(train),
    "DPGram, epsilon 1": DPGram(epsilon=1.0).fit(train, key=Key.from_seed(3)),
    "popularity": Popularity().fit(train),
}

# %%
# The same models, the same held-out items, and more and more others to beat.

OTHERS = [19, 49, 99, 199, None]


def hit_ratio(model, n):
    """HR@10 among so many others, or among all."""
    others = None if n is None else Sampled(n)
    key = None if n is None else Key.from_seed(4)
    how = {"metrics": ["hr@10"], "candidates": others, "key": key}
    return evaluate(model, train, test, **how)["hr@10"]


found = {name: [hit_ratio(x, n) for n in OTHERS] for name, x in models.items()}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(found.items(), ("o-", "s-", "k--"), strict=True):
    axes.plot(range(len(OTHERS)), values, style, label=name)
axes.set_xticks(range(len(OTHERS)), [str(n or "all") for n in OTHERS])
axes.set(xlabel="other items in the ranking", ylabel="HR@10", ylim=0)
axes.legend()
