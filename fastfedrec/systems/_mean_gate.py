"""A gate that looks at what was released first: rows may be too short for what comes after the mean to tell anything.

The mean of users' normalised rows says how long rows are and how much any two have in common, which no public number
does.  What is left of the budget then goes to the mean again; either way the run costs the same.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastfedrec.accounting import gaussian_mu
from fastfedrec.core.log import logger
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._noisy_sum import ItemShares, NoisySum
from fastfedrec.systems.claims import layered_noise

_LESS = 1 - 2.0**-40  # so that what is rounded costs no more


class MeanGated(CentralModel):
    """A model whose first release is the mean of users' normalised rows, which may close the gate that was open."""

    _again: ClassVar[type[ItemShares]]  # the first round, with noise of its own

    gate: bool
    signal_: float
    item_means_: NDArray[np.float64]

    @abstractmethod
    def _least_reach(self) -> float:
        """Of `reach_of`, below which the gate closes."""

    def _courses(self, phases: list[Phase]) -> list[list[Phase]]:
        """The plan; and with a gate, the mean again in place of all that comes after it."""
        if not self.gate or len(phases) == 1:
            return [phases]
        return [phases, [phases[0], again(self._again, phases)]]

    def _course(self, reach: float, courses: list[list[Phase]]) -> list[Phase]:
        """Which of them is taken where the gate is open; with or without one."""
        return courses[0]

    def _release_mean(self, fit: Fit, data: Interactions, phases: list[Phase]) -> list[Phase]:
        """Release `item_means_`; what is to follow of the plan, which is nothing where the gate closes."""
        (first, start, _), *others = phases
        divisor = first._unit * self._public_users(data)
        sums = fit.rounds(first, start, data).noisy
        self.item_means_ = sums / divisor
        courses = self._courses(phases)
        if len(courses) == 1:
            return others
        strength = self._public_users(data) * gaussian_mu(self.epsilon, self.delta)
        noise, least = float(first.noise.stddev) / divisor, self._least_reach()
        reach = reach_of(strength, self.item_means_, noise)
        if not self.gate or reach >= least:
            return self._course(reach, courses)[1:]
        name = type(self).__name__
        logger.info(f"{name}: users' rows have {reach:.3g} in common by the released mean, {least:g} needed")
        self.ledger_.note(  # without the number, which is no part of what the run costs
            f"{name}: by the released mean, users' rows have too little in common for the rest to tell "
            f"anything (below {least:g}; looking at what was released costs nothing), so all that was left of "
            "epsilon went to popularity, and everybody gets the same items"
        )
        self._add_to_mean(fit, data, first, courses[1][1])
        return []

    def _add_to_mean(self, fit: Fit, data: Interactions, first: NoisySum, again: Phase) -> None:
        """Release the mean once more: `item_means_` is that of both."""
        system, state, _ = again
        sums = fit.rounds(system, state, data).noisy / (system._unit * self._public_users(data))
        self.item_means_ = pooled([self.item_means_, sums], [first.width, system.width])


def reach_of(strength: float, item_means: np.ndarray, noise: float) -> float:
    """What users tell together, times what any two of their rows have in common as far as a noisy mean tells.

    Parameters
    ----------
    strength : float
        n_users mu.
    item_means : ndarray of shape (n_items,), float64
        Noisy mean of users' rows of norm 1.
    noise : float
        Standard deviation of an entry.

    Returns
    -------
    float
        n_users mu |m|^2, without what noise adds to the square; below 0 by chance alone.  |m|^2 is the mean product of
        two rows: 1 / n_items where each has one item and all are as popular, and more where rows are longer or alike.
    """
    return strength * (float(item_means @ item_means) - len(item_means) * noise**2)


def again(kind: type[ItemShares], phases: Sequence[Phase]) -> Phase:
    """The first round once more, for what all others together may cost.

    Parameters
    ----------
    kind : type
        Of the round: as the first, but its noise is another's.
    phases : sequence of Phase
        The plan: the first, and those that this one takes the place of.

    Returns
    -------
    Phase
        Whose event costs no more than theirs; it pays for its draws, and no less than they do.
    """
    return in_place_of(phases[1:], kind, phases[0].state)


def in_place_of(phases: Sequence[Phase], kind: type[NoisySum], state: Any, n_before: int = 0) -> Phase:
    """One round for what several may cost.

    Parameters
    ----------
    phases : sequence of Phase
        What it takes the place of: all that is left of the plan.
    kind : type
        Of the round.
    state : object
        Its state, as a plan gives it.
    n_before : int
        How many such rounds there are for this plan already: they are numbered after it.

    Returns
    -------
    Phase
        Whose event costs no more than theirs; it pays for its draws, and no less than they do.
    """
    mu = _LESS * math.sqrt(math.fsum(n_rounds / system.width**2 for system, _, n_rounds in phases))
    noise = layered_noise(kind._unit / mu, "")
    paid = math.fsum(n_rounds * system.distance for system, _, n_rounds in phases)
    system = kind(noise, phases[0].system.key, paid)
    system.distance = max(noise.total_distance(math.prod(system._shape(state))), paid)
    system.n_skipped = len(phases) + n_before
    return Phase(system, state)


def pooled(sums: Sequence[np.ndarray], noises: Sequence[float]) -> NDArray[np.float64]:
    """The mean of several noisy releases of the same sums, each by how much it tells.

    Parameters
    ----------
    sums : sequence of ndarray of shape (n_items,), float64
        With independent noise.
    noises : sequence of float
        Standard deviations.

    Returns
    -------
    ndarray of shape (n_items,), float64
        Of the least noise.
    """
    weights = np.array(noises, dtype=float) ** -2
    return (weights / weights.sum()) @ np.asarray(sums)
