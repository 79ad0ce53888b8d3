"""Kernels of `fastfedrec.systems.private_prototypes`."""
