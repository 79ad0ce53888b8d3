"""
Effect of sampled items on a metric
===================================

This example shows how the number of sampled items changes HR@10. Many papers rank the
held-out item among 99 sampled items instead of all items. The sampled metric is higher,
and the difference between two models is not the same.
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
# The models and the held-out items are the same for each number of sampled items.

N_SAMPLED = [19, 49, 99, 199, None]


def hit_ratio(model, n):
    """Return HR@10 among n sampled items, or among all items if n is None."""
    candidates = None if n is None else Sampled(n)
    key = None if n is None else Key.from_seed(4)
    protocol = {"metrics": ["hr@10"], "candidates": candidates, "key": key}
    return evaluate(model, train, test, **protocol)["hr@10"]


hit_ratios = {
    name: [hit_ratio(model, n) for n in N_SAMPLED] for name, model in models.items()
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for (name, values), style in zip(hit_ratios.items(), ("o-", "s-", "k--"), strict=True):
    axes.plot(range(len(N_SAMPLED)), values, style, label=name)
axes.set_xticks(range(len(N_SAMPLED)), [str(n or "all") for n in N_SAMPLED])
axes.set(xlabel="items that are ranked with the held-out item", ylabel="HR@10", ylim=0)
axes.legend()
plt.show()
