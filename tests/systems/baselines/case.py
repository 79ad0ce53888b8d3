"""Cases of the baselines of rankings."""

import numpy as np
from support.system_case import SystemCase

from fastfedrec import EASE, DPPopularity, ImplicitALS, ItemKNN, OwnHistory, Popularity, Random, UserKNN

CENTRAL = "no guarantee: central training on all values together"

CASES = (
    SystemCase(small={"": Random()}, without_rounds="no user contributes", has_popularity=False, compares_items=False),
    SystemCase(small={"": Popularity()}, ignores_values=[""], without_rounds=CENTRAL, compares_items=False),
    SystemCase(
        small={"": DPPopularity(1.0), "local": DPPopularity(5.0, trust="local")},
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
    SystemCase(small={"": OwnHistory()}, without_rounds=CENTRAL, compares_items=False),
    SystemCase(
        small={"": ItemKNN(n_neighbors=5)},
        ignores_values=[""],
        without_rounds=CENTRAL,
        scores_are_sums=True,
        numpy_numbers={"n_neighbors": np.uint8(3)},
    ),
    SystemCase(
        small={"": EASE(20.0)},
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
        ignores_values=[""],
        without_rounds=CENTRAL,
        scores_are_sums=True,
    ),
    SystemCase(
        small={"": UserKNN(n_neighbors=5)},
        ignores_values=[""],
        without_rounds=CENTRAL,
        serves_new_users=False,
        compares_items=False,
    ),
)
