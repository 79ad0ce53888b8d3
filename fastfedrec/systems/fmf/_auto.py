"""What "auto" stands for in FMF-LDP."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What "auto" stands for; chosen on MovieLens 1M (docs/explanation/systems/fmf/fmf-ldp.md).

    `learning_rate` is None where it follows the noise: the first round's noise then moves every item factor by a
    standard deviation of `FIRST_STEP_NOISE`, round t's by that over 1 + t / `STEP_DECAY`.
    """

    learning_rate: float | None
    init_scale: float
    confidence_weight: float


AUTO = {
    "private": Settings(learning_rate=None, init_scale=0.01, confidence_weight=0.0),
    "non-private": Settings(learning_rate=0.3, init_scale=0.1, confidence_weight=1.5),
    "published": Settings(learning_rate=0.001, init_scale=0.01, confidence_weight=0.0),
}
FIRST_STEP_NOISE = 0.06
STEP_DECAY = 10
LARGEST_AUTO_RATE = 0.3  # with so many reports that noise is no limit, the step of the non-private twin
