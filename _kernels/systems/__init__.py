"""Kernels of `fastfedrec.systems`."""
