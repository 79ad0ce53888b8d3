"""Releases of a mean and of item pairs, in which devices measure whether pairs are better than popularity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._featured import align_features, note_features
from fastfedrec.systems._noisy_sum import ItemShares
from fastfedrec.systems._public_mean import floored, to_grid
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.measurement import Form, HitSum, NoisyMean, measurement_state
from fastfedrec.systems.gram.plan import choose_first_plan, precision_of
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

    `model` sets its attributes by them.  Its method `_begin` returns the first estimate of pairs, and removes the
    rounds that it runs from a list of phases.
    """

    model: Any
    fit: Fit
    data: Interactions
    n_users: int  # the public number of users
    candidates: Sequence[Candidate]  # settings that devices compare; the first one is the reference of the later ones

    @one_blas_thread()
    def run(self, phases: list[Phase], plans: Mapping[str, list[Phase]]) -> None:
        """Run the rounds of one of the plans; `phases` is the first of them."""
        model = self.model
        features = align_features(model, self.data)  # features that do not match the items raise before a release
        values, (first, *_) = self._mean_of(phases[0]), phases[0]
        mean = NoisyMean(values, first.width / self.n_users, first.width**-2)
        # The choice of a plan depends on releases only, and all plans cost the same.
        name, model.item_means_ = choose_first_plan(plans, mean), values
        model._release_popularity()
        note_features(model, features, are_used=name != "mean")
        if name == "mean":
            reason = "pairs take two items" if len(plans) == 1 else "its noise would be too large with a part"
            model.ledger_.note(f"{type(model).__name__}: all of epsilon went to popularity, because {reason}")
        todo = plans[name][1:]
        if todo and isinstance(todo[0].system, ItemShares):
            mean = self._pool_mean(mean, todo.pop(0))
        if todo:
            mean = self._release_pairs(features, mean, todo, plans.get(f"{name}, mean", todo)[-1])
        model.item_means_ = mean.values

    def _release_pairs(
        self, features: AlignedFeatures | None, mean: NoisyMean, todo: list[Phase], instead: Phase
    ) -> NoisyMean:
        """Run the rounds of pairs and measurements, or the mean `instead` of the last ones; return the final mean."""
        model, fit, data = self.model, self.fit, self.data
        estimate: Estimate = model._begin(fit, data, features, mean.values, todo)
        centre = to_grid(floored(mean.values))
        chosen = self.candidates[0]  # a measurement replaces it
        while todo:
            system, planned, _ = todo.pop(0)
            if isinstance(system, HitSum):
                state = measurement_state(planned, estimate.leading, estimate.form, mean, estimate.noise)
                sums = fit.rounds(system, state, data).noisy
                model.decision_ = system.decide(sums, self.n_users, mean.spared(precision_of(todo)))
                chosen = model.decision_.chosen
                # Popularity also replaces a personal model if it would be noisy with half of the remaining budget.
                if todo and (not chosen.personal_weight or mean.is_noisy(mean.precision + precision_of(todo) / 2)):
                    mean, todo = self._pool_mean(mean, instead), []
            else:
                encoder = estimate.encoder(planned.encoder)
                sums = fit.rounds(system, SubspaceState(centre, encoder), data).noisy / system._unit
                estimate.add(sums, encoder, system.width)
        if model.decision_ is not None:
            model._note_decision(model.decision_)  # only the last decision is noted
        if chosen.personal_weight:
            form = estimate.form
            model._prepare_scores(form.about(form.public(mean.values)), estimate.factors, estimate.noise, chosen)
        return mean

    def _mean_of(self, phase: Phase) -> NDArray[np.float64]:
        """Release the mean of the users' rows."""
        system, state, _ = phase
        return self.fit.rounds(system, state, self.data).noisy / (system._unit * self.n_users)

    def _pool_mean(self, mean: NoisyMean, phase: Phase) -> NoisyMean:
        """Release a second mean, and combine both releases by their precisions."""
        return mean.pooled(self._mean_of(phase), phase.system.width**-2)
