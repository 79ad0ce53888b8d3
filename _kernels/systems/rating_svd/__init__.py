"""Kernels of `fastfedrec.systems.rating_svd`."""
