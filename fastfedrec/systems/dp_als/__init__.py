"""DPALS: alternating least squares by noisy sums of a trusted server.

Exact ALS is `compute.als`; the same sums behind gradients are `systems.fmf.dp_fmf`.
"""

__all__: list[str] = []
