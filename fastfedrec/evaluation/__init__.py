"""Splits into train and test, and metrics of a model's rankings and predicted ratings.

A split is a value, a `Splitter`: `next(LeaveOneOut().split(data, key=key))`.  Metrics are in `metrics`.  `new_users`
has the split and the task of PrivRec's paper.  Attacks on models are in `studies.membership`; audits of privacy claims
are in `audit`.
"""

from fastfedrec.evaluation.metrics.averages import average_fits
from fastfedrec.evaluation.metrics.comparison import Comparison, compare
from fastfedrec.evaluation.metrics.evaluate import evaluate
from fastfedrec.evaluation.metrics.feature_diversity import FeatureDiversity
from fastfedrec.evaluation.metrics.lists import evaluate_lists
from fastfedrec.evaluation.metrics.names import parse_metrics
from fastfedrec.evaluation.metrics.negatives import read_test_negatives
from fastfedrec.evaluation.metrics.rankings import Rankings
from fastfedrec.evaluation.metrics.results import Evaluation
from fastfedrec.evaluation.metrics.sampled import Sampled
from fastfedrec.evaluation.percentiles import mean_percentile_rank
from fastfedrec.evaluation.published_folds import PublishedFolds
from fastfedrec.evaluation.rating_metrics import RATING_METRICS, evaluate_ratings
from fastfedrec.evaluation.splits import KFold, LeaveOneOut, RandomHoldout, Split, Splitter
from fastfedrec.evaluation.temporal_split import TemporalSplit
from fastfedrec.evaluation.user_holdout import UserHoldout

__all__ = [
    "RATING_METRICS",
    "Comparison",
    "Evaluation",
    "FeatureDiversity",
    "KFold",
    "LeaveOneOut",
    "PublishedFolds",
    "RandomHoldout",
    "Rankings",
    "Sampled",
    "Split",
    "Splitter",
    "TemporalSplit",
    "UserHoldout",
    "average_fits",
    "compare",
    "evaluate",
    "evaluate_lists",
    "evaluate_ratings",
    "mean_percentile_rank",
    "parse_metrics",
    "read_test_negatives",
]

__dir__ = __all__.copy  # dir() lists only the public names
