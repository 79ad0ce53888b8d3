"""Small runs of PrivRec."""

import numpy as np

from fastfedrec import Interactions, Key, datasets
from fastfedrec.compute.networks.two_tower import TwoTower
from fastfedrec.data.features import Features
from fastfedrec.data.log import InteractionLog
from fastfedrec.systems.privrec.rounds import LocalTraining, PrivRecRounds

KEY = Key.from_seed(3)


SMALL = {"n_factors": 16, "hidden": (16,), "n_rounds": 3, "cohort_size": 5, "local_epochs": 2, "learning_rate": 0.1}


FEATURES = {"user": ["age"], "item": ["genres"]}


def small_data(n_users=30, n_items=40):
    matrix = datasets.generate_implicit(n_users, n_items, key=KEY).to_scipy()
    matrix.data[:] = 1 + np.arange(matrix.nnz) % 5
    data = Interactions.from_scipy(matrix)
    return data.with_features(
        user_features={"age": np.arange(n_users) % 3},
        item_features={"genres": [("drama",) * (i % 2) + ("war",) * (i % 3 == 0) for i in range(n_items)]},
    )


def small_log(n_entries=400):
    words = KEY.words("test.log", size=3 * n_entries).reshape(3, -1)
    return InteractionLog.from_arrays(words[0] % 20, words[1] % 35, {"hour": (words[2] % 4).astype(np.int64)})


def rounds(data, *, noise=None, clip_norm=None, checkpoint=None, cohort_size=5):
    features = Features.from_interactions(data, user=["age"], item=["genres"])
    network = TwoTower(features, n_factors=16, hidden=(16,))
    local = LocalTraining(epochs=2, learning_rate=0.1, batch_size=32, negatives=4, threshold=3.0)
    return PrivRecRounds(
        features, network, data.global_user_ids, cohort_size, local, 0.5, clip_norm, noise, KEY, 1, checkpoint
    )
