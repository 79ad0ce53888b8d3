"""Frequency oracles: one report a user, from which counts of all values are estimated.

Reports of numbers are in `channels` and `ratings`.
"""

__all__: list[str] = []
