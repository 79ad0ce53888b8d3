"""Figures of the paper on FMF-LDP.

The system is in `systems.fmf`.
"""

__all__: list[str] = []
