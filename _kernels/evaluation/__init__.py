"""Kernels of `fastfedrec.evaluation`."""
