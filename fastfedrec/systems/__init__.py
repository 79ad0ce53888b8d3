"""The systems and baselines, a package each, and what all have in common: `recommender`, `rating_model`, files, claims.

The contract with engines is in `rounds`; deployments on nodes are in `engines`.
"""

__all__: list[str] = []
