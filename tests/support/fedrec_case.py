"""Ratings and settings for tests of FedRec and FedRec++."""

import numpy as np
from hypothesis import strategies as st

from fastfedrec.systems.gradient_rounds import devices as devices
from support.data import random_ratings

RESPONSES = {"filling": "randomized_response", "keep_probability": 0.75, "add_probability": 0.25}
small_data = st.builds(random_ratings, st.integers(1, 9), st.integers(1, 8), st.integers(0, 999))
SHARINGS = ["additive", "published"]


def start(model, data, key, recorded=()):
    """Return the rounds of a model, which record the messages of some rounds, and their first state."""
    rounds = model._rounds(data, key, recorded)
    return rounds, rounds.initial_state(data)


def add_up(messages, shape):
    """Return the sum of the messages for each item."""
    total = np.zeros(shape, dtype=np.uint64)
    np.add.at(total, messages.items, messages.values)
    return total
