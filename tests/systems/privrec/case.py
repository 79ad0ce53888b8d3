"""The case of PrivRec."""

import math

import numpy as np
from support.numbers_calls import HALF, SMALL
from support.system_case import SystemCase

from fastfedrec import PrivRec

NETWORK = {"n_factors": 16, "hidden": (16,)}
ONE_A_ROUND = {"n_rounds": 2, "cohort_size": 1, **NETWORK}
ALL = {"n_rounds": 2, "cohort_size": "all", "noise_multiplier": 1.0, "clip_norm": 0.1, **NETWORK}
COHORT = {"n_rounds": 4, "cohort_size": 10, "clip_norm": 0.1, "noise_multiplier": 2.0, "local_epochs": 1, **NETWORK}
COHORT_STAGE1 = {"n_rounds": 4, "cohort_size": 10, "length": 3, "clip_norm": 0.1}
HALF_COHORT = {
    "n_rounds": 2, "cohort_size": 20, "local_epochs": 1, "clip_norm": 0.1, "noise_multiplier": 0.5, **NETWORK
}  # fmt: skip
HALF_STAGE1 = {"n_rounds": 2, "cohort_size": 10, "length": 4}
FAST = {
    "n_rounds": 2, "cohort_size": "all", "local_epochs": 1, "learning_rate": 0.5, "clip_norm": 0.01,
    "noise_multiplier": 2.0, **NETWORK,
}  # fmt: skip
FAST_STAGE1 = {
    "stage1": "dp",
    "stage1_options": {"n_rounds": 2, "cohort_size": 8, "length": 3, "clip_norm": 1e-4, "learning_rate": 0.5},
}
ONE_USER = {"threshold": 0.1, "cohort_size": 40, "clip_norm": 0.1, "noise_multiplier": 1.0, **NETWORK}
TARGET = {"clip_norm": 1.0, "target_epsilon": 2.0}
CONTRASTIVE = {"stage1_options": {"contrastive_weight": 0.5}}

