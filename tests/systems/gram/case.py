"""Cases of DPGram, ShuffledSketchGram and ShuffledGram."""

import numpy as np
from support.data import ITEM_FEATURES
from support.numbers_calls import HALF, ONE, SMALL
from support.system_case import SystemCase

from fastfedrec import DPGram, ShuffledGram, ShuffledSketchGram

CASES = (
    SystemCase(
        small={"": DPGram(8.0), "small budget": DPGram(1.0, score="knn"), "knn": DPGram(8.0, score="knn")},
        secure={"secure": DPGram(8.0, aggregation="secure", honest_fraction=0.7)},
        memory={
            "all eigenvectors": (DPGram(8.0), (6000, 1000, 180_000)),
            "largest eigenvectors": (DPGram(8.0), (12_000, 2400, 360_000)),
        },
        other_work={"epsilon 0.02": DPGram(0.02), "epsilon 2": DPGram(2.0), "epsilon 4": DPGram(4.0)},
        private={"": DPGram(), "knn": DPGram(score="knn"), "public": DPGram(n_users=5000)},
        trust=["central", "aggregator"],
        relations={
            "": (DPGram(2.0, n_users=100), "zero_out"),
            "popularity alone": (DPGram(2.0, n_users=100), "zero_out"),
            "mean instead": (DPGram(2.0, n_users=100), "zero_out"),
            "mean again": (DPGram(2.0, n_users=100), "zero_out"),
        },
        central={
            "": DPGram(4.0),
            "popularity alone": DPGram(1.0),
            "mean instead": DPGram(4.0),
            "mean again": DPGram(4.0),
            "neighbours": DPGram(4.0, score="knn", n_users=45),
            "features": DPGram(18.0, item_features=ITEM_FEATURES),
        },
        scores_are_sums=True,
        numbers={
            "epsilon": ONE,
            "delta": SMALL,
            "mean_share": HALF,
            "n_users": 50,
            "ridge": HALF,
            "dropout_fraction": HALF,
        },
        more_numbers={"aggregation": "secure", "honest_fraction": HALF},
        numpy_numbers={"epsilon": np.float32(2), "n_users": np.int16(60)},
        bad_values=[
            ({"aggregation": "secure"}, "honest_fraction must be a number"),
            ({"honest_fraction": 0.5}, "honest_fraction must be None"),
        ],
        impossible=[("epsilon", 1e13), ("epsilon", 1e300), ("delta", 1e-25)],
        changes={"": {"score": "knn", "ridge": 9.0}, "knn": {"score": "ease"}},
    ),
    SystemCase(
        small={"": ShuffledSketchGram(8.0), "ridge": ShuffledSketchGram(8.0, score="ridge")},
        memory={
            "items": (ShuffledSketchGram(8.0), (2000, 500, 20_000)),
            "sums": (ShuffledSketchGram(8.0), (1000, 1000, 10_000)),
        },
        private_for_users={"": ShuffledSketchGram(4.0), "ridge": ShuffledSketchGram(4.0, score="ridge")},
        trust=["shuffle"],
        local={
            "": ShuffledSketchGram(20.0, n_rotations=2),
            "features": ShuffledSketchGram(20.0, n_rotations=2, item_features=ITEM_FEATURES),
            "popularity alone": ShuffledSketchGram(20.0, n_rotations=2),
        },
        scores_are_sums=True,
        numbers={"delta": SMALL, "mean_share": HALF, "ridge": HALF},
        numpy_numbers={"epsilon": np.float32(8), "n_rotations": np.int64(2)},
        impossible=[("epsilon", 1e17), ("epsilon_0", 1e-300)],
    ),
    SystemCase(
        small={"": ShuffledGram(4.0), "ridge": ShuffledGram(4.0, score="ridge")},
        memory={
            "reports": (ShuffledGram(8.0), (3000, 1000, 180_000)),
            "counts": (ShuffledGram(8.0), (3000, 250, 20_000)),
        },
        private_for_users={"": ShuffledGram(4.0), "ridge": ShuffledGram(4.0, score="ridge")},
        trust=["shuffle"],
        local={"": ShuffledGram(8.0), "features": ShuffledGram(8.0, item_features=ITEM_FEATURES)},
        scores_are_sums=True,
        numbers={"delta": SMALL, "mean_share": HALF, "ridge": HALF},
        numpy_numbers={"epsilon": np.float32(4)},
        impossible=[("epsilon", 1e17)],
    ),
)
