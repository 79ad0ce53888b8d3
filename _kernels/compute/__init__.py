"""Kernels of `fastfedrec.compute`."""
