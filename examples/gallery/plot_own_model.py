"""
A model, a file, a metric and a plot of your own
================================================

This example compares a model that is not part of this package with models of the
package, on a file, by a metric that it defines itself.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import EASE, Key, Popularity
from fastfedrec.datasets import generate_implicit, load_table
from fastfedrec.evaluation import LeaveOneOut, compare, evaluate

generated = generate_implicit(3000, 300, key=Key.from_seed(1), mean_interactions=40)
rows = generated.to_scipy().tocoo()
file = Path(tempfile.mkdtemp()) / "visits.csv"
times = np.random.default_rng(2).integers(0, 10**6, rows.nnz)
table = np.column_stack([rows.row, rows.col, times])
np.savetxt(
    file, table, fmt="%d", delimiter=",", header="user,item,timestamp", comments=""
)

# %%
# The test is the latest interaction of each user.

data = load_table(file, timestamp="timestamp", item_ids=range(300))
train, test = next(LeaveOneOut(latest=True).split(data, key=Key.from_seed(3)))

# %%
# A model needs one method. This one scores an item by its cosines with the items of the
# user, where each item is the column of its users.


class ItemCosines:
    """Recommender by cosines of items."""

    def __init__(self, train):
        self.train, self.rows = train, train.to_scipy()
        norms = np.sqrt(np.maximum(train.interactions_per_item(), 1))
        self.cosines = (self.rows.T @ self.rows).toarray() / np.outer(norms, norms)

    def score_items(self, user_ids):
        """Return a row of scores of all items for each user id."""
        return self.rows[self.train.user_index(user_ids)] @ self.cosines


# %%
# A metric is a function that returns a value for each user: here the share of the list
# that is outside the 20 items with most users.


def share_outside_top_20(rankings):
    """Return the share of each user's list outside the 20 most used items."""
    popular = np.argsort(-rankings.item_counts)[:20]
    return 1 - np.isin(rankings.top(10), popular).mean(axis=1)


models = {
    "popularity": Popularity().fit(train),
    "item cosines": ItemCosines(train),
    "EASE": EASE().fit(train),
}
metrics = ["ndcg@10", "novelty@10", share_outside_top_20]
results = {
    name: evaluate(model, train, test, metrics=metrics)
    for name, model in models.items()
}
compared = compare(results, key=Key.from_seed(4))
print(compared.summary())

# %%
# Bars are 95% bootstrap intervals over users.

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for name, result in results.items():
    x, y = result["share_outside_top_20"], result["ndcg@10"]
    low, high = compared.intervals[name]["ndcg@10"]
    axes.errorbar(x, y, [[y - low], [high - y]], fmt="o", label=name)
axes.set(xlabel="share of the list outside the 20 most used items", ylabel="ndcg@10")
axes.legend()
plt.show()
