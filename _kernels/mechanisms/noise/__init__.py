"""Kernels of `fastfedrec.mechanisms.noise`."""
