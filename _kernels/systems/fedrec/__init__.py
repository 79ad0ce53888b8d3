"""Kernels of `fastfedrec.systems.fedrec`."""
