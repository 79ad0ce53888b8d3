"""Kernels of `fastfedrec.core`."""
