"""Randomizers; each states its guarantee in one sentence."""

from fastfedrec.mechanisms.bayes_kary import BayesKary
from fastfedrec.mechanisms.binary_response import BinaryResponse
from fastfedrec.mechanisms.channel import Channel
from fastfedrec.mechanisms.client_sampling import FixedSizeSampling, PoissonSampling
from fastfedrec.mechanisms.clipping import clip_rows_l1, clip_rows_l2
from fastfedrec.mechanisms.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.frequency import GRR, OUE
from fastfedrec.mechanisms.laplace_rr import MixtureLaplaceRR, PublishedLaplaceRR, RoundedLaplace, SerialLaplaceRR
from fastfedrec.mechanisms.layered_gaussian import LayeredGaussian
from fastfedrec.mechanisms.optimal_kary import OptimalKary
from fastfedrec.mechanisms.piecewise import Hybrid, Piecewise
from fastfedrec.mechanisms.rated_or_not import RatedOrNot
from fastfedrec.mechanisms.rounded_gaussian import RoundedGaussian
from fastfedrec.mechanisms.selection import ExponentialMechanism
from fastfedrec.mechanisms.subset_selection import SubsetSelection
from fastfedrec.mechanisms.truncated_geometric import TruncatedGeometric

__all__ = [
    "GRR",
    "OUE",
    "BayesKary",
    "BinaryResponse",
    "Channel",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "FixedSizeSampling",
    "Hybrid",
    "LayeredGaussian",
    "MixtureLaplaceRR",
    "OptimalKary",
    "Piecewise",
    "PoissonSampling",
    "PublishedLaplaceRR",
    "RatedOrNot",
    "RoundedGaussian",
    "RoundedLaplace",
    "SerialLaplaceRR",
    "SubsetSelection",
    "TruncatedGeometric",
    "clip_rows_l1",
    "clip_rows_l2",
]
