"""Additive integer noise: discrete Laplace and Gaussian noise, sampled exactly or from tables.

Mechanisms that report a single value are in `channels`.
"""

__all__: list[str] = []
