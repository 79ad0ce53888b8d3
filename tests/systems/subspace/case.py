"""The case of DPSubspace."""

import numpy as np
from support.data import ITEM_FEATURES
from support.numbers_calls import HALF, ONE, SMALL
from support.system_case import SystemCase

from fastfedrec import DPSubspace

CASES = (
    SystemCase(
        small={"": DPSubspace(8.0, n_columns=8)},
        secure={"secure": DPSubspace(8.0, n_columns=8, aggregation="secure", honest_fraction=0.7)},
        other_work={"16 columns": DPSubspace(8.0, n_columns=16)},
        private={"": DPSubspace(), "public": DPSubspace(n_users=5000)},
        trust=["central", "aggregator"],
        relations={
            "": (DPSubspace(2.0, n_columns=4, n_users=100), "zero_out"),
            "popularity alone": (DPSubspace(2.0, n_columns=4, n_users=100), "zero_out"),
        },
        central={
            "": DPSubspace(4.0, n_columns=4),
            "popularity alone": DPSubspace(1.0, n_columns=4),
            "features": DPSubspace(18.0, n_columns=8, item_features=ITEM_FEATURES),
        },
        of_rate={"": lambda rate: DPSubspace(ridge=1 / rate)},
        scores_are_sums=True,
        numbers={
            "epsilon": ONE, "delta": SMALL, "n_rounds": 3, "ridge": HALF, "mean_share": HALF, "n_users": 50,
            "dropout_fraction": HALF,
        },
        more_numbers={"aggregation": "secure", "honest_fraction": HALF},
        numpy_numbers={
            "epsilon": np.float32(2), "n_users": np.int16(60), "n_columns": np.int8(8), "n_rounds": np.int8(2)
        },
        bad_values=[
            ({"aggregation": "secure"}, "honest_fraction must be a number"),
            ({"honest_fraction": 0.5}, "honest_fraction must be None"),
        ],
        impossible=[("epsilon", 1e13), ("epsilon", 1e300), ("delta", 1e-25)],
        changes={"": {"ridge": 9.0, "n_columns": 3}},
    ),
)  # fmt: skip