CASES = (
    SystemCase(
        small={
            "": PrivRec(**ONE_A_ROUND),
            "popularity": PrivRec(n_rounds=0, popularity_epsilon=2.0, **NETWORK),
            "laplace": PrivRec(clip_norm=0.01, noise_multiplier=1.0, noise="laplace", **ONE_A_ROUND),
        }, memory={
"clients": (PrivRec(n_rounds=1), (2000, 2000, 40_000)),
"items": (PrivRec(n_rounds=1), (500, 20_000, 10_000)),
},
        private_for_users={
            "": PrivRec(**ALL),
            "popularity": PrivRec(n_rounds=0, popularity_epsilon=1.0, **NETWORK),
        },
        trust=["none", "central"],
        relations={
            "": (PrivRec(**FAST), "replace"),
            "Laplace": (PrivRec(noise="laplace", **FAST), "replace"),
            "popularity": (PrivRec(n_rounds=0, popularity_epsilon=1.0, **NETWORK), "replace"),
            "all stages": (PrivRec(popularity_epsilon=1.0, **FAST, **FAST_STAGE1), "replace"),
            "Meta-SGD": (PrivRec(meta="meta-sgd", **FAST | {"clip_norm": 1e-3}), "replace"),
        },
        central={
            "": PrivRec(**HALF_COHORT),
            "Laplace": PrivRec(noise="laplace", **HALF_COHORT),
            "Meta-SGD": PrivRec(meta="meta-sgd", **HALF_COHORT),
            "all stages": PrivRec(popularity_epsilon=1.0, stage1="dp", stage1_options=HALF_STAGE1, **HALF_COHORT),
            "joint": PrivRec(stage1="dp", stage1_options={**HALF_STAGE1, "contrastive_weight": 0.5}, **HALF_COHORT),
        },
        sampled={
            "": PrivRec(**COHORT),
            "Laplace": PrivRec(noise="laplace", **COHORT),
            "Meta-SGD": PrivRec(meta="meta-sgd", **COHORT),
            "two stages": PrivRec(stage1="dp", stage1_options=COHORT_STAGE1, **COHORT),
            "joint": PrivRec(stage1="dp", stage1_options={**COHORT_STAGE1, "contrastive_weight": 0.5}, **COHORT),
        },
        of_rate={
            "": lambda rate: PrivRec(learning_rate=rate, **ALL),
            "maml": lambda rate: PrivRec(learning_rate=rate, meta="maml", **ALL),
            "meta-sgd": lambda rate: PrivRec(learning_rate=rate, meta="meta-sgd", **ALL),
        },
        ignores_values=[""],
        one_user={
            "threshold": PrivRec(n_rounds=2, **ONE_USER),
            "threshold, popularity": PrivRec(n_rounds=1, popularity_epsilon=1.0, **ONE_USER),
        },
        bad_values=[
            ({"n_rounds": 0}, "n_rounds may be 0 only with popularity_epsilon alone"),
            ({"n_rounds": 0, "popularity_epsilon": 1.0, **TARGET}, "n_rounds may be 0 only with popularity_epsilon"),
            ({"popularity_epsilon": 2.0, **TARGET}, r"popularity_epsilon must be below target_epsilon \(2.0\)"),
            ({"noise_multiplier": 1.0}, "clip_norm must be given if there is noise"),
            ({"target_epsilon": 1.0}, "clip_norm must be given if there is noise"),
            ({"noise_multiplier": 1.0, **TARGET}, "not both"),
            ({"features": {"users": ["age"]}}, r"keys 'user', 'item' or 'context', got \['users'\]"),
            ({"stage1": "dp"}, "stage1='dp' needs noise: give target_epsilon or noise_multiplier"),
            ({"stage1_options": {"rounds": 3}}, r"stage1_options may have .*, got \['rounds'\]"),
            ({"stage1_options": {"length": 1}}, r"stage1_options\['length'\] must be at least 2"),
            ({"stage1_options": {"learning_rate": 0}}, r"stage1_options\['learning_rate'\] must be greater"),
            ({"stage1_options": {"clip_norm": 0}}, r"stage1_options\['clip_norm'\] must be"),
            (
                {"n_rounds": 0, "popularity_epsilon": 1.0, "stage1": "public", **TARGET},
                "n_rounds may be 0 only with popularity_epsilon alone, or with stage1='dp'",
            ),
            (CONTRASTIVE, r"stage1_options\['contrastive_weight'\] needs a stage one and .* got stage1='none'"),
            (
                {"stage1": "dp", "n_rounds": 0, "popularity_epsilon": 1.0, **TARGET, **CONTRASTIVE},
                "needs a stage one and rounds after it.* and n_rounds=0",
            ),
            ({"stage1": "public", "stage1_options": {"contrastive_weight": -1}}, "must be at least 0"),
            ({"stage1": "public", "stage1_options": {"contrastive_weight": math.nan}}, "must be"),
        ],
        bad_types=[
            ({"features": ["age"]}, "features must be Mapping"),
            ({"stage1_options": 3}, "stage1_options must be Mapping"),
        ],
        numbers={
            "n_rounds": 2, "cohort_size": 5, "local_epochs": 1, "learning_rate": HALF, "server_learning_rate": HALF,
            "negatives": 2, "clip_norm": HALF, "target_epsilon": 2.0, "popularity_epsilon": HALF, "delta": SMALL,
        },
        more_numbers={"target_epsilon": None, "popularity_epsilon": None, "noise_multiplier": 2.0},
        numpy_numbers={
            "clip_norm": np.float32(1), "target_epsilon": np.float64(8), "n_rounds": np.int64(2),
            "cohort_size": np.int64(20), "n_factors": np.int64(16), "hidden": np.array([16]),
        },
        impossible=[("popularity_epsilon", 1e-320)],
        changes={"": {"n_factors": 32, "local_epochs": 1}},
    ),
)  # fmt: skip
