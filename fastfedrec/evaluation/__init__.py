"""Splits into train and test, and what a model's scores and predictions are worth.

A split of interactions is a function of `splits`; that of new users is in `new_users`.  Attacks on models are in
`studies.membership`; audits of privacy claims are in `audit`.
"""

from fastfedrec.evaluation.percentiles import mean_percentile_rank
from fastfedrec.evaluation.ranking_metrics import evaluate, parse_metrics
from fastfedrec.evaluation.rating_metrics import RATING_METRICS, evaluate_ratings
from fastfedrec.evaluation.splits import hold_out, hold_out_entries, k_fold, leave_one_out, random_split

__all__ = [
    "RATING_METRICS",
    "evaluate",
    "evaluate_ratings",
    "hold_out",
    "hold_out_entries",
    "k_fold",
    "leave_one_out",
    "mean_percentile_rank",
    "parse_metrics",
    "random_split",
]
