"""Randomizers of one rating on a grid, and the programmes that find the best of them.

Any finite channel is in `channels`; systems that use these are in `systems.rating_svd`.
"""

__all__: list[str] = []
