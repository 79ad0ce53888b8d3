"""Decisions between popularity and a personal model, chosen by a test for any data."""

from dataclasses import replace

from fastfedrec.systems.gram import dp_gram, shuffled_fit
from fastfedrec.systems.gram.decision import RIDGES
from fastfedrec.systems.measurement import HitSum, NoisyMean


def prefer(patch, *, personal, with_features=False, needs_mean=False, start="pairs"):
    """Make systems that decide choose the best personal candidate, or popularity; scores are unchanged.

    The choice is still a function of the releases alone.  `start` names the plan of DPGram or DPSubspace
    after the mean, and `needs_mean` is whether the mean has the last rounds of it.
    """
    choose, decide, estimate = shuffled_fit.choose_candidate, HitSum.decide, dp_gram.best_estimator

    def best(decision, estimators=()):
        allowed = [candidate for candidate in decision.scores if (candidate.personal_weight > 0) == personal]
        if with_features and len(estimators) > 1:
            allowed = [candidate for candidate in allowed if "features" in candidate.estimator]
        return replace(decision, chosen=max(allowed, key=decision.scores.__getitem__))

    def estimated(pairs, estimators, n_threads):
        with_features_only = {name: one for name, one in estimators.items() if with_features and "features" in name}
        return estimate(pairs, with_features_only or estimators, n_threads)

    def chosen(pairs, estimators, ridges=RIDGES, n_threads=1):
        return best(choose(pairs, estimators, ridges, n_threads), estimators)

    patch.setattr(shuffled_fit, "choose_candidate", chosen)
    patch.setattr(shuffled_fit, "_pairs_may_win", lambda decision, mean: personal)
    patch.setattr(HitSum, "decide", lambda *arguments: best(decide(*arguments)))
    patch.setattr(dp_gram, "best_estimator", estimated)
    patch.setattr(
        "fastfedrec.systems._measured_release.choose_first_plan",
        lambda plans, mean: start if start in plans else "mean",
    )
    patch.setattr(NoisyMean, "is_noisy", lambda *arguments: needs_mean)
