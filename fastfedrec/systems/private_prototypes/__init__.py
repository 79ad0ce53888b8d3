"""Private prototypes: entities cluster their users, and send noisy sums of each cluster.

`compute.clustering` has k-means without privacy.
"""

__all__: list[str] = []
