"""Benchmarks of `fastfedrec.systems.ncf`."""
