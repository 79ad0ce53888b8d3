"""Kernels of `fastfedrec.mechanisms.channels`."""
