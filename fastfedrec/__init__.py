"""fastfedrec: the compiled backend for private federated recommenders."""

from fastfedrec._version import __version__
from fastfedrec.interactions import Interactions
from fastfedrec.randomness import Key

__all__ = ["Interactions", "Key", "__version__"]
