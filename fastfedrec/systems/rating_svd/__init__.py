"""Laplace-RR-SVD, which trains biases and factors on private ratings, and baselines for ratings.

`mechanisms.ratings` has the randomizers of ratings.
"""

__all__: list[str] = []
