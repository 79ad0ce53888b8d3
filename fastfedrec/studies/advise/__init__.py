"""Measures what `advise` answers from, and how far its choice is behind the best: on generated data only.

The choice itself is in `systems.private_recommender`.
"""

__all__: list[str] = []
