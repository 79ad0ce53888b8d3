"""Cases of private prototypes and of its baselines."""

import numpy as np
from support.numbers_calls import SMALL
from support.system_case import SystemCase

from fastfedrec import PrivatePrototypes
from fastfedrec.systems.private_prototypes.baselines import CentralNMF, IndividualNMF

TWO = {"n_factors": 2, "grouping": "kmeans", "n_prototypes": 2}
ONE_GROUP = {"n_prototypes": 1, "n_factors": 1, "epsilon": 4.0, "max_entries": 4, "grouping": "one"}
FEW = {"n_prototypes": 2, "n_factors": 2, "max_entries": 5, "n_epochs": 2}
WIDE = {"n_factors": 2, "epsilon": 5.0, "value_range": (0.0, 5.3)}
CENTRAL = "no guarantee: central training on all values together"

CASES = (
    SystemCase(
        small={
            "": PrivatePrototypes(n_factors=3, epsilon=5.0),
            "kmeans": PrivatePrototypes(2, 3, None, grouping="kmeans", refine=True),
        }, memory={
"values": (PrivatePrototypes(), (20_000, 500, 1_000_000)),
"items": (PrivatePrototypes(), (1000, 100_000, 20_000)),
},
        private={
            "": PrivatePrototypes(n_factors=2),
            "kmeans": PrivatePrototypes(**TWO),
            "grid": PrivatePrototypes(candidates="grid", delta=1e-5, **TWO),
            "support": PrivatePrototypes(n_factors=2, support="gumbel", n_support_items=4, prototypes="zero_filled"),
            "refine": PrivatePrototypes(n_factors=2, grouping="one", refine=True),
        },
        trust=["entity"],
        relations={
            "": (PrivatePrototypes(prototypes="zero_filled", **ONE_GROUP), "add_remove"),
            "delta": (PrivatePrototypes(delta=1e-5, prototypes="zero_filled", **ONE_GROUP), "add_remove"),
            "masked": (PrivatePrototypes(prototypes="masked", **ONE_GROUP), "add_remove"),
        },
        central={
            "": PrivatePrototypes(epsilon=4.0, **FEW),
            # Every cell with a user is divided on every level at so large an epsilon.
            "clusters": PrivatePrototypes(
                epsilon=5000.0, delta=1e-5, grouping="kmeans", candidates="grid", support="gumbel", n_support_items=9,
                **FEW,
            ),
        },
        one_user={
            "range": PrivatePrototypes(**WIDE),
            "zeros": PrivatePrototypes(prototypes="zero_filled", grouping="one", **WIDE),
        },
        bad_values=[
            ({"value_range": (5.0, 1.0)}, r"value_range\[1\] must be greater than 5"),
            (
                {"value_range": (0.0, 5e-324), "epsilon": 1.0},
                "`value_range` must let a value add at least 7.6.*e-06 to a sum, got (0|5e)",
            ),
            ({"value_range": (1.0, 1 + 1e-9), "epsilon": 1.0}, "`value_range` must .*; express values in a smaller"),
            ({"grouping": "exemplars"}, "needs epsilon=None"),
            ({"grouping": "one", "n_prototypes": 5}, "n_prototypes must be 1 or 'auto' with grouping='one', got 5"),
            ({"variant": "published"}, "prototypes must be 'zero_filled' with variant='published', got 'masked'"),
        ],
        bad_types=[
            ({"value_range": 5.0}, r"value_range must be a pair \(low, high\), got 5"),
        ],
        numbers={"n_prototypes": 2, "delta": SMALL},
        numpy_numbers={"n_prototypes": np.int64(1), "n_factors": np.int64(3), "value_range": np.array([1, 5])},
        impossible=[("epsilon", 1e-320), ("epsilon", 1.7e308), ("n_prototypes", 2**62), ("n_factors", 2**62)],
        changes={"": {"regularization": 90.0, "refine": True, "value_range": (1.0, 2.0)}},
    ),
    SystemCase(
        small={"": CentralNMF(3)}, memory={
"rows": (CentralNMF(n_epochs=1), (20_000, 1000, 800_000)),
"factors": (CentralNMF(n_epochs=1), (100_000, 50_000, 200_000)),
},
        without_rounds=CENTRAL,
        serves_new_users=False,
        bad_values=[
            ({"value_range": (5.0, 1.0)}, r"value_range\[1\] must be greater than 5"),
        ],
    ),
    SystemCase(
        small={"": IndividualNMF(3)}, memory={
"rows": (IndividualNMF(n_epochs=1), (20_000, 1000, 800_000)),
"factors": (IndividualNMF(n_epochs=1), (100_000, 50_000, 200_000)),
}, without_rounds=CENTRAL, serves_new_users=False, compares_items=False
    ),
)  # fmt: skip
