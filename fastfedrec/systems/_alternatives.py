"""The plan of a measured release, and the alternative plans of equal cost that a release may choose."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems._replacement import state_largest_replacement
from fastfedrec.systems._substitute import number_phases, substitute
from fastfedrec.systems.measurement import HitSum, NoisyMean

__all__ = ["alternatives", "choose_first_plan", "exit_number", "precision_of"]

# Share of the squared budget after the mean for a second mean; tuned, see "Settings" in
# docs/explanation/systems/gram/dp-gram.md.
_MORE_MEAN_SHARE = 0.18


def precision_of(phases: Sequence[Phase]) -> float:
    """Return the squared budget of rounds."""
    return math.fsum(phase.system.width**-2 for phase in phases)


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
    more.system.source = last.system.source = first.system.source
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
