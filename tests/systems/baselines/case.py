"""Cases of the baselines of rankings."""

import numpy as np
from support.system_case import SystemCase

from fastfedrec import EASE, DPPopularity, ImplicitALS, ItemKNN, OwnHistory, Popularity, Random, UserKNN

CENTRAL = "no guarantee: central training on all values together"

CASES = (
    SystemCase(
        small={"": Random()},
        memory={
            "items": (Random(), (1000, 20_000, 2000)),
            "users": (Random(), (20_000, 1000, 20_000)),
        },
        without_rounds="no user contributes",
        has_popularity=False,
        compares_items=False,
    ),
    SystemCase(
        small={"": Popularity()},
        memory={
            "rows": (Popularity(), (20_000, 1000, 4_000_000)),
            "items": (Popularity(), (10_000, 2_000_000, 20_000)),
        },
        ignores_values=[""],
        without_rounds=CENTRAL,
        compares_items=False,
    ),
    SystemCase(
        small={"": DPPopularity(1.0), "local": DPPopularity(5.0, trust="local")},
        memory={
            "central": (DPPopularity(1.0), (2000, 2_000_000, 20_000)),
            "local": (DPPopularity(5.0, trust="local"), (2000, 1_000_000, 20_000)),
        },
        other_work={"local, large budget": DPPopularity(30.0, trust="local")},
        private={"": DPPopularity(), "local": DPPopularity(trust="local")},
        trust=["local", "central"],
        relations={"": (DPPopularity(1.0), "add_remove")},
        central={"": DPPopularity(max_items_per_user=3)},
        without_rounds="counts, tried by `test_counts_of_other_users`",
        compares_items=False,
        numbers={"n_reports": 3},
        numpy_numbers={"max_items_per_user": np.int64(10)},
        impossible=[("epsilon", 1e-320)],
    ),
    SystemCase(
        small={"": OwnHistory()},
        memory={
            "rows": (OwnHistory(), (20_000, 1000, 2_000_000)),
            "items": (OwnHistory(), (10_000, 2_000_000, 20_000)),
        },
        without_rounds=CENTRAL,
        compares_items=False,
    ),
    SystemCase(
        small={"": ItemKNN(n_neighbors=5)},
        memory={
            "items": (ItemKNN(), (10_000, 20_000, 100_000)),
            "pairs": (ItemKNN(), (4000, 2000, 400_000)),
        },
        ignores_values=[""],
        without_rounds=CENTRAL,
        scores_are_sums=True,
        numpy_numbers={"n_neighbors": np.uint8(3)},
    ),
    SystemCase(
        small={"": EASE(20.0)},
        memory={
            "rows": (EASE(), (2000, 2000, 20_000)),
            "pairs": (EASE(), (500, 3000, 5000)),
        },
        ignores_values=[""],
        without_rounds=CENTRAL,
        scores_are_sums=True,
        numbers={"top_items": 5},
        numpy_numbers={"regularization": np.float32(8)},
    ),
    SystemCase(
        small={
            "": ImplicitALS(3, 2),
            "values": ImplicitALS(3, 2, regularization_scaling=0.5, use_values=True, solver="cg", dtype="float64"),
        },
        memory={
            "rows": (ImplicitALS(n_epochs=1), (20_000, 500, 2_000_000)),
            "items": (ImplicitALS(n_epochs=1), (5000, 50_000, 10_000)),
        },
        ignores_values=[""],
        without_rounds=CENTRAL,
        scores_are_sums=True,
    ),
    SystemCase(
        small={"": UserKNN(n_neighbors=5)},
        memory={
            "products": (UserKNN(), (5000, 1000, 100_000)),
            "users": (UserKNN(), (30_000, 30_000, 60_000)),
        },
        ignores_values=[""],
        without_rounds=CENTRAL,
        serves_new_users=False,
        compares_items=False,
    ),
)
