"""Randomizers; each states its guarantee in one sentence.

The composition of guarantees is in `accounting`; systems that use the mechanisms are in `systems`.
"""

from fastfedrec.mechanisms.channels.binary_response import BinaryResponse
from fastfedrec.mechanisms.channels.channel import Channel
from fastfedrec.mechanisms.channels.largest_response import LargestResponse
from fastfedrec.mechanisms.channels.piecewise import Hybrid, Piecewise
from fastfedrec.mechanisms.channels.truncated_geometric import TruncatedGeometric
from fastfedrec.mechanisms.client_sampling import FixedSizeSampling, PoissonSampling
from fastfedrec.mechanisms.clipping import clip_rows_l1, clip_rows_l2
from fastfedrec.mechanisms.exponential import ExponentialMechanism
from fastfedrec.mechanisms.frequencies.frequency import GRR, OUE
from fastfedrec.mechanisms.frequencies.subset_selection import SubsetSelection
from fastfedrec.mechanisms.noise.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.noise.layered_gaussian import LayeredGaussian, gaussian_noise
from fastfedrec.mechanisms.noise.rounded_gaussian import RoundedGaussian
from fastfedrec.mechanisms.noise.skellam import Skellam
from fastfedrec.mechanisms.ratings.bayes_kary import BayesKary
from fastfedrec.mechanisms.ratings.laplace_rr import (
    MixtureLaplaceRR,
    PublishedLaplaceRR,
    RoundedLaplace,
    SerialLaplaceRR,
)
from fastfedrec.mechanisms.ratings.optimal_kary import OptimalKary
from fastfedrec.mechanisms.ratings.rated_or_not import RatedOrNot

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
    "LargestResponse",
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
    "Skellam",
    "SubsetSelection",
    "TruncatedGeometric",
    "clip_rows_l1",
    "clip_rows_l2",
    "gaussian_noise",
]

__dir__ = __all__.copy  # dir() lists only the public names
