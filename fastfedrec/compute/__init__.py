"""The thin API of the kernels: factorisations, ranking, clustering, sums; arrays in, arrays out.

Networks are in `networks`.  Nothing here is private by itself, and nothing knows of rounds.
"""

__all__: list[str] = []
