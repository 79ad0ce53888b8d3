"""
Which system is better, and is the difference more than chance?
===============================================================

Two private systems between a popular list and a model without privacy, on the same
split, with 95% bootstrap intervals over users.
"""

import matplotlib.pyplot as plt

from fastfedrec import EASE, DPGram, DPPopularity, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import RandomHoldout, compare, evaluate

data = generate_implicit(5000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(RandomHoldout(share=0.2).split(data, key=Key.from_seed(2)))

# %%
# The two private ones cost 2, for replacing a user: their own number is for taking the
# user's data away. Ledgers have both.

models = {
    "popularity": Popularity(),
    "DPPopularity": DPPopularity(epsilon=1.0, trust="central"),
    "DPGram": DPGram(epsilon=1.1349),
    "EASE, no privacy": EASE(),
}
key = Key.from_seed(3)
fitted = {name: model.fit(train, key=key) for name, model in models.items()}
results = {
    name: evaluate(model, train, test, metrics=["recall@20"])
    for name, model in fitted.items()
}
comparison = compare(results, key=Key.from_seed(4))

figure, axes = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
for place, (name, intervals) in enumerate(comparison.intervals.items()):
    low, high = intervals["recall@20"]
    epsilon = fitted[name].ledger_.epsilon("public")
    colour = "C0" if epsilon < float("inf") else "0.5"
    axes.plot([low, high], [place, place], color=colour, linewidth=2)
    axes.plot(results[name]["recall@20"], place, "o", color=colour, markersize=4)
axes.set_yticks(range(len(results)), list(results))
axes.set(xlabel="recall@20, with 95% intervals", ylabel="system")
axes.margins(y=0.15)

# %%
# Paired permutation tests, corrected for their number, say what may be concluded:

print(comparison.summary())
