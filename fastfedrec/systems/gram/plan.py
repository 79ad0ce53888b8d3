"""The rounds of DPGram in order, their shares of the budget, and the alternative plans that a release may choose."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfedrec.core.randomness import Key
from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems._replacement import state_largest_replacement
from fastfedrec.systems._substitute import number_phases, substitute
from fastfedrec.systems.claims import layered_noise
from fastfedrec.systems.gram.columns import N_COLUMNS
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.dp_gram_rounds import CrossSum, GramState, PairSum, ShareSum
from fastfedrec.systems.gram.measurement import HitSum, MeasurementState, NoisyMean, measured_stride
from fastfedrec.systems.projection_rounds import MAX_USERS as MAX_COLUMN_USERS
from fastfedrec.systems.projection_rounds import SubspaceState

__all__ = ["alternatives", "choose_first_plan", "exit_number", "planned_phase", "planned_rounds", "precision_of"]

# Shares of the squared budget after the mean; tuned, see "Settings" in docs/explanation/systems/gram/dp-gram.md.
_PAIR_SHARE = 0.55
_N_ROUNDS, _N_BEFORE = 4, 2  # number of rounds of columns, in total and before the first measurement
_MEASUREMENT_SHARE = 0.015  # share of one measurement
# Weights and ridges at the first of two measurements, which decides between popularity and any personal model.
_FIRST_CANDIDATES = ((1.0, 8.0), (2.5, 2.0), (6.0, 8.0))
_MORE_MEAN_SHARE = 0.18  # share of a second mean


def precision_of(phases: Sequence[Phase]) -> float:
    """Return the squared budget of rounds."""
    return math.fsum(phase.system.width**-2 for phase in phases)


class _Kind(NamedTuple):
    """A class of rounds, its planned state, its share of the squared budget, and further arguments."""

    system: Any
    state: Any
    share: float
    options: dict[str, Any]


def planned_rounds(
    mu: float, n_items: int, n_users: int, key: Key, mean_share: float, candidates: Sequence[Candidate]
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
    return [planned_phase(kind, state, mu * math.sqrt(share), key, **options) for kind, state, share, options in kinds]


def _first_candidates(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return one candidate of each weight, or all candidates if their ridge is given."""
    if len(candidates) == len(_FIRST_CANDIDATES):
        return candidates
    by_setting = {(one.personal_weight, one.ridge): one for one in candidates}
    return tuple(by_setting[setting] for setting in _FIRST_CANDIDATES)


def planned_phase(kind: Any, state: Any, mu: float, key: Key, **options: Any) -> Phase:
    """Return a phase of one round of a `NoisySum` class, with noise that costs mu-Gaussian privacy."""
    system = kind(layered_noise(kind._unit / mu, ""), key, 0.0, **options)
    # The event charges to delta the total-variation distance of all draws from rounded normal ones.
    system.distance = system.noise.total_variation_of(system.n_sums(state))
    return Phase(system, state)


def exit_number(phases: Sequence[Phase]) -> int:
    """Return the number of rounds up to the first measurement, after which the mean may replace the later ones."""
    return next((number for number, phase in enumerate(phases, 1) if isinstance(phase.system, HitSum)), len(phases))


def alternatives(
    phases: list[Phase], more_mean: type[NoisySum], mean_instead: type[NoisySum]
) -> dict[str, list[Phase]]:
    """Return a plan and the alternative plans with a second mean, named by their rounds in order.

    All cost the same for zero_out, and state the same cost for a replaced user.  The class `more_mean` is a second
    mean before the pairs, and `mean_instead` replaces the rounds after the first measurement.
    """
    if len(phases) == 1:
        return {"mean": phases}
    first, *later = phases
    more, last = (
        Phase(kind(first.system.noise, first.system.key, 0.0), first.state) for kind in (more_mean, mean_instead)
    )
    precisions = np.array([phase.system.width**-2.0 for phase in later])
    shares = (1 - _MORE_MEAN_SHARE) * precisions / precisions.sum()
    plans = {
        "pairs": phases,
        # A second mean takes a part of the budget that the first one leaves, or all of it.
        "mean, pairs": [first, *substitute(later, [more, *later], [_MORE_MEAN_SHARE, *shares])],
        "mean": [first, *substitute(later, [more], [1.0])],
    }
    # A mean may replace the rounds after the first measurement, at the same cost.
    for name in ("pairs", "mean, pairs"):
        plan, stop = plans[name], exit_number(plans[name])
        if stop < len(plan):
            plans[f"{name}, mean"] = [*plan[:stop], *substitute(plan[stop:], [last], [1.0])]
    number_phases(list(plans.values()))
    state_largest_replacement(list(plans.values()))
    return plans


def choose_first_plan(plans: Mapping[str, list[Phase]], mean: NoisyMean) -> str:
    """Return the name of the plan with the smallest budget for the mean that leaves it little noise."""
    if len(plans) == 1 or mean.is_noisy(precision_of(plans["mean, pairs"][:2])):
        return "mean"
    return "mean, pairs" if mean.is_noisy(mean.precision) else "pairs"
