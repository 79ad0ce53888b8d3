"""Kernels of `fastfedrec.systems.ncf`."""
