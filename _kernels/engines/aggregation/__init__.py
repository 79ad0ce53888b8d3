"""Kernels of `fastfedrec.engines.aggregation`."""
