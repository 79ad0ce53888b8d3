"""Membership inference against any fitted model, compared with the bound of its guarantee.

Attacks on FedRec's messages are in `systems.fedrec`.
"""

__all__: list[str] = []
