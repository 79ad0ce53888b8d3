"""Engines decide where a system's rounds run, and nothing else."""

from fastfedrec.engines.local import LocalEngine

__all__ = ["LocalEngine"]
