"""Kernels of `fastfedrec.systems.gram`."""
