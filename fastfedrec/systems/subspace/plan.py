"""The rounds of DPSubspace in order, and their shares of the budget."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noise_source import NoiseSource
from fastfedrec.systems._noisy_sum import planned_phase
from fastfedrec.systems._pair_matrix import Candidate
from fastfedrec.systems.measurement import HitSum, MeasurementState, measured_stride
from fastfedrec.systems.projection_rounds import ProjectionSum, ShareSum, SubspaceState

__all__ = ["CANDIDATES", "MAX_MEASURED_RANK", "SubspaceHits", "planned_rounds"]

# Tuned, see "Settings" in docs/explanation/systems/subspace/dp-subspace.md.
# Ratio of the squared budgets of consecutive rounds of projections: later encoders keep more of a row.
_GROWTH = 4.0
_MEASUREMENT_SHARE = 0.015  # share of one measurement in the squared budget after the mean
#: Largest rank of the compared models: devices' time is in proportion to it, and the strongest directions decide.
MAX_MEASURED_RANK = 32
#: Weights of the personal part and ridges; the first candidate is the reference of the later ones.
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
    source: NoiseSource,
) -> list[Phase]:
    """Return the rounds of the mean, projections and measurements, with a total cost of mu-Gaussian privacy.

    One measurement precedes the last round of projections, which has most of the budget, and one follows it.  For one
    item there is the mean alone.
    """
    # Squared budgets add up, so shares of mu^2 sum to 1.
    remaining_share = 1 - mean_share
    measured = _MEASUREMENT_SHARE * remaining_share
    n_measured = min(n_rounds, 2)
    parts = [_GROWTH ** (number + 1 - n_rounds) for number in range(n_rounds)]

    phases: list[Phase] = []

    def plan(kind: Any, state: Any, share: float, **options: Any) -> None:
        phases.append(planned_phase(kind, state, mu * math.sqrt(share), key, source, **options))

    def measure(number: int) -> None:
        options = {"number": number, "stride": measured_stride(n_users), "candidates": candidates}
        plan(SubspaceHits, MeasurementState.planned(n_items, min(n_columns, MAX_MEASURED_RANK)), measured, **options)

    no_mean = np.zeros(n_items, dtype=np.int32)  # a mean of zeros is not sent to devices
    plan(ShareSum, SubspaceState(no_mean, np.zeros((0, n_columns), dtype=np.int16)), mean_share if n_items > 1 else 1.0)
    if n_items == 1:  # a pair needs two items
        return phases
    for number, part in enumerate(parts):
        if 0 < number == n_rounds - 1:
            measure(0)
        # An encoder without rows means public signs.
        encoder = np.zeros((n_items if number else 0, n_columns), dtype=np.int16)
        share = (remaining_share - n_measured * measured) * part / sum(parts)
        plan(ProjectionSum, SubspaceState(no_mean + 1, encoder), share, number=number)
    measure(n_measured - 1)
    return phases
