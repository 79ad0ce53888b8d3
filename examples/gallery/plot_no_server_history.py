"""
No server sees your history
===========================

Two hundred nodes count their items together. Each node adds a share of the noise and
masks its numbers, so that the server learns the noisy sum, and no number of a node.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastfedrec import Key
from fastfedrec.accounting import Ledger, SkellamShares
from fastfedrec.datasets import generate_implicit
from fastfedrec.engines import aggregation
from fastfedrec.mechanisms import Skellam
from fastfedrec.mechanisms.bounded_rows import limit_contributions

N_ITEMS, MAX_ITEMS, KEY = 40, 8, Key.from_seed(1)
NODES = {"n_nodes": 200, "n_answers": 190, "honest_fraction": 0.8}

# %%
# A node counts at most eight items. The shares of noise are sized for the fewest
# answers, of which some may come from dishonest nodes.

data = generate_implicit(200, N_ITEMS, key=Key.from_seed(2))
limited = limit_contributions(data, MAX_ITEMS, value_range=(0, 1), key=KEY)
counts = limited.to_scipy().toarray().astype(np.int64)
share = Skellam(100).share(**NODES)
noise = [share.sample(N_ITEMS, key=KEY, purpose="noise", round=i) for i in range(200)]

# %%
# The event is recorded before the round, for both views: of the server, who may know
# the noise of dishonest nodes, and of the public. Six nodes leave before they answer.

ledger = Ledger(delta=1e-6)
sums = {"l2_sensitivity": MAX_ITEMS**0.5, "l1_sensitivity": MAX_ITEMS, **NODES}
kind = {"neighboring": "add_remove", "sampling": "none", "adding_fraction": 1.0}
ledger.record(SkellamShares(float(share.variance), n_values=N_ITEMS, **sums, **kind))
degree = aggregation.choose_degree(200, honest_fraction=0.8, min_answers=190)
plan = aggregation.AggregationPlan("demo", 0, N_ITEMS, 10**6, *degree, min_answers=190)
total, n_answers = aggregation.simulate_secure_sum(
    plan, counts + noise, key=KEY, dropouts={"mask": set(range(6))}
)
epsilons = {view: ledger.epsilon(view) for view in ("server", "public")}
for view, epsilon in epsilons.items():
    print(f"epsilon against the {view}: {epsilon:.2f}")

order = np.argsort(-counts.sum(axis=0))
figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
axes.plot(counts.sum(axis=0)[order], label="all nodes, without noise")
axes.plot(total[order], "o", label=f"the server's sum of {n_answers} nodes")
axes.set(xlabel="items, by popularity", ylabel="users")
axes.legend()
plt.show()
