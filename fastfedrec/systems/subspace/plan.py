"""The rounds of DPSubspace in their order, and their shares of the budget."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.measurement import HitSum, MeasurementState, measured_stride
from fastfedrec.systems.gram.plan import planned_phase
from fastfedrec.systems.projection_rounds import ProjectionSum, ShareSum, SubspaceState

__all__ = ["CANDIDATES", "MAX_MEASURED_RANK", "SubspaceHits", "planned_rounds"]

# Tuned, see "Settings" in docs/explanation/systems/subspace/dp-subspace.md.
_GROWTH = 4.0  # of the squared budget from one round of projections to the next: later encoders leave more of a row
_MEASUREMENT_SHARE = 0.015  # of the squared budget that the mean leaves
#: Largest rank of the models that are compared: devices' time is in proportion, and the strongest directions decide.
MAX_MEASURED_RANK = 32
#: Weights of the personal part and ridges; the first is the reference of the others.
CANDIDATES = ((1.0, 0.5), (2.5, 0.5), (0.4, 0.5), (0.15, 2.0))


class SubspaceHits(HitSum):
    """A measurement of DPSubspace's candidates."""

    _stream = "dp_subspace.hits"


def planned_rounds(
    mu: float,
    n_items: int,
    n_users: int,
    n_columns: int,
    n_rounds: int,
    key: Key,
    mean_share: float,
    candidates: Sequence[Candidate],
) -> list[Phase]:
    """Return the rounds of the mean, projections and measurements, which together cost mu.

    One measurement precedes the last round of projections, which has most of the budget, and one follows it.

    Parameters
    ----------
    mu : float
        Budget of the noise, as Gaussian differential privacy.
    n_items, n_users : int
        Public numbers.
    n_columns, n_rounds : int
        Largest number of columns of a round of projections, and the number of these rounds.
    key : Key
        Of the noise.
    mean_share : float
        Share of the mean.
    candidates : sequence of Candidate
        That are measured.

    Returns
    -------
    list of Phase
        Of one item, the mean alone.
    """
    rest = 1 - mean_share
    measured = _MEASUREMENT_SHARE * rest
    n_measured = min(n_rounds, 2)
    parts = [_GROWTH ** (number + 1 - n_rounds) for number in range(n_rounds)]

    phases: list[Phase] = []

    def plan(kind: Any, state: Any, share: float, **options: Any) -> None:
        phases.append(planned_phase(kind, state, mu * math.sqrt(share), key, **options))

    def measure(number: int) -> None:
        options = {"number": number, "stride": measured_stride(n_users), "candidates": candidates}
        plan(SubspaceHits, MeasurementState.planned(n_items, min(n_columns, MAX_MEASURED_RANK)), measured, **options)

    no_mean = np.zeros(n_items, dtype=np.int32)  # devices are sent no mean of zeros
    plan(ShareSum, SubspaceState(no_mean, np.zeros((0, n_columns), dtype=np.int16)), mean_share if n_items > 1 else 1.0)
    if n_items == 1:  # pairs take two items
        return phases
    for number, part in enumerate(parts):
        if 0 < number == n_rounds - 1:
            measure(0)
        encoder = np.zeros((n_items if number else 0, n_columns), dtype=np.int16)  # without rows, public signs
        share = (rest - n_measured * measured) * part / sum(parts)
        plan(ProjectionSum, SubspaceState(no_mean + 1, encoder), share, number=number)
    measure(n_measured - 1)
    return phases
