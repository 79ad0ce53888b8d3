"""Rounds in place of planned ones, at the same privacy cost, where a release chooses them."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fastfedrec.rounds.fit import Phase
from fastfedrec.systems.claims import layered_noise

__all__ = ["all_phases", "number_phases", "pooled", "substitute"]

_BELOW_ONE = 1 - 2.0**-40  # keeps the cost of substitutes below that of the rounds after rounding


def substitute(phases: Sequence[Phase], others: Sequence[Phase], shares: Sequence[float]) -> list[Phase]:
    """Return rounds that together cost as much as several planned rounds.

    Parameters
    ----------
    phases : sequence of Phase
        The rounds that are replaced: the rest of a plan.
    others : sequence of Phase
        The rounds in their place, each run once, with any noise.
    shares : sequence of float
        Of the squared cost that each of them takes; they add up to 1 at most.

    Returns
    -------
    list of Phase
        `others` with noise that costs no more than that of the replaced rounds together.  Their events state at least
        the distance from normal draws of the replaced ones.  A release chooses them, so `state_largest_replacement`
        sets the cost that their events state.
    """
    mu = _BELOW_ONE * math.sqrt(math.fsum(n_rounds / system.width**2 for system, _, n_rounds in phases))
    systems = [
        system.with_noise(layered_noise(system._unit / (mu * math.sqrt(share)), ""))
        for (system, *_), share in zip(others, shares, strict=True)
    ]
    found = [Phase(system, state) for system, (_, state, _) in zip(systems, others, strict=True)]
    for system, state, _ in found:
        system.distance = system.noise.total_distance(math.prod(system._shape(state)))
    paid = math.fsum(n_rounds * system.distance for system, _, n_rounds in phases)
    systems[0].distance = max(systems[0].distance, paid - math.fsum(system.distance for system in systems[1:]))
    return found


def all_phases(plans: Sequence[Sequence[Phase]]) -> list[Phase]:
    """Return the phases of all plans, each once: those of the first plan, then those that each other plan adds.

    Parameters
    ----------
    plans : sequence of sequences of Phase
        They share the systems of the rounds that they have in common.

    Returns
    -------
    list of Phase
        In the order by which nodes number the rounds that they may be asked for.
    """
    return list({id(phase.system): phase for plan in plans for phase in plan}.values())


def number_phases(plans: Sequence[Sequence[Phase]]) -> None:
    """State for each phase how many phases lie between it and the one before it in its plan, in `all_phases`."""
    places = {id(phase.system): place for place, phase in enumerate(all_phases(plans))}
    for plan in plans:
        for (before, *_), (system, *_) in pairwise(plan):
            system.n_skipped = places[id(system)] - places[id(before)] - 1


def pooled(releases: Sequence[np.ndarray], noises: Sequence[float]) -> NDArray[np.float64]:
    """Return the mean of several noisy releases of the same numbers, weighted by their precision.

    Parameters
    ----------
    releases : sequence of ndarray of shape (n_items,), float64
        With independent noise.
    noises : sequence of float
        Standard deviations.

    Returns
    -------
    ndarray of shape (n_items,), float64
        The unbiased combination with the smallest variance.
    """
    precisions = np.array(noises, dtype=float) ** -2
    return (precisions / precisions.sum()) @ np.asarray(releases)
