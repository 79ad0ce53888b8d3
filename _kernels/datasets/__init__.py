"""Kernels of `fastfedrec.datasets`."""
