"""
Private recommendations from a CSV file
=======================================

This example reads a CSV file with one row for each purchase, fits a private model, and
recommends products to all customers. The program first writes a generated file, which
you can replace with your own.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Key, PrivateRecommender
from fastfedrec.datasets import generate_implicit, load_table

generated = generate_implicit(8000, 200, key=Key.from_seed(1), mean_interactions=30)
rows = generated.to_scipy().tocoo()
file = Path(tempfile.mkdtemp()) / "purchases.csv"
pairs = np.column_stack([rows.row, rows.col])
np.savetxt(file, pairs, fmt="%d", delimiter=",", header="customer,product", comments="")

# %%
# The loader needs the names of the columns of users and items. The list of products is
# public, because ``item_ids`` comes from the shop and not from the purchases.

data = load_table(file, user="customer", item="product", item_ids=range(200))
model = PrivateRecommender(epsilon=2.0, trust="central")
model = model.fit(data, key=Key.from_seed(2))
print(model.chosen_, "epsilon:", round(model.ledger_.epsilon("public"), 2))

# %%
# The plot shows the share of customers who bought a product and the share who are
# recommended it. One list for all customers would contain ten products only.

ids, scores = model.recommend(data.user_ids, n=10)
shares = np.bincount(ids.ravel(), minlength=data.n_items) / data.n_users
bought = np.bincount(data.indices, minlength=data.n_items) / data.n_users
shares, bought = shares[data.item_ids], bought[data.item_ids]

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
axes.plot(np.sort(bought)[::-1], "k--", label="bought the product")
axes.plot(np.sort(shares)[::-1], label="are recommended the product")
axes.axhline(1 / 20, color="0.7", linewidth=1, label="all products equally often")
axes.set(xlabel="products, most frequent first", ylabel="share of customers", ylim=0)
axes.legend()
plt.show()
