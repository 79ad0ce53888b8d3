"""Models to stand beside: popularity, with and without privacy, and models of items' similarities.

Baselines of ratings are in `rating_svd`, those of prototypes in `private_prototypes`; NCF and DMF have their own
packages.
"""

__all__: list[str] = []
