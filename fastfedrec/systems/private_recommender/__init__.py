"""The front door: PrivateRecommender, the choice that it goes by (`advise`), and the sweeps that the choice rests on.

What it chooses among is in the other packages of `systems`; the sweeps are made by `studies.advise`.
"""

__all__: list[str] = []
