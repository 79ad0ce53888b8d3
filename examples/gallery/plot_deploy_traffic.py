"""
Traffic of a device in five systems
===================================

This example compares how many bytes a device receives and sends in five systems, and
how many rounds it takes part in. Every fitted model has these numbers in
``communication_``, so that they can be read before a system is deployed.
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
# Traffic is the size of all messages of one device in the whole run, in bytes.

traffic_bytes, rounds = {}, {}
for name, system in SYSTEMS.items():
    traffic = system.fit(data, key=Key.from_seed(2)).communication_
    traffic_bytes[name] = [
        sum(message.download for message in traffic.rounds),
        sum(message.upload for message in traffic.rounds),
    ]
    rounds[name] = len(traffic.rounds)

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
for side, label in enumerate(("received", "sent")):
    positions = [number + 0.35 * (side - 0.5) for number in range(len(SYSTEMS))]
    kilobytes = [max(n_bytes[side], 1) / 1000 for n_bytes in traffic_bytes.values()]
    axes.barh(positions, kilobytes, height=0.33, label=label)
names = [f"{name}\n{rounds[name]} rounds" for name in SYSTEMS]
axes.set_yticks(range(len(names)), names)
axes.invert_yaxis()
axes.set(
    xscale="log", xlabel="kilobytes of one device in the whole run", ylabel="system"
)
figure.legend(loc="outside upper center", ncols=2)
plt.show()

# %%
# Systems that sum pairs of items send few large messages. Randomized reports are small,
# but some systems collect them in many rounds.
