"""Small films and apps for tests of the PrivRec paper's figures."""

import numpy as np

from fastfedrec import Key, PrivRec
from fastfedrec.data.log import InteractionLog
from support.data import rated


def small_networks(make, **parameters):
    """Wrap `make`, from data to models by name, so that their networks train in little time."""

    def smaller(*arguments, **options):
        models = make(*arguments, **options)
        for model in models.values():
            if isinstance(model, PrivRec):
                model.set_params(n_factors=16, hidden=(16,), **parameters)
        return models

    return smaller


def movies():
    users = np.arange(60)
    return rated(60, 50, 1).with_features(
        user_features={"gender": users % 2, "age": users % 3, "occupation": users % 5},
        item_features={"genres": [("a",) * (i % 2) for i in range(50)]},
    )


def apps():
    words = Key.from_seed(1).words("test.log", size=1200).reshape(3, -1)
    log = InteractionLog.from_arrays(words[0] % 50, words[1] % 40, {"hour": [f"{hour % 3}" for hour in words[2]]})
    return log.with_features(item_features={"cost": ["free", "paid"] * 20})
