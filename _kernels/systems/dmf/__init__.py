"""Kernels of `fastfedrec.systems.dmf`."""
