"""The array interface of the kernels: factorisations, ranking, clustering and sums.

Networks are in `networks`.  No function here gives a privacy guarantee, and none depends on rounds.
"""

__all__: list[str] = []
