"""Attacks by experiment: on what parties of FedRec receive, and on whose data any model was fitted on."""

from fastfedrec.studies.membership.attack import membership_loss, membership_shadow
from fastfedrec.systems.fedrec.attacks import (
    AttackResult,
    RatingResult,
    gradients,
    group_sums,
    intersection,
    popularity,
    run_attacks,
    value_matching,
)

__all__ = [
    "AttackResult",
    "RatingResult",
    "gradients",
    "group_sums",
    "intersection",
    "membership_loss",
    "membership_shadow",
    "popularity",
    "run_attacks",
    "value_matching",
]
