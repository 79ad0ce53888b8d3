"""Kernels of `fastfedrec.engines`."""
