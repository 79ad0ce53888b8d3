"""Randomizers; each states its guarantee in one sentence."""

from fastfedrec.mechanisms.binary_response import BinaryResponse
from fastfedrec.mechanisms.channel import Channel
from fastfedrec.mechanisms.client_sampling import FixedSizeSampling, PoissonSampling
from fastfedrec.mechanisms.clipping import ClippedRows, clip_rows_l1, clip_rows_l2
from fastfedrec.mechanisms.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.rounded_gaussian import RoundedGaussian
from fastfedrec.mechanisms.selection import ExponentialMechanism

__all__ = [
    "BinaryResponse",
    "Channel",
    "ClippedRows",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "FixedSizeSampling",
    "PoissonSampling",
    "RoundedGaussian",
    "clip_rows_l1",
    "clip_rows_l2",
]
