"""The case of NCF."""

from support.numbers_calls import HALF
from support.system_case import SystemCase

from fastfedrec import NCF

CASES = (
    SystemCase(
        small={"": NCF(n_epochs=2, n_factors=3, layers=(6, 3))},
        memory={
            "examples": (NCF(n_epochs=1), (20_000, 1000, 400_000)),
            "embeddings": (NCF(n_epochs=1), (50_000, 50_000, 100_000)),
        },
        ignores_values=[""],
        without_rounds="no guarantee: central training on all values together",
        serves_new_users=False,
        bad_values=[
            ({"layers": ()}, r"layers must be None or hold at least one width, got \(\)"),
            ({"layers": 8}, "layers must be None or hold at least one width, got 8"),
            ({"layers": (8, 0)}, r"layers\[1\] must be at least 1"),
        ],
        numbers={"learning_rate": HALF, "fusion_learning_rate": HALF, "regularization": HALF, "layers": (4, 2)},
    ),
)
