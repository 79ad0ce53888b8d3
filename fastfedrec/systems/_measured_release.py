"""Releases of a mean and of item pairs, in which devices measure whether pairs are better than popularity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._alternatives import choose_first_plan, precision_of
from fastfedrec.systems._noisy_sum import ItemShares
from fastfedrec.systems._pair_matrix import Candidate, Decision
from fastfedrec.systems._pair_scores import ReleasedPairs, note_decision
from fastfedrec.systems._public_mean import floored, to_grid
from fastfedrec.systems.measurement import Form, HitSum, NoisyMean, measurement_state
from fastfedrec.systems.projection_rounds import SubspaceState

__all__ = ["Estimate", "MeasuredRelease"]


class Estimate(Protocol):
    """An estimate of the users' matrix of item pairs, which rounds of projections improve."""

    @property
    def factors(self) -> NDArray[np.float64]:
        """Factors L of the estimate L L', (n_items, rank), with the strongest column first."""

    @property
    def leading(self) -> NDArray[np.float64]:
        """Factors of a smaller rank, for measurements."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of an entry."""

    @property
    def form(self) -> Form:
        """The centring of rows, and the trace of the users' matrix."""

    def encoder(self, planned: np.ndarray) -> NDArray[np.int16]:
        """Return the encoder of the next round, with the shape of the planned one."""

    def add(self, sums: np.ndarray, encoder: np.ndarray, noise: float) -> None:
        """Add the noisy sums of a round, in L2 bounds of one contribution, with noise of this standard deviation."""


@dataclass(frozen=True)
class MeasuredRelease:
    """The releases of one fit, which spends its budget on popularity if pairs are no better or popularity is too noisy.

    `begin` returns the first estimate of pairs for a mean, and removes the rounds that it runs from a list of phases.
    `note_features` notes in the ledger whether public item features are used.
    """

    name: str  # of the model, for the ledger
    fit: Fit
    data: Interactions
    n_users: int  # the public number of users
    candidates: Sequence[Candidate]  # settings that devices compare; the first one is the reference of the later ones
    scoring: str
    begin: Callable[[NDArray[np.float64], list[Phase]], Estimate]
    note_features: Callable[..., None]

    @one_blas_thread()
    def run(self, phases: list[Phase], plans: Mapping[str, list[Phase]]) -> ReleasedPairs:
        """Run the rounds of one of the plans; `phases` is the first of them."""
        values, (first, *_) = self._mean_of(phases[0]), phases[0]
        mean = NoisyMean(values, first.width / self.n_users, first.width**-2)
        # The choice of a plan depends on releases only, and all plans cost the same.
        plan = choose_first_plan(plans, mean)
        self.note_features(are_used=plan != "mean")
        if plan == "mean":
            reason = "pairs take two items" if len(plans) == 1 else "its noise would be too large with a part"
            self.fit.ledger.note(f"{self.name} spent all of epsilon on popularity, because {reason}.", "choice")
        todo = plans[plan][1:]
        if todo and isinstance(todo[0].system, ItemShares):
            mean = self._pool_mean(mean, todo.pop(0))
        if not todo:
            return ReleasedPairs.popularity(mean.values)
        return self._release_pairs(mean, todo, plans.get(f"{plan}, mean", todo)[-1])

    def _release_pairs(self, mean: NoisyMean, todo: list[Phase], instead: Phase) -> ReleasedPairs:
        """Run the rounds of pairs and measurements, or the mean `instead` of the last ones."""
        fit, data = self.fit, self.data
        estimate = self.begin(mean.values, todo)
        centre = to_grid(floored(mean.values))
        decisions: list[Decision] = []
        while todo:
            system, planned, _ = todo.pop(0)
            if isinstance(system, HitSum):
                state = measurement_state(planned, estimate.leading, estimate.form, mean, estimate.noise)
                sums = fit.rounds(system, state, data).noisy
                decisions.append(system.decide(sums, self.n_users, mean.spared(precision_of(todo))))
                # Popularity also replaces a personal model if it would be noisy with half of the remaining budget.
                is_personal = decisions[-1].is_personal
                if todo and (not is_personal or mean.is_noisy(mean.precision + precision_of(todo) / 2)):
                    mean, todo = self._pool_mean(mean, instead), []
            else:
                encoder = estimate.encoder(planned.encoder)
                sums = fit.rounds(system, SubspaceState(centre, encoder), data).noisy / system._unit
                estimate.add(sums, encoder, system.width)
        decision = decisions[-1]  # only the last one is noted
        note_decision(self.name, fit.ledger, decision)
        if not decision.is_personal:
            return ReleasedPairs.popularity(mean.values, decision)
        pairs = estimate.form.about(estimate.form.public(mean.values))
        return ReleasedPairs.personal(mean.values, pairs, estimate.factors, estimate.noise, decision, self.scoring)

    def _mean_of(self, phase: Phase) -> NDArray[np.float64]:
        """Release the mean of the users' rows."""
        system, state, _ = phase
        return self.fit.rounds(system, state, self.data).noisy / (system._unit * self.n_users)

    def _pool_mean(self, mean: NoisyMean, phase: Phase) -> NoisyMean:
        """Release a second mean, and combine both releases by their precisions."""
        return mean.pooled(self._mean_of(phase), phase.system.width**-2)
