"""Sweeps over parameters of systems: stored runs, their cells, fronts and tables.

Advice based on stored sweeps is in `studies.advise`.
"""

__all__: list[str] = []
