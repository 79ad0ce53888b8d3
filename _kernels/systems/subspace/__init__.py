"""Kernels of `fastfedrec.systems.subspace`."""
