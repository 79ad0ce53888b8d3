"""Membership inference against any fitted model, beside what its guarantee allows.

Attacks on FedRec's messages are in `systems.fedrec`.
"""

__all__: list[str] = []
