"""Randomizers; each states its guarantee in one sentence."""

from fastfedrec.mechanisms.binary_response import BinaryResponse
from fastfedrec.mechanisms.channel import Channel
from fastfedrec.mechanisms.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.frequency import GRR, OUE
from fastfedrec.mechanisms.optimal_kary import OptimalKary
from fastfedrec.mechanisms.piecewise import Hybrid, Piecewise
from fastfedrec.mechanisms.truncated_geometric import TruncatedGeometric

__all__ = [
    "GRR",
    "OUE",
    "BinaryResponse",
    "Channel",
    "DiscreteLaplace",
    "Hybrid",
    "OptimalKary",
    "Piecewise",
    "TruncatedGeometric",
]
