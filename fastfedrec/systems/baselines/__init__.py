"""Baselines for comparison: popularity, with and without privacy, and models of item and user similarities.

`rating_svd` has baselines for ratings, and `private_prototypes` has baselines for prototypes; NCF and DMF are packages
of their own.
"""

__all__: list[str] = []
