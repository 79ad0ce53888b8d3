"""Recommender systems and baselines, one package for each, and the base classes and file formats that they share.

`rounds` defines the contract with engines, and `engines` runs deployments on nodes.
"""

__all__: list[str] = []
