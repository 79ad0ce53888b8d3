"""Engines decide where a system's rounds run.

Their interface, and the engine of the local process, are in `rounds`.
"""

from fastfedrec.engines.dask import DaskEngine
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine

__all__ = ["DaskEngine", "Engine", "LocalEngine"]

__dir__ = __all__.copy  # dir() lists only the public names
