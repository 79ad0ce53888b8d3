"""Cases of FMF-LDP and DP-FMF."""

from fractions import Fraction

import numpy as np
from support.numbers_calls import HALF, ONE, SMALL
from support.system_case import SystemCase

from fastfedrec import DPFMF, FMFLDP

NORMAL = {"n_rounds": 2, "normalize": "l2"}
WEIGHTED = {"n_rounds": 2, "use_values": True, "confidence_weight": 1.0}
FEW = {"n_factors": 3, "n_rounds": 2}

CASES = (
    SystemCase(
        small={
            "": FMFLDP(n_rounds=2, n_reports=10),
            "rotated": FMFLDP(n_reports=10, rotate=True, **NORMAL),
            "exact": FMFLDP(n_rounds=2, epsilon=None),
        }, memory={
"items": (FMFLDP(n_rounds=1), (500, 300_000, 5000)),
"users": (FMFLDP(n_rounds=1), (1_000_000, 5000, 1_000_000)),
"exact": (FMFLDP(n_rounds=1, epsilon=None), (500, 50_000, 5000)),
"rotated": (FMFLDP(n_rounds=1, normalize="l2", rotate=True), (500, 100_000, 5000)),
},
        other_work={
            "weight": FMFLDP(n_rounds=2, confidence_weight=0.5),
            "exact, weight": FMFLDP(n_rounds=2, epsilon=None, confidence_weight=0.5),
            "normal, weight": FMFLDP(confidence_weight=0.5, **NORMAL),
            "rotated, weight": FMFLDP(rotate=True, confidence_weight=0.5, **NORMAL),
        },
        private={"": FMFLDP(n_rounds=2), "normal": FMFLDP(rotate=True, **NORMAL), "values": FMFLDP(**WEIGHTED)},
        extreme={
            "weight": FMFLDP(n_rounds=2, confidence_weight=1e16),
            "values and weight": FMFLDP(**WEIGHTED | {"confidence_weight": 1e300}),
            "without regularization": FMFLDP(regularization=0.0, **WEIGHTED),
            "published": FMFLDP(variant="published", learning_rate=1e-3, **WEIGHTED),
        },
        trust=["local"],
        local={"": FMFLDP(n_rounds=2, n_factors=3, n_reports=10)},
        of_rate={
            "": lambda rate: FMFLDP(n_rounds=2, confidence_weight=rate, use_values=True),
            "server": lambda rate: FMFLDP(n_rounds=2, learning_rate=rate),
        },
        ignores_values=["exact"],
        one_user={"values": FMFLDP(**WEIGHTED)},
        scores_are_sums=True,
        bad_values=[
            ({"normalize": "l1"}, "normalize must be one of 'l2'"),
            ({"rotate": True}, "set normalize='l2'"),
            ({"normalize": "l2", "epsilon": None}, "normalize needs an epsilon"),
            ({"normalize": "l2", "variant": "published"}, "and variant='guaranteed'"),
            ({"epsilon": None, "variant": "published"}, "must have an epsilon"),
        ],
        bad_types=[
            ({"rotate": 1, "normalize": "l2"}, "rotate must be True or False"),
        ],
        numbers={
            "learning_rate": HALF, "init_scale": HALF, "confidence_weight": HALF, "regularization": SMALL,
            "delta": SMALL,
        },
        numpy_numbers={"n_factors": np.int64(5), "n_rounds": np.int32(2), "epsilon": Fraction(5, 2)},
        impossible=[("init_scale", 1e100)],
        changes={"": {"regularization": 5.0, "n_factors": 3}},
    ),
    SystemCase(
        small={"": DPFMF(8.0, **FEW)}, memory={
"items": (DPFMF(8.0, n_rounds=1), (500, 50_000, 10_000)),
"factors": (DPFMF(8.0, n_factors=64, n_rounds=1), (2000, 20_000, 10_000)),
},
        private={"": DPFMF(**FEW)},
        extreme={"large ridge": DPFMF(regularization=9e99, **FEW), "small ridge": DPFMF(regularization=1e-300, **FEW)},
        trust=["central"],
        relations={"": (DPFMF(2.0, **FEW), "zero_out")},
        central={"": DPFMF(4.0, **FEW)},
        of_rate={"": lambda rate: DPFMF(n_factors=3, n_rounds=3, regularization=1 / rate)},
        scores_are_sums=True,
        numbers={"epsilon": ONE, "delta": SMALL, "regularization": SMALL, "n_users": 50},
        numpy_numbers={"n_factors": np.int8(5), "epsilon": np.float16(8), "n_rounds": np.uint8(2)},
        impossible=[("epsilon", 1e13), ("epsilon", 1e300), ("delta", 1e-25), ("n_rounds", 2**62)],
        changes={"": {"regularization": 50.0, "n_factors": 2}},
    ),
)  # fmt: skip
