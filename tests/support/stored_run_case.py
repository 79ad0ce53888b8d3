"""Data of a small run of PrivRec with stored files, and runs that are interrupted."""

import numpy as np
import pytest

from fastfedrec import Key, PrivRec
from fastfedrec.data.log import InteractionLog
from fastfedrec.systems.privrec.rounds import PrivRecRounds

USERS, ITEMS = np.repeat(np.arange(12), 4), np.arange(48) % 7
AGES, GENRES = np.arange(12) % 3, np.arange(7) % 2
SMALL = {"n_rounds": 2, "cohort_size": 4, "n_factors": 16, "hidden": (16,), "local_epochs": 1}
PRIVATE = SMALL | {"clip_norm": 0.01, "noise_multiplier": 2.0}
FEATURES = {"user": ["age"], "item": ["genre"], "context": ["hour"]}
ENTROPY = None


def log(users=USERS, items=ITEMS, hours=None, ages=AGES, genres=GENRES):
    whole = InteractionLog.from_arrays(users, items, {"hour": np.arange(48) % 5 if hours is None else hours})
    return whole.with_features(user_features={"age": ages}, item_features={"genre": genres})


def fit(data, folder, key=ENTROPY, **parameters):
    features = FEATURES if isinstance(data, InteractionLog) else None
    return PrivRec(features, **(PRIVATE | parameters)).fit(data, key=key, checkpoint=folder)


def interrupted(data, folder, monkeypatch):
    """A run that stops in its second round, after the message is stored."""

    # Round 0 is complete, and round 1 stops between the stored message and the server's step.
    def power_cut(self, state, update):
        if update.round == 1:
            raise RuntimeError("power cut")
        return apply(self, state, update)

    apply = PrivRecRounds.apply
    with monkeypatch.context() as patch:
        patch.setattr(PrivRecRounds, "apply", power_cut)
        with pytest.raises(RuntimeError, match="power cut"):
            fit(data, folder, Key.from_seed(1))
