"""PrivateRecommender, the advice that it follows (`advise`), and the sweeps that come with the package.

The systems to choose from are in the other packages of `systems`; `studies.advise` makes the sweeps.
"""

__all__: list[str] = []
