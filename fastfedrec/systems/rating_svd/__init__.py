"""Laplace-RR-SVD: private ratings, biases and factors of them, and baselines of ratings.

The randomizers of ratings are in `mechanisms.ratings`.
"""

__all__: list[str] = []
