"""The array interface of the kernels: factorisations, ranking, clustering and sums.

Networks are in `networks`.  No function here gives a privacy guarantee, and none depends on rounds.
"""

from fastfedrec.core.old_names import refuse_old_names

__all__: list[str] = []

refuse_old_names(__name__, places="ranks")
