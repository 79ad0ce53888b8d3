"""The values of "auto" in FMF-LDP."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Values of "auto", chosen on MovieLens 1M (docs/explanation/systems/fmf/fmf-ldp.md); see `FIRST_STEP_NOISE`."""

    #: None follows the noise: in round t the noise moves each item factor by a standard deviation of
    #: `FIRST_STEP_NOISE` / (1 + t / `STEP_DECAY`).

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
MAX_AUTO_RATE = 0.3  # the non-private learning rate, if noise does not limit the step
