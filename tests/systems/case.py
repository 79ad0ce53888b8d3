"""The case of DPLCF, which is one module."""

import numpy as np
from support.system_case import SystemCase

from fastfedrec import DPLCF

CASES = (
    SystemCase(
        small={"": DPLCF(2.5)},
        memory={
            "answers": (DPLCF(), (2000, 2000, 20_000)),
            "pairs": (DPLCF(), (500, 3000, 5000)),
        },
        private={"": DPLCF()},
        trust=["local"],
        without_rounds="counts, tried by `sum_answers` of `FUNCTIONS`",
        scores_are_sums=True,
        numpy_numbers={"n_neighbors": np.array(3)},
    ),
)
