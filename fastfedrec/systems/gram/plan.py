"""The rounds of DPGram in order, and their shares of the budget."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noise_source import NoiseSource
from fastfedrec.systems._noisy_sum import planned_phase
from fastfedrec.systems._pair_matrix import Candidate
from fastfedrec.systems.gram.columns import N_COLUMNS
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum, GramState, PairSum, ShareSum
from fastfedrec.systems.measurement import HitSum, MeasurementState, measured_stride
from fastfedrec.systems.projection_rounds import MAX_USERS as MAX_COLUMN_USERS
from fastfedrec.systems.projection_rounds import SubspaceState

__all__ = ["planned_rounds"]

# Shares of the squared budget after the mean; tuned, see "Settings" in docs/explanation/systems/gram/dp-gram.md.
_PAIR_SHARE = 0.55
_N_ROUNDS, _N_BEFORE = 4, 2  # number of rounds of columns, in total and before the first measurement
_MEASUREMENT_SHARE = 0.015  # share of one measurement
# Weights and ridges at the first of two measurements, which decides between popularity and any personal model.
_FIRST_CANDIDATES = ((1.0, 8.0), (2.5, 2.0), (6.0, 8.0))


class _Kind(NamedTuple):
    """A class of rounds, its planned state, its share of the squared budget, and further arguments."""

    system: Any
    state: Any
    share: float
    options: dict[str, Any]


def planned_rounds(
    mu: float,
    n_items: int,
    n_users: int,
    key: Key,
    mean_share: float,
    candidates: Sequence[Candidate],
    source: NoiseSource,
) -> list[Phase]:
    """Return the rounds of the mean, pairs, columns and measurements, with a total cost of mu-Gaussian privacy.

    One item has the mean alone.  With more users than sums of columns can hold exactly, there are no columns.
    """
    zeros = np.zeros(n_items, dtype=np.int64)
    encoder = np.zeros((n_items, min(N_COLUMNS, n_items)), dtype=np.int16)
    # Squared budgets add up, so shares of mu^2 sum to 1.
    remaining_share = 1 - mean_share
    measured, pair_share = _MEASUREMENT_SHARE * remaining_share, _PAIR_SHARE * remaining_share
    column_share = (remaining_share - pair_share - 2 * measured) / _N_ROUNDS

    def columns(number: int) -> _Kind:
        state = SubspaceState((zeros + 1).astype(np.int32), encoder)
        return _Kind(CrossSum, state, column_share, {"number": number})

    def hits(number: int, compared: Sequence[Candidate]) -> _Kind:
        options = {"number": number, "stride": measured_stride(n_users), "candidates": compared}
        return _Kind(HitSum, MeasurementState.planned(n_items), measured, options)

    mean = _Kind(ShareSum, GramState(zeros), mean_share, {})
    pairs = _Kind(PairSum, GramState(zeros + 1), pair_share, {})
    if n_items == 1:
        kinds = [mean._replace(share=1.0)]
    elif n_users > MAX_COLUMN_USERS:
        kinds = [mean, pairs._replace(share=remaining_share - measured), hits(0, candidates)]
    else:
        rounds = [columns(number) for number in range(_N_ROUNDS)]
        first = hits(0, _first_candidates(candidates))
        kinds = [mean, pairs, *rounds[:_N_BEFORE], first, *rounds[_N_BEFORE:], hits(1, candidates)]
    return [
        planned_phase(kind, state, mu * math.sqrt(share), key, source, **options)
        for kind, state, share, options in kinds
    ]


def _first_candidates(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return one candidate of each weight, or all candidates if their ridge is given."""
    if len(candidates) == len(_FIRST_CANDIDATES):
        return candidates
    by_setting = {(one.personal_weight, one.ridge): one for one in candidates}
    return tuple(by_setting[setting] for setting in _FIRST_CANDIDATES)
