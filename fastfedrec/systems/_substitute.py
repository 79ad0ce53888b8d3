"""A round in place of planned ones, at the same privacy cost, where a release chooses it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.rounds.fit import Phase
from fastfedrec.systems._noisy_sum import NoisySum
from fastfedrec.systems.claims import layered_noise

__all__ = ["pooled", "substitute"]

_BELOW_ONE = 1 - 2.0**-40  # keeps the cost of a substitute below that of the rounds after rounding


def substitute(phases: Sequence[Phase], kind: type[NoisySum], state: Any, n_skipped: int) -> Phase:
    """Return one round that costs as much as several planned rounds.

    Parameters
    ----------
    phases : sequence of Phase
        The rounds that it replaces: the rest of a plan.
    kind : type
        Of the round.
    state : object
        Its state, as a plan gives it.
    n_skipped : int
        Phases between the last one that was run and this one, in the list of all phases.

    Returns
    -------
    Phase
        Its noise costs no more than that of the replaced rounds together, and its event states at least their distance
        from normal draws.  A release chooses it, so `state_largest_replacement` sets the cost that its event states.
    """
    mu = _BELOW_ONE * math.sqrt(math.fsum(n_rounds / system.width**2 for system, _, n_rounds in phases))
    noise = layered_noise(kind._unit / mu, "")
    paid = math.fsum(n_rounds * system.distance for system, _, n_rounds in phases)
    system = kind(noise, phases[0].system.key, paid)
    system.distance = max(noise.total_distance(math.prod(system._shape(state))), paid)
    system.n_skipped = n_skipped
    return Phase(system, state)


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
