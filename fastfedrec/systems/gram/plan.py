"""The rounds of DPGram in their order, their shares of the budget, and the plans that a release may choose."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._replacement import state_largest_replacement
from fastfedrec.systems._substitute import substitute
from fastfedrec.systems.claims import layered_noise
from fastfedrec.systems.gram.columns import N_COLUMNS
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum, GramState, PairSum, ShareSum, ShareSumAgain
from fastfedrec.systems.gram.measurement import HitSum, MeasurementState, measured_stride
from fastfedrec.systems.subspace.rounds import MAX_USERS as MAX_COLUMN_USERS
from fastfedrec.systems.subspace.rounds import SubspaceState

__all__ = ["EXIT", "alternatives", "planned_rounds"]

# Shares of the squared budget that the mean leaves; tuned, see "Settings" in docs/explanation/systems/gram/dp-gram.md.
_PAIR_SHARE = 0.55
_MEASUREMENT_SHARE = 0.015
#: Number of the round after the first measurement, from which on the mean may be released instead.
EXIT = 5


class _Kind(NamedTuple):
    """A kind of rounds, its planned state, further arguments, and its share of the squared budget."""

    system: Any
    state: Any
    share: float
    options: dict[str, Any]


def planned_rounds(
    mu: float, n_items: int, n_users: int, key: Key, mean_share: float, candidates: Sequence[Candidate]
) -> list[Phase]:
    """Return the rounds of the mean, pairs, columns and measurements, which together cost mu.

    Parameters
    ----------
    mu : float
        Budget of the noise, as Gaussian differential privacy.
    n_items, n_users : int
        Public numbers.
    key : Key
        Of the noise.
    mean_share : float
        Share of the mean.
    candidates : sequence of Candidate
        That are measured.

    Returns
    -------
    list of Phase
        Of one item, the mean alone.  Of more users than columns have exact sums for, a mean, pairs and a measurement.
    """
    zeros = np.zeros(n_items, dtype=np.int64)
    encoder = np.zeros((n_items, min(N_COLUMNS, n_items)), dtype=np.int16)
    rest = 1 - mean_share
    measured, pair_share = _MEASUREMENT_SHARE * rest, _PAIR_SHARE * rest
    column_share = (rest - pair_share - 2 * measured) / 3

    def columns(number: int) -> _Kind:
        state = SubspaceState((zeros + 1).astype(np.int32), encoder)
        return _Kind(CrossSum, state, column_share, {"number": number})

    def hits(number: int) -> _Kind:
        options = {"number": number, "stride": measured_stride(n_users), "candidates": candidates}
        return _Kind(HitSum, MeasurementState.planned(n_items), measured, options)

    mean = _Kind(ShareSum, GramState(zeros), mean_share, {})
    pairs = _Kind(PairSum, GramState(zeros + 1), pair_share, {})
    if n_items == 1:
        kinds = [mean._replace(share=1.0)]
    elif n_users > MAX_COLUMN_USERS:
        kinds = [mean, pairs._replace(share=rest - measured), hits(0)]
    else:
        kinds = [mean, pairs, columns(0), columns(1), hits(0), columns(2), hits(1)]
    phases = []
    for kind, state, share, options in kinds:
        system = kind(layered_noise(kind._unit / (mu * math.sqrt(share)), ""), key, 0.0, **options)
        system.distance = system.noise.total_distance(math.prod(system._shape(state)))
        phases.append(Phase(system, state))
    return phases


def alternatives(phases: list[Phase]) -> list[list[Phase]]:
    """Return a plan, and the one that releases the mean again for the rest of the budget after the first measurement.

    Both cost the same for zero_out, and state the same cost for a replaced user.
    """
    if len(phases) <= EXIT:
        return [phases]
    again = substitute(phases[EXIT:], ShareSumAgain, phases[0].state, len(phases) - EXIT)
    plans = [phases, [*phases[:EXIT], again]]
    state_largest_replacement(plans)
    return plans
