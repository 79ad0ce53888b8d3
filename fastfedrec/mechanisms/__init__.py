"""Randomizers; each states its guarantee in one sentence."""

from fastfedrec.mechanisms.binary_response import BinaryResponse
from fastfedrec.mechanisms.channel import Channel
from fastfedrec.mechanisms.discrete_laplace import DiscreteLaplace

__all__ = ["BinaryResponse", "Channel", "DiscreteLaplace"]
