"""fastfedrec: the compiled backend for private federated recommenders."""

from fastfedrec import als, datasets
from fastfedrec._version import __version__
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key
from fastfedrec.systems.base import DivergenceError
from fastfedrec.systems.fmf_ldp import FMFLDP
from fastfedrec.systems.recommender import load

__all__ = ["FMFLDP", "DivergenceError", "Interactions", "Key", "__version__", "als", "datasets", "load"]
