"""Models with a mean and rounds about item pairs, in which devices measure whether pairs are better than popularity."""

from abc import abstractmethod
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._central import CentralModel
from fastfedrec.systems._noisy_sum import ItemShares, NoisySum
from fastfedrec.systems._public_mean import floored, to_grid
from fastfedrec.systems.gram.decision import Candidate
from fastfedrec.systems.gram.gram_model import GramModel
from fastfedrec.systems.gram.measurement import Form, HitSum, NoisyMean, candidates_with, measurement_state
from fastfedrec.systems.gram.plan import alternatives, choose_first_plan, precision_of
from fastfedrec.systems.projection_rounds import SubspaceState

__all__ = ["Estimate", "MeasuredModel"]


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


class MeasuredModel(CentralModel, GramModel):
    """A model of pairs that spends its budget on popularity if pairs are no better or popularity is too noisy."""

    #: Classes of a second mean before the pairs, and of a mean that replaces the last rounds.
    _repeated_mean: ClassVar[type[NoisySum]]
    _substitute_mean: ClassVar[type[NoisySum]]

    @property
    def _candidates(self) -> tuple[Candidate, ...]:
        """The settings that devices compare; the first one is the reference of the later ones."""
        return candidates_with(self.ridge)

    def _alternatives(self, phases: list[Phase]) -> dict[str, list[Phase]]:
        """Return the plan and the alternative plans with a second mean, by their names."""
        return alternatives(phases, self._repeated_mean, self._substitute_mean)

    def _plans(self, phases: list[Phase]) -> list[list[Phase]]:
        return list(self._alternatives(phases).values())

    @abstractmethod
    def _begin(
        self, fit: Fit, data: Interactions, features: AlignedFeatures | None, mean: np.ndarray, phases: list[Phase]
    ) -> Estimate:
        """Return the first estimate of pairs, and remove the rounds that it runs from the list of phases."""

    @one_blas_thread()
    def _release(self, fit: Fit, data: Interactions, phases: list[Phase]) -> None:
        features = self._features_of(data)  # features that do not match the items raise before a release
        (first, *_), plans = phases[0], self._alternatives(phases)
        values = self._means(fit, data, phases[0])
        mean = NoisyMean(values, first.width / self._public_users(data), first.width**-2)
        # The choice of a plan depends on releases only, and all plans cost the same.
        name, self.item_means_ = choose_first_plan(plans, mean), values
        self._release_popularity()
        self._note_features(features, are_used=name != "mean")
        if name == "mean":
            reason = "pairs take two items" if len(plans) == 1 else "its noise would be too large with a part"
            self.ledger_.note(f"{type(self).__name__}: all of epsilon went to popularity, because {reason}")
        todo = plans[name][1:]
        if todo and isinstance(todo[0].system, ItemShares):
            mean = self._pool_mean(fit, data, mean, todo.pop(0))
        if todo:
            mean = self._release_pairs(fit, data, features, mean, todo, plans.get(f"{name}, mean", todo)[-1])
        self.item_means_ = mean.values

    def _release_pairs(
        self,
        fit: Fit,
        data: Interactions,
        features: AlignedFeatures | None,
        mean: NoisyMean,
        todo: list[Phase],
        instead: Phase,
    ) -> NoisyMean:
        """Run the rounds of pairs and measurements, or the mean `instead` of the last ones; return the final mean."""
        estimate, centre = self._begin(fit, data, features, mean.values, todo), to_grid(floored(mean.values))
        chosen = self._candidates[0]  # a measurement replaces it
        while todo:
            system, planned, _ = todo.pop(0)
            if isinstance(system, HitSum):
                state = measurement_state(planned, estimate.leading, estimate.form, mean, estimate.noise)
                sums = fit.rounds(system, state, data).noisy
                self.decision_ = system.decide(sums, self._public_users(data), mean.spared(precision_of(todo)))
                chosen = self.decision_.chosen
                # Popularity also replaces a personal model if it would be noisy with half of the remaining budget.
                if todo and (not chosen.personal_weight or mean.is_noisy(mean.precision + precision_of(todo) / 2)):
                    mean, todo = self._pool_mean(fit, data, mean, instead), []
            else:
                encoder = estimate.encoder(planned.encoder)
                sums = fit.rounds(system, SubspaceState(centre, encoder), data).noisy / system._unit
                estimate.add(sums, encoder, system.width)
        if self.decision_ is not None:
            self._note_decision(self.decision_)  # only the last decision is noted
        if chosen.personal_weight:
            form = estimate.form
            self._prepare_scores(form.about(form.public(mean.values)), estimate.factors, estimate.noise, chosen)
        return mean

    def _means(self, fit: Fit, data: Interactions, phase: Phase) -> NDArray[np.float64]:
        """Release the mean of the users' rows."""
        return fit.rounds(phase.system, phase.state, data).noisy / (phase.system._unit * self._public_users(data))

    def _pool_mean(self, fit: Fit, data: Interactions, mean: NoisyMean, phase: Phase) -> NoisyMean:
        """Release a second mean, and combine both releases by their precisions."""
        return mean.pooled(self._means(fit, data, phase), phase.system.width**-2)
