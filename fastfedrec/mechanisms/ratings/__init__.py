"""Randomizers of one rating on a grid, and the optimization programs that design them.

General finite channels are in `channels`; systems that use these randomizers are in `systems.rating_svd`.
"""

__all__: list[str] = []
