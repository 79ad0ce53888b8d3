"""Cases of Laplace-RR-SVD and of the baselines of ratings."""

import numpy as np
from support.numbers_calls import HALF, ONE
from support.system_case import SystemCase

from fastfedrec import BiasedMF, GlobalMean, ItemMean, LaplaceRRSVD, RatingItemKNN, UserMean

FEW = {"n_factors": 3, "n_epochs": 2}
CENTRAL = "no guarantee: central training on all values together"
VARIANTS = ("optimal", "mixture", "serial", "laplace", "published")
BAD_MEANS = [
    ({"epsilon": 0.0}, "epsilon must be greater than 0"),
    ({"grid": [3]}, "grid must be 2 to 65536 increasing numbers"),
]

CASES = (
    SystemCase(
        small={
            "": LaplaceRRSVD(max_ratings=20, **FEW),
            "hidden": LaplaceRRSVD(hide_items=True, n_reports=10, **FEW),
        }, memory={
"ratings": (LaplaceRRSVD(n_epochs=4), (10_000, 1000, 300_000)),
"factors": (LaplaceRRSVD(n_epochs=4), (100_000, 50_000, 200_000)),
"hidden": (LaplaceRRSVD(hide_items=True, n_reports=10), (50_000, 1000, 100_000)),
},
        other_work={**{variant: LaplaceRRSVD(variant) for variant in VARIANTS}, "exact": LaplaceRRSVD(None)},
        private_for_users={
            "": LaplaceRRSVD(max_ratings=5),
            "hidden": LaplaceRRSVD(hide_items=True, n_reports=5),
            "serial": LaplaceRRSVD("serial", max_ratings=5),
        },
        trust=["local"],
        one_user={"grid": LaplaceRRSVD(max_ratings=20, grid=(0.1, 0.3, 2.6, 5.3), **FEW)},
        bad_values=[
            ({"hide_items": True, "variant": "laplace"}, "hide_items needs variant='optimal'"),
            ({"prior": [1, 1]}, "prior must hold a number for each of 5 values"),
            ({"prior": [1, 1, 1, 1, 1], "variant": "mixture"}, "prior needs variant='optimal'"),
            ({"prior": [1, 1, 1, 1, 1], "hide_items": True}, "prior needs .* hide_items=False"),
            ({"grid": [1, 1]}, "grid must be 2 to 32 increasing numbers"),
            ({"grid": [-1e300, 1e300]}, "grid must hold numbers from -1e100 to 1e100"),
        ],
        numbers={
            "max_ratings": 5, "n_epochs": 2, "learning_rate": HALF, "regularization": HALF,
            "prior": (1.0, 2.0, 3.0, 2.0, 1.0),
        },
        numpy_numbers={"n_factors": np.int64(3), "n_epochs": np.int64(2), "grid": np.arange(1.0, 6.0)},
        impossible=[("epsilon_1", 1e100), ("n_factors", 2**62)],
        changes={"": {"regularization": 5.0, "grid": (1.0, 2.0)}},
    ),
    SystemCase(
        small={"": GlobalMean(2.0)}, memory={
"reports": (GlobalMean(2.0), (20_000, 1000, 1_000_000)),
"users": (GlobalMean(), (1_000_000, 1000, 1_000_000)),
},
        private_values={"": GlobalMean(1.0)},
        trust=["none", "local"],
        has_popularity=False,
        serves_new_users=False,
        compares_items=False,
        bad_values=BAD_MEANS,
        numbers={"epsilon": ONE},
    ),
    SystemCase(
        small={"": UserMean(2.0)}, memory={
"reports": (UserMean(2.0), (20_000, 1000, 1_000_000)),
"users": (UserMean(), (1_000_000, 1000, 1_000_000)),
},
        private_values={"": UserMean(1.0)},
        trust=["none", "local"],
        has_popularity=False,
        serves_new_users=False,
        compares_items=False,
        bad_values=BAD_MEANS,
        numbers={"epsilon": ONE},
    ),
    SystemCase(
        small={"": ItemMean()}, memory={
"reports": (ItemMean(2.0), (20_000, 1000, 1_000_000)),
"users": (ItemMean(), (1_000_000, 1000, 1_000_000)),
},
        other_work={"private": ItemMean(1.0)},
        private_values={"": ItemMean(1.0)},
        trust=["none", "local"],
        refuses_ones=[""],
        serves_new_users=False,
        compares_items=False,
        bad_values=BAD_MEANS,
        numbers={"epsilon": ONE},
        numpy_numbers={"epsilon": np.array(2.0)},
    ),
    SystemCase(
        small={"": BiasedMF()}, memory={
"ratings": (BiasedMF(n_epochs=1), (10_000, 1000, 300_000)),
"factors": (BiasedMF(n_epochs=1), (100_000, 50_000, 200_000)),
},
        without_rounds=CENTRAL,
        numbers={"n_epochs": 2, "learning_rate": HALF, "regularization": HALF},
    ),
    SystemCase(
        small={"": RatingItemKNN(n_neighbors=5)}, memory={
"pairs": (RatingItemKNN(), (5000, 2000, 100_000)),
"ratings": (RatingItemKNN(), (20_000, 500, 400_000)),
},
        without_rounds=CENTRAL,
        serves_new_users=False,
    ),
)  # fmt: skip
