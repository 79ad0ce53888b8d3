"""DPALS: alternating least squares from noisy sums of a trusted server.

`compute.als` has exact ALS, and `systems.fmf.dp_fmf` descends gradients with the same kind of sums.
"""

__all__: list[str] = []
