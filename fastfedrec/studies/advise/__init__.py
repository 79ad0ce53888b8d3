"""Which system, at which setting, for one budget and one trust model; answered from stored sweeps.

Sweeps themselves are in `studies.sweep`.
"""

__all__: list[str] = []
