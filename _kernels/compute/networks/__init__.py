"""Kernels of `fastfedrec.compute.networks`."""
