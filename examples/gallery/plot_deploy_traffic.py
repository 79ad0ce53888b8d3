"""
What a device sends and receives
================================

Before a system is deployed: how much goes over the line, and how often a device must
answer. Every fitted model has it in ``communication_``.
"""

import matplotlib.pyplot as plt

from fastfedrec import DPFMF, FMFLDP, DPGram, DPSubspace, Key, ShuffledSketchGram
from fastfedrec.datasets import generate_implicit

data = generate_implicit(3000, 400, key=Key.from_seed(1))
SYSTEMS = {
    "DPGram": DPGram(epsilon=1.0),
    "DPSubspace": DPSubspace(epsilon=1.0),
    "DPFMF": DPFMF(epsilon=1.0),
    "ShuffledSketchGram": ShuffledSketchGram(epsilon=4.0),
    "FMFLDP": FMFLDP(epsilon=2.5, n_reports=100, n_rounds=20),
}

# %%
# Traffic is counted in the bytes of messages, for one device over the whole run.

moved, rounds = {}, {}
for name, system in SYSTEMS.items():
    traffic = system.fit(data, key=Key.from_seed(2)).communication_
    moved[name] = [
        sum(each.download for each in traffic.rounds),
        sum(each.upload for each in traffic.rounds),
    ]
    rounds[name] = len(traffic.rounds)

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for side, label in enumerate(("received", "sent")):
    places = [place + 0.35 * (side - 0.5) for place in range(len(moved))]
    values = [max(each[side], 1) / 1000 for each in moved.values()]
    axes.barh(places, values, height=0.33, label=label)
names = [f"{name}\nasked {rounds[name]} times" for name in moved]
axes.set_yticks(range(len(names)), names)
axes.invert_yaxis()
axes.set(xscale="log", xlabel="kilobytes of one device, the whole run", ylabel="system")
figure.legend(loc="outside upper center", ncols=2)

# %%
# Pairs of items are the largest message and the fewest; randomized reports are small,
# and some systems ask for them again and again.
