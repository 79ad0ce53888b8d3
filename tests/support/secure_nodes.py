"""Noise of a node of secure sums, drawn again from the key in its folder."""

import json

import numpy as np

from fastfedrec import Key
from fastfedrec.engines.aggregation import node_name


def noise_of(folder, sums, round):
    """Return the share of noise of a node in a sum."""
    document = json.loads((folder / f"sums-{sums.digest}/key.json").read_text())
    key, purpose = Key(bytes.fromhex(document["secret"])), f"aggregation.noise.{node_name(folder)}"
    return sums.share.add_noise(np.zeros(sums.n_values, dtype=np.int64), key=key, purpose=purpose, round=round)
