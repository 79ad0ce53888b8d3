"""DPSubspace: a linear recommender for many items, from noisy projections of the matrix of item pairs.

The matrix itself, for fewer items, is released in `systems.gram`.
"""

__all__: list[str] = []
