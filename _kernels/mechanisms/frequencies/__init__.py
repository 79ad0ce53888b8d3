"""Kernels of `fastfedrec.mechanisms.frequencies`."""
