"""Data and settings for the tests of claims (`test_claims`, `test_public_values`)."""

import json

import numpy as np

from fastfedrec import Key

KEY = Key.from_seed(1)
N_ITEMS = 12
NETWORK = {"n_factors": 16, "hidden": (16,)}


def ratings():
    rng = np.random.default_rng(1)
    return np.where(rng.random((40, N_ITEMS)) < 0.3, rng.integers(1, 6, (40, N_ITEMS)), 0).astype(float)


def ledger_text(model):
    """Return the ledger's statements without numbers of users."""
    document = model.ledger_.to_dict()
    return json.dumps([document["events"], document["epsilon"], document["notes"]])
