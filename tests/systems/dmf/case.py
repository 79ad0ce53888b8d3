"""The case of DMF."""

from support.numbers_calls import HALF
from support.system_case import SystemCase

from fastfedrec import DMF

CASES = (
    SystemCase(
        small={"": DMF(3, 2)},
        memory={
            "users": (DMF(n_rounds=1), (1000, 1000, 20_000)),
            "gradients": (DMF(n_rounds=1), (200, 2000, 40_000)),
        },
        ignores_values=[""],
        without_rounds="no guarantee: neighbours train on each other's gradients",
        serves_new_users=False,
        compares_items=False,
        numbers=dict.fromkeys(
            ("learning_rate", "regularization", "global_regularization", "local_regularization"), HALF
        ),
    ),
)
