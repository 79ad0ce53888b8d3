"""Frequency oracles: estimates of the counts of all values, from one report of each user.

Mechanisms that report numbers are in `channels` and `ratings`.
"""

__all__: list[str] = []
