"""Sweeps over parameters of systems: runs that are kept, their cells, fronts and tables.

Advice made of stored sweeps is in `studies.advise`.
"""

__all__: list[str] = []
