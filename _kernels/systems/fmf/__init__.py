"""Kernels of `fastfedrec.systems.fmf`."""
