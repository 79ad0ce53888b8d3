"""Kernels of `fastfedrec.data`."""
