"""The settings that the server and all nodes share: the system, the catalogue, and the seed of a simulation."""

import csv
import os

import numpy as np

from fastfedrec import Interactions, Key, PrivatePrototypes
from fastfedrec.datasets import generate_implicit

SYSTEM = PrivatePrototypes(epsilon=2.0, n_prototypes=2, max_entries=30)
CATALOGUE = np.arange(60)

# With a seed the run is a simulation, and all nodes share one key.  Otherwise each node draws and keeps a key.
SEED = int(os.environ["FASTFEDREC_SEED"]) if "FASTFEDREC_SEED" in os.environ else None


def load(context) -> Interactions:
    """Return the data of the entity's patients, from the file in its configuration or a part of generated data."""
    path = context.node_config.get("data")
    if path is None:
        data = generate_implicit(300, len(CATALOGUE), key=Key.from_seed(1), ratings=True)
        return data.shard(int(context.node_config["num-partitions"]))[int(context.node_config["partition-id"])]
    with open(str(path), newline="") as file:
        rows = list(csv.DictReader(file))
    users, items = [row["user"] for row in rows], [int(row["item"]) for row in rows]
    return Interactions.from_arrays(users, items, [float(row["value"]) for row in rows], item_ids=CATALOGUE)
