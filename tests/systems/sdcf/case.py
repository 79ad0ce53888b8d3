"""The case of SDCF."""

from support.numbers_calls import HALF
from support.system_case import SystemCase

from fastfedrec import SDCF

FEW = {"min_clients_per_denoiser": 1, "n_rounds": 3, "n_factors": 3}

CASES = (
    SystemCase(
        small={"": SDCF(True, 2, **FEW)}, memory={
"reports": (SDCF(n_rounds=1), (20_000, 500, 200_000)),
"items": (SDCF(n_rounds=1), (1000, 30_000, 20_000)),
},
        other_work={"wishart": SDCF(True, 2, prior="wishart", **FEW)},
        trust=["none", "local"],
        refuses_ones=[""],
        bad_values=[
            ({"keep_probability": 0.02}, "keep_probability must differ from add_probability"),
            ({"report_probability": 0.01}, "the reported items would not depend on the rated ones"),
        ],
        numbers={
            "keep_probability": 0.75, "add_probability": 0.25, "report_probability": HALF,
            "false_report_probability": 0.125, "learning_rate": HALF, "learning_rate_decay": HALF,
        },
    ),
)  # fmt: skip
