"""Experimental attacks: inference from messages of FedRec, FedGNN and DMF, and membership inference on any model."""

from fastfedrec.studies.membership.attack import membership_loss, membership_shadow
from fastfedrec.systems.dmf.attacks import neighbor_gradients, neighbor_intersection
from fastfedrec.systems.fedgnn.attacks import pseudo_item_intersection, pseudo_item_values
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
    "neighbor_gradients",
    "neighbor_intersection",
    "popularity",
    "pseudo_item_intersection",
    "pseudo_item_values",
    "run_attacks",
    "value_matching",
]

__dir__ = __all__.copy  # dir() lists only the public names
