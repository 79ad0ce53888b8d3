"""Cases of FedRec and FedRec++."""

import numpy as np
from support.fedrec_case import RESPONSES
from support.numbers_calls import HALF, SMALL
from support.system_case import SystemCase

from fastfedrec import FedRec, FedRecPlusPlus

FEW = {"n_rounds": 3, "n_factors": 3}
CENTRAL = {"clip_norm": 0.5, "noise_multiplier": 2.0, "n_rounds": 2, "n_factors": 2}
COUNTED = {"clip_norm": 0.05, "noise_multiplier": 3.0, "n_rounds": 2, "n_factors": 2, "max_items": 4}
RATES = {"learning_rate": HALF, "learning_rate_decay": HALF, "regularization": SMALL, "clip_norm": HALF}
HALVED = {"filling": "randomized_response", "keep_probability": HALF, "add_probability": 0.25}

CASES = (
    SystemCase(
        small={"": FedRec(rho=1, **FEW)},
        memory={
            "users": (FedRec(n_rounds=1), (30_000, 500, 600_000)),
            "items": (FedRec(n_rounds=1), (1000, 50_000, 20_000)),
        },
        private_for_users={
            "": FedRec(divisor=5.0, **CENTRAL),
            "counts": FedRec(max_items=5, **CENTRAL),
            "responses": FedRec(divisor=5.0, **RESPONSES, **CENTRAL),
        },
        trust=["none", "local", "central"],
        relations={"": (FedRec(0, **COUNTED), "replace")},
        central={"": FedRec(0, n_factors=2, n_rounds=2, clip_norm=0.5, noise_multiplier=3.0, max_items=8)},
        of_rate={
            "": lambda rate: FedRec(learning_rate=rate, divisor=5.0, **CENTRAL),
            "local": lambda rate: FedRec(learning_rate=rate, divisor=5.0, t_predict=0, t_local=3, **CENTRAL),
        },
        one_user={"clipped": FedRec(divisor=5.0, grid=(0.1, 2.6, 5.3), **CENTRAL)},
        refuses_ones=[""],
        bad_values=[
            ({"filling": "randomized_response", "keep_probability": 0.5}, "needs add_probability"),
            ({"keep_probability": 0.5}, "keep_probability is for filling='randomized_response'"),
            ({"divisor": 3.0}, "divisor needs clip_norm"),
            ({"clip_norm": 1.0}, "clip_norm needs one of divisor"),
            ({"clip_norm": 1.0, "divisor": 2.0, "max_items": 3}, "clip_norm needs one of divisor"),
        ],
        numbers={**RATES, "max_items": 5},
        more_numbers={**HALVED, "divisor": 2.0, "max_items": None},
        numpy_numbers={"n_rounds": np.int64(2), "n_factors": np.int64(3), "grid": np.arange(1, 6)},
        impossible=[("max_items", 2**31 - 1)],
        changes={"": {"regularization": 5.0, "grid": (1.0, 2.0)}},
    ),
    SystemCase(
        small={"": FedRecPlusPlus(2, min_clients_per_denoiser=1, **FEW)},
        memory={
            "users": (FedRecPlusPlus(n_rounds=1), (30_000, 500, 600_000)),
            "items": (FedRecPlusPlus(n_rounds=1), (1000, 50_000, 20_000)),
        },
        private_for_users={"": FedRecPlusPlus(divisor=5.0, min_clients_per_denoiser=1, **CENTRAL)},
        relations={"": (FedRecPlusPlus(1, min_clients_per_denoiser=1, **COUNTED), "replace")},
        refuses_ones=[""],
        bad_values=[
            ({"fill_by": "popularity", "clip_norm": 1.0, "divisor": 5.0}, "fill_by must be 'uniform' with clip_norm"),
            ({"fill_by": "popularity", **RESPONSES}, "fill_by='popularity' needs filling='hybrid'"),
        ],
        numbers={**RATES, "divisor": 2.0},
        more_numbers={**HALVED, "divisor": None, "max_items": 5},
    ),
)
