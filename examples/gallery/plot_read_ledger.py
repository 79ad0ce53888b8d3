"""
Read a ledger: views and repeated runs
======================================

This example reads the ledgers of two systems. A ledger has an epsilon for each view,
which is an adversary with the messages that it sees. The same run can have different
costs in different views, or no guarantee. The costs of two runs on the same users
accumulate.
"""

import matplotlib.pyplot as plt

from fastfedrec import FMFLDP, DPGram, Key
from fastfedrec.datasets import generate_implicit

data = generate_implicit(3000, 100, key=Key.from_seed(1))
VIEWS = {
    "server": "the server, which\nknows the senders",
    "shuffled_server": "the server,\nbehind a shuffler",
    "public": "a party that\nsees the model",
}

# %%
# Reports that devices randomize have a weak guarantee against every party. Noise of a
# trusted server has a stronger guarantee against a party that sees the model, but none
# against the server.

local = FMFLDP(epsilon=1.0, n_reports=10, n_rounds=2).fit(data, key=Key.from_seed(2))
central = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(3))
first_run = {name: central.ledger_.epsilon(name) for name in VIEWS}
repeated = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(4), ledger=central.ledger_)
costs = {
    "FMFLDP": {name: local.ledger_.epsilon(name) for name in VIEWS},
    "DPGram": first_run,
    "DPGram, twice": {name: repeated.ledger_.epsilon(name) for name in VIEWS},
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
MAX_HEIGHT = 100  # of a bar, also for an infinite epsilon
for number, (name, epsilons) in enumerate(costs.items()):
    positions = [view + 0.27 * (number - 1) for view in range(len(VIEWS))]
    heights = [min(epsilons[view], MAX_HEIGHT) for view in VIEWS]
    bars = axes.bar(positions, heights, width=0.25, label=name)
    labels = ["none" if x == float("inf") else f"{x:.3g}" for x in epsilons.values()]
    axes.bar_label(bars, labels)
axes.set_xticks(range(len(VIEWS)), list(VIEWS.values()))
axes.set(yscale="log", ylabel="epsilon (nats) of all runs", xlabel="view")
axes.set_ylim(0.05, 3 * MAX_HEIGHT)
axes.legend(loc="upper right", ncols=3, fontsize="small")
plt.show()

# %%
# "none" means that there is no guarantee. The summary of the ledger also states the
# conditions of the guarantee:

print(repeated.ledger_.summary())
