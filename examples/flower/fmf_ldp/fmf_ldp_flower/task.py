"""The settings that the server and all nodes share: the system, the catalogue, and the seed of a simulation."""

import csv
import os

import numpy as np

from fastfedrec import FMFLDP, Interactions, Key
from fastfedrec.datasets import generate_implicit

SYSTEM = FMFLDP(epsilon=2.5, n_reports=100, n_rounds=5)
CATALOGUE = np.arange(60)

# With a seed the run is a simulation, and all nodes share one key.  Otherwise each node draws and keeps a key.
SEED = int(os.environ["FASTFEDREC_SEED"]) if "FASTFEDREC_SEED" in os.environ else None

# Address of the shuffler.  If there is none, the nodes send sums of reports to the server.
SHUFFLER = os.environ.get("FASTFEDREC_SHUFFLER")
MIN_CROWD = None if SHUFFLER is None else 200


def load(context) -> Interactions:
    """Return the data of the node's users, from the file in its configuration or a part of generated data."""
    path = context.node_config.get("data")
    if path is None:
        data = generate_implicit(300, len(CATALOGUE), key=Key.from_seed(1))
        return data.shard(int(context.node_config["num-partitions"]))[int(context.node_config["partition-id"])]
    with open(str(path), newline="") as file:
        rows = list(csv.DictReader(file))
    users, items = [row["user"] for row in rows], [int(row["item"]) for row in rows]
    return Interactions.from_arrays(users, items, item_ids=CATALOGUE)
