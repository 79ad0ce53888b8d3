"""Engines decide where a system's rounds run, and nothing else."""

from fastfedrec.engines.base import Engine
from fastfedrec.engines.dask import DaskEngine
from fastfedrec.engines.local import LocalEngine

__all__ = ["DaskEngine", "Engine", "LocalEngine"]
