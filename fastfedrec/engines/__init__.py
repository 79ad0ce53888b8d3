"""Engines decide where a system's rounds run, and nothing else.

The contract that they keep, and the engine of this process, are in `rounds`.
"""

from fastfedrec.engines.dask import DaskEngine
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine

__all__ = ["DaskEngine", "Engine", "LocalEngine"]
