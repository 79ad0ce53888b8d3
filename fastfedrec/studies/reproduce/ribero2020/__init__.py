"""Figures of the paper on private prototypes.

The system is in `systems.private_prototypes`.
"""

__all__: list[str] = []
