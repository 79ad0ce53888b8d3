"""The rounds of a stage of PrivRec, with a check for divergence."""

from collections.abc import Callable

import numpy as np

from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.rounds.fit import Fit
from fastfedrec.rounds.system import DivergenceError
from fastfedrec.systems.privrec._cohort import CohortRounds, PrivRecState

_MAX_PARAMETER = 10.0  # weights start below 1; at this size, logits are in the tens of thousands
_MAX_MEAN_NOISE = 0.003  # in each parameter of a server step, for training that learns


def run_rounds(
    fit: Fit,
    system: CohortRounds,
    data: Interactions | InteractionLog,
    parameters: np.ndarray,
    n_rounds: int,
    after_round: Callable[[int, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Run the rounds of a stage from its first parameters, and return its last ones."""

    def after(round_number: int, state: PrivRecState) -> None:
        check_convergence(system, state.parameters, round_number)
        if after_round is not None:
            after_round(round_number, state.parameters)

    state = system.state_of(parameters, 0)
    return fit.rounds(system, state, data, n_rounds, after_round=after).parameters  # type: ignore[arg-type]


def check_convergence(system: CohortRounds, parameters: np.ndarray, round_number: int) -> None:
    """Raise if the parameters, which are public, have left the usable range."""
    largest = float(np.abs(parameters).max())
    if largest <= _MAX_PARAMETER:
        return
    reason = "lower learning_rate or server_learning_rate"
    if system.noise is not None:
        # The noise on the sum, divided by the cohort's size.
        mean_noise = 2 * system.noise.noise_multiplier * system.noise.clip_norm / system.cohort_size
        reason = (
            f"the noise is {mean_noise:.3g} in each parameter of the mean update, and training needs about "
            f"{_MAX_MEAN_NOISE / system.server_learning_rate:.2g} or less: lower clip_norm, or enlarge cohort_size"
        )
    raise DivergenceError(
        f"{system.stage} diverged in round {round_number}: the largest parameter is {largest:.3g}; {reason}"
    )
