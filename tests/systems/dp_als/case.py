"""The case of DPALS."""

from decimal import Decimal

import numpy as np
from support.data import ITEM_FEATURES
from support.numbers_calls import ONE, SMALL
from support.system_case import SystemCase

from fastfedrec import DPALS

# With so small a ridge, users' factors come close to the end of their range.
TIGHT = {"n_factors": 3, "max_items": 4, "regularization": 1e-3}
FEW = {"n_factors": 3, "max_items": 4}

CASES = (
    SystemCase(
        small={"": DPALS(8.0, n_factors=3), "adaptive": DPALS(8.0, n_factors=3, weights="adaptive")},
        memory={
            "users": (DPALS(8.0, n_rounds=1), (20_000, 500, 600_000)),
            "items": (DPALS(8.0, n_rounds=1), (500, 8000, 10_000)),
        },
        other_work={"uniform": DPALS(8.0, n_factors=3, max_items=10, sampling="uniform")},
        private={"": DPALS(n_factors=3), "uniform": DPALS(n_factors=3, sampling="uniform")},
        extreme={
            "weight": DPALS(n_factors=3, confidence_weight=1e16),
            "large weight": DPALS(n_factors=3, confidence_weight=1e300),
            "small ridge": DPALS(n_factors=3, confidence_weight=1e20, regularization=1e-300),
        },
        trust=["central"],
        relations={
            "": (DPALS(2.0, n_rounds=2, n_start_rounds=1, **TIGHT), "zero_out"),
            "uniform": (DPALS(2.0, n_rounds=1, n_start_rounds=0, sampling="uniform", **TIGHT), "zero_out"),
            "adaptive": (DPALS(2.0, weights="adaptive", frequency_exponent=0.5, **TIGHT), "zero_out"),
        },
        central={
            "": DPALS(4.0, n_rounds=2, n_start_rounds=2, **FEW),
            "uniform": DPALS(4.0, n_rounds=1, n_start_rounds=0, sampling="uniform", **FEW),
            "adaptive": DPALS(4.0, weights="adaptive", **FEW),
            "features": DPALS(4.0, weights="adaptive", item_features=ITEM_FEATURES, **FEW),
        },
        of_rate={
            "": lambda rate: DPALS(n_factors=3, confidence_weight=rate),
            "ridge": lambda rate: DPALS(n_factors=3, regularization=1 / rate),
        },
        one_user={"uniform": DPALS(8.0, n_factors=3, sampling="uniform")},
        scores_are_sums=True,
        bad_values=[
            ({"weights": "adaptive", "sampling": "uniform"}, "weights='adaptive' needs the noisy item counts"),
        ],
        numbers={"epsilon": ONE, "delta": SMALL, "n_users": 50, "frequency_share": 0.25},
        numpy_numbers={"max_items": np.int64(100), "epsilon": Decimal(8)},
        impossible=[
            ("epsilon", 1e13),
            ("epsilon", 1e300),
            ("delta", 1e-25),
            ("n_rounds", 2**62),
            ("n_start_rounds", 2**62),
            ("confidence_weight", 1.7e308),
            ("noise_regularization", 1.7e308),
        ],
        changes={"": {"regularization": 500.0, "n_factors": 2}},
    ),
)
