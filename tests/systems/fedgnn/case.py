"""The case of FedGNN."""

from support.numbers_calls import HALF, SMALL
from support.system_case import SystemCase

from fastfedrec import FedGNN

TWO = {"n_rounds": 2, "n_factors": 2, "user_steps": 1}
PUBLISHED = {"n_pseudo_items": 5, "n_neighbors": 2, "expansion_round": 1, "n_rounds": 3, "n_factors": 3}
COHORT = {"n_rounds": 2, "n_factors": 2, "cohort_size": 10}

CASES = (
    SystemCase(
        small={
            "": FedGNN(epsilon=8.0, n_rounds=2, n_factors=3, cohort_size=20),
            "published": FedGNN("published", user_steps=1, **PUBLISHED),
        },
        memory={
            "items": (FedGNN(n_rounds=1), (500, 30_000, 5000)),
            "published": (FedGNN("published", n_rounds=1), (500, 20_000, 5000)),
        },
        other_work={
            "cohort": FedGNN(n_rounds=3, n_factors=3, cohort_size=40),
            "published, cohort": FedGNN("published", cohort_size=40, **PUBLISHED),
            "published, ranking": FedGNN("published", negatives=1, cohort_size=40, **PUBLISHED),
        },
        private_for_users={"": FedGNN(**TWO), "ranking": FedGNN(negatives=1, **TWO)},
        trust=["central"],
        relations={"": (FedGNN(epsilon=8.0, n_rounds=2, n_factors=3, cohort_size=8, clip=1e-3), "replace")},
        sampled={"": FedGNN(epsilon=8.0, n_rounds=4, n_factors=2, user_steps=1, cohort_size=10)},
        of_rate={
            "": lambda rate: FedGNN(user_learning_rate=rate, **COHORT),
            "start": lambda rate: FedGNN(user_learning_rate=rate, init_scale=1e6, **COHORT),
            "published": lambda rate: FedGNN(
                "published", user_learning_rate=rate, negatives=1, n_pseudo_items=2, grid=(1.0, 3.0, 5.0), **COHORT
            ),
        },
        one_user={"ranking": FedGNN(negatives=1, cohort_size=40, **TWO)},
        refuses_ones=["published"],
        bad_values=[
            ({"noise_scale": -0.1}, "noise_scale must be at least 0"),
            ({"noise_scale": 1e-9}, "noise_scale must be 0 or at least 1e-06"),
            ({"grid": [1.0]}, "grid must"),
        ],
        numbers={"delta": SMALL, "learning_rate": HALF, "clip": HALF, "noise_scale": HALF, "init_scale": HALF},
    ),
)
