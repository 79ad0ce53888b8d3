"""Kernels of `fastfedrec.systems.fedgnn`."""
