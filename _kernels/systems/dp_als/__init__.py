"""Kernels of `fastfedrec.systems.dp_als`."""
