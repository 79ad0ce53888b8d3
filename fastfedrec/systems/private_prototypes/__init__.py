"""Private prototypes: entities cluster their users, and send noisy sums of each cluster.

k-means without privacy is `compute.clustering`.
"""

__all__: list[str] = []
