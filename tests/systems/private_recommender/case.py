"""The case of PrivateRecommender."""

import numpy as np
from support.numbers_calls import SMALL
from support.system_case import SystemCase

from fastfedrec import PrivateRecommender

CASES = (
    SystemCase(
        small={"": PrivateRecommender(4.0)},
        secure={"secure": PrivateRecommender(4.0, trust="aggregator", honest_fraction=0.7)},
        other_work={"large budget": PrivateRecommender(30.0)},
        private={"": PrivateRecommender(), "public": PrivateRecommender(n_users=5000)},
        private_for_users={
            "shuffle": PrivateRecommender(trust="shuffle"),
            "local": PrivateRecommender(trust="local"),
        },
        trust=["local", "shuffle", "central", "aggregator"],
        relations={"": (PrivateRecommender(4.0, n_users=5000), "zero_out")},
        bad_values=[
            ({"trust": "aggregator"}, "honest_fraction must be a number"),
            ({"honest_fraction": 0.5}, "honest_fraction must be None"),
        ],
        without_rounds="takes the system that it advises, which is tried",
        scores_are_sums=True,
        numbers={"delta": SMALL, "n_users": 50, "row_length": 8.0, "dropout_fraction": 0.25},
        more_numbers={"trust": "aggregator", "honest_fraction": 0.75},
        numpy_numbers={"epsilon": np.float32(2), "n_users": np.int16(60)},
    ),
)
