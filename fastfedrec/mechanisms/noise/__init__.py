"""Whole numbers that are added: discrete Laplace and Gaussian noise, sampled exactly or from tables.

What one report of a value is made of is in `channels`.
"""

__all__: list[str] = []
