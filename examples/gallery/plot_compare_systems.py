"""
Compare systems with a test of significance
===========================================

This example compares two private systems with a list of popular items and with a model
without privacy. All are evaluated on the same split. The plot shows 95% bootstrap
intervals over users.
"""

import matplotlib.pyplot as plt

from fastfedrec import EASE, DPGram, DPPopularity, Key, Popularity
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import RandomHoldout, compare, evaluate

data = generate_implicit(5000, 300, key=Key.from_seed(1), mean_interactions=30)
train, test = next(RandomHoldout(share=0.2).split(data, key=Key.from_seed(2)))

# %%
# Both private systems cost an epsilon of 2 for replacing a user. Their parameter
# ``epsilon`` refers to the removal of a user's data. Their ledgers state both costs.

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

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
_ = comparison.plot("recall@20", ax=axes)
plt.show()

# %%
# The conclusion follows from paired permutation tests, which are corrected for multiple
# comparisons:

print(comparison.summary())
