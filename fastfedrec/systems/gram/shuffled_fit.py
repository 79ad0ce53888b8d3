"""The rounds that models from shuffled messages share, the decision between them, and the released model.

The first messages are about single items, and half or most of the others about pairs of items.  These decide whether
the last messages are about items or about pairs.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.threads import one_blas_thread
from fastfedrec.data.item_features import AlignedFeatures
from fastfedrec.rounds.fit import Fit, Phase
from fastfedrec.systems._featured import note_features
from fastfedrec.systems._linear_scores import popularity_shares
from fastfedrec.systems._pair_matrix import Candidate, Decision, PairMatrix, item_sums
from fastfedrec.systems._pair_scores import ReleasedPairs, note_decision
from fastfedrec.systems.gram._feature_shrinkage import denoise_with_features, estimate_popularity
from fastfedrec.systems.gram.decision import RIDGES, Estimator, choose_candidate, named_estimators
from fastfedrec.systems.measurement import NoisyMean

__all__ = ["Plan", "Reader", "run_plan", "split_messages"]


class Reader(Protocol):
    """Estimates that a server computes from the messages of rounds, as phases with the states after them."""

    def means(self, rounds: Sequence[Phase]) -> NDArray[np.float64]:
        """Return the popularity of each item, from all rounds about items."""

    def noisy_mean(self, rounds: Sequence[Phase]) -> NoisyMean:
        """Return the popularity by the first round, with its noise."""

    def squares(self, rounds: Sequence[Phase]) -> float:
        """Return the trace of the matrix of pairs."""

    def pairs(self, rounds: Sequence[Phase]) -> PairMatrix:
        """Return the matrix of pairs, from all rounds about pairs."""


def split_messages(n_messages: int, share_of_items: float) -> list[int]:
    """Return the numbers of messages of the round about items, and of one or two rounds about pairs."""
    n_first = min(max(1, round(share_of_items * n_messages)), n_messages - 1)
    n_pairs = n_messages - n_first
    return [n_first, n_pairs] if n_pairs == 1 else [n_first, n_pairs - n_pairs // 2, n_pairs // 2]


@dataclass(frozen=True)
class Plan:
    """Rounds of one kind of messages, and rounds of the same cost that a release may choose in their place."""

    phases: list[Phase]
    # In place of the last round, if pairs cannot win; None if the last round is used in any case.
    last_about_items: Phase | None = None
    # In place of all rounds after the first one, if noise covers popularity; none if they are used in any case.
    all_about_items: Sequence[Phase] = ()

    def choices(self) -> list[list[Phase]]:
        """Return the rounds of every choice, the usual one first."""
        choices = [self.phases]
        if self.last_about_items is not None:
            choices.append([*self.phases[:-1], self.last_about_items])
        if self.all_about_items:
            choices.append([self.phases[0], *self.all_about_items])
        return choices


def run_plan(
    model: Any, fit: Fit, plan: Plan, reader: Reader, features: AlignedFeatures | None
) -> tuple[list[Phase], ReleasedPairs]:
    """Run the rounds of a plan, as their releases choose; return them and the released model."""
    phases, data, name = plan.phases, model.interactions_, type(model).__name__

    def run(phase: Phase) -> Phase:
        return phase._replace(state=fit.rounds(phase.system, phase.state, data))

    rounds = [run(phases[0])]
    mean = reader.noisy_mean(rounds)
    is_covered = bool(plan.all_about_items) and mean.is_noisy(mean.precision)
    has_pairs = len(phases) > 1 and not is_covered
    note_features(model, features, are_used=has_pairs)
    if not has_pairs:
        reason = "noise covered it" if is_covered else "these numbers of users and items leave no messages about pairs"
        model.ledger_.note(f"{name} spent all of epsilon on popularity, because {reason}.", "choice")
        rounds += map(run, plan.all_about_items)
        return rounds, ReleasedPairs.popularity(reader.means(rounds))
    rounds.append(run(phases[1]))
    estimators = named_estimators(features, functools.partial(_denoise, n_threads=fit.n_threads))
    ridges = RIDGES if isinstance(model.ridge, str) else (model.ridge,)
    decision = choose_candidate(reader.pairs(rounds), estimators, ridges, fit.n_threads)
    if len(phases) > 2:
        may_win = _pairs_may_win(decision, mean)
        last = phases[2] if may_win or plan.last_about_items is None else plan.last_about_items
        rounds.append(run(last))
        if may_win:
            decision = choose_candidate(reader.pairs(rounds), estimators, ridges, fit.n_threads)
        else:
            decision = replace(decision, chosen=Candidate(0.0, min(ridges), next(iter(estimators))))
    note_decision(name, model.ledger_, decision)
    estimate = estimators[decision.chosen.estimator]
    return rounds, _release(reader, rounds, estimate, decision, model.scoring, data.n_users)


def _denoise(
    features: AlignedFeatures | None, matrix: np.ndarray, noise: float, *, n_threads: int
) -> NDArray[np.float64]:
    """Return the factors of a denoised matrix of pairs."""
    popularity = np.ones(len(matrix)) if features is None else estimate_popularity(matrix)
    return denoise_with_features(matrix, noise, features, popularity, n_threads=n_threads)


@one_blas_thread()
def _release(
    reader: Reader, rounds: list[Phase], estimate: Estimator, decision: Decision, scoring: str, n_users: int
) -> ReleasedPairs:
    """Compute popularity and scores from the messages of all rounds."""
    means = reader.means(rounds)
    if not decision.is_personal:
        return ReleasedPairs.popularity(means, decision)
    pairs = reader.pairs(rounds)
    factors = estimate(pairs.values.copy(), pairs.noise)
    if factors.shape[1]:  # the messages about pairs also contain popularity
        means = item_sums(factors) / n_users
    pairs = replace(pairs, item_squares=reader.squares(rounds) * popularity_shares(means))
    return ReleasedPairs.personal(means, pairs, factors, pairs.noise, decision, scoring)


def _pairs_may_win(decision: Decision, mean: NoisyMean) -> bool:
    """Return whether the last messages are about pairs: popularity is precise, and pairs are not clearly worse."""
    # Pairs of these messages alone have more noise than all pairs, so they may be worse by one standard error.
    return not mean.is_noisy(mean.precision) and decision.gain > -decision.error
