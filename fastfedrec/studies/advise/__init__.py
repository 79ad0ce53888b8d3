"""Sweeps on generated data that `advise` reads, and the regret of its choice against the best system.

The choice itself is in `systems.private_recommender`.
"""

__all__: list[str] = []
