"""
Reading a ledger: against whom, and what adds up
================================================

One system, three views. The same run costs a different epsilon, or promises nothing,
depending on who looks, and two runs on the same people add up.
"""

import matplotlib.pyplot as plt

from fastfedrec import FMFLDP, DPGram, Key
from fastfedrec.datasets import generate_implicit

data = generate_implicit(3000, 100, key=Key.from_seed(1))
VIEWS = {
    "server": "the server, seeing\nwho sent what",
    "shuffled_server": "the server,\nbehind a shuffler",
    "public": "whoever sees\nthe model",
}

# %%
# Reports that devices randomize protect from everybody, a little. Noise of a trusted
# server protects from whoever sees the model, and not from the server.

local = FMFLDP(epsilon=1.0, n_reports=10, n_rounds=2).fit(data, key=Key.from_seed(2))
central = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(3))
first = {name: central.ledger_.epsilon(name) for name in VIEWS}
again = DPGram(epsilon=1.0).fit(data, key=Key.from_seed(4), ledger=central.ledger_)
costs = {
    "FMFLDP": {name: local.ledger_.epsilon(name) for name in VIEWS},
    "DPGram": first,
    "DPGram, twice": {name: again.ledger_.epsilon(name) for name in VIEWS},
}

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
most = 100
for number, (name, found) in enumerate(costs.items()):
    places = [place + 0.27 * (number - 1) for place in range(len(VIEWS))]
    heights = [min(found[view], most) for view in VIEWS]
    bars = axes.bar(places, heights, width=0.25, label=name)
    labels = ["none" if x == float("inf") else f"{x:.3g}" for x in found.values()]
    axes.bar_label(bars, labels)
axes.set_xticks(range(len(VIEWS)), list(VIEWS.values()))
axes.set(yscale="log", ylabel="epsilon (nats) of all runs", xlabel="who looks")
axes.set_ylim(0.05, 3 * most)
axes.legend(loc="upper right", ncols=3, fontsize="small")

# %%
# "None" is no guarantee at all. The ledger says the same in words, and what must be
# true for it to hold:

print(again.ledger_.summary())
