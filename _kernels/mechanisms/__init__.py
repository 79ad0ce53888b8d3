"""Kernels of `fastfedrec.mechanisms`."""
