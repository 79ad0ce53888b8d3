"""Alternative rounds with the same privacy cost, which a release may choose instead of planned rounds."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noisy_sum import layered_noise

__all__ = ["all_phases", "number_phases", "pooled", "substitute"]

_BELOW_ONE = 1 - 2.0**-40  # so that rounding cannot raise the cost of substitutes above the planned rounds'


def substitute(phases: Sequence[Phase], new_phases: Sequence[Phase], shares: Sequence[float]) -> list[Phase]:
    """Return `new_phases` with noise that costs no more than the remaining planned rounds, `phases`.

    `shares` are the shares of the squared cost; they add up to at most 1.  The events state at least the distance
    from normal draws of the planned rounds, and `state_largest_replacement` sets the cost that they state.
    """
    # mu of Gaussian differential privacy composes as the root of a sum of squares.
    mu = _BELOW_ONE * math.sqrt(math.fsum(n_rounds / system.draw_width**2 for system, _, n_rounds in phases))
    systems = [
        system.with_noise(layered_noise(system._unit / (mu * math.sqrt(share)), "", system.source.width))
        for (system, *_), share in zip(new_phases, shares, strict=True)
    ]
    substitutes = [Phase(system, state) for system, (_, state, _) in zip(systems, new_phases, strict=True)]
    for system, state, _ in substitutes:
        system.distance = system.distance_of(state)
    # The first event takes the difference in distance, so that the substitutes state at least the planned total.
    paid = math.fsum(n_rounds * system.distance for system, _, n_rounds in phases)
    systems[0].distance = max(systems[0].distance, paid - math.fsum(system.distance for system in systems[1:]))
    return substitutes


def all_phases(plans: Sequence[Sequence[Phase]]) -> list[Phase]:
    """Return the phases of all plans without repetition: the first plan's, then those that each other plan adds.

    Nodes number the rounds in this order; plans share the systems of common rounds.
    """
    return list({id(phase.system): phase for plan in plans for phase in plan}.values())


def number_phases(plans: Sequence[Sequence[Phase]]) -> None:
    """Set for each phase the number of phases in `all_phases` between it and its predecessor in a plan."""
    positions = {id(phase.system): position for position, phase in enumerate(all_phases(plans))}
    for plan in plans:
        for (before, *_), (system, *_) in pairwise(plan):
            system.n_skipped = positions[id(system)] - positions[id(before)] - 1


def pooled(releases: Sequence[np.ndarray], noises: Sequence[float]) -> NDArray[np.float64]:
    """Return the mean of independent noisy releases of the same numbers, weighted by 1 / variance."""
    precisions = np.array(noises, dtype=float) ** -2
    return (precisions / precisions.sum()) @ np.asarray(releases)
