"""Models of a released matrix of item pairs: DPGram, and the sketch behind a shuffler.

Models of item pairs without privacy are in `systems.baselines`.
"""

__all__: list[str] = []
