"""Decisions between popularity and a personal model that a test needs, whatever the data are."""

from dataclasses import replace

from fastfedrec.systems.gram import gram_model
from fastfedrec.systems.gram.decision import RIDGES


def prefer(patch, *, personal, with_features=False):
    """Let DPGram and ShuffledSketchGram choose the best personal candidate, or popularity; scores remain as they are.

    The choice is still a function of the release alone.
    """
    own = gram_model.choose_candidate

    def chosen(pairs, estimators, ridges=RIDGES):
        decision = own(pairs, estimators, ridges)
        allowed = [candidate for candidate in decision.scores if (candidate.personal_weight > 0) == personal]
        if with_features and len(estimators) > 1:
            allowed = [candidate for candidate in allowed if "features" in candidate.estimator]
        return replace(decision, chosen=max(allowed, key=decision.scores.__getitem__))

    patch.setattr(gram_model, "choose_candidate", chosen)
