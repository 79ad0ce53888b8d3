"""Models to stand beside: popularity, with and without privacy, and models of items' similarities.

Baselines of ratings are in `rating_svd`, those of prototypes in `private_prototypes`, and NCF has a package of its own.
"""

__all__: list[str] = []
